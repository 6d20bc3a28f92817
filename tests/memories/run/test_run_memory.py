"""The contract of run memory, of this process."""

from holdfast.testing.contracts.suites import RUN_MEMORY, suites_of

globals().update(suites_of(RUN_MEMORY))
