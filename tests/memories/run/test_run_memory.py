"""The contract of run memory, of this process."""

from contracts.suites import RUN_MEMORY, suites_of

globals().update(suites_of(RUN_MEMORY))
