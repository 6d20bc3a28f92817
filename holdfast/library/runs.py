"""From a workspace's handle to the records of its runs."""

from functools import partial

from holdfast.memories.run.records.mirror import Attachments
from holdfast.memories.run.records.record import RunsContext as RunCaller
from holdfast.memories.run.records.runs import Runs
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed


def runs(caller: StoresContext, attachments: Attachments) -> Runs:
    """Return the runs of *caller*'s workspace; a session reaches none of them."""
    return Runs(run_caller(caller), attachments)


def run_caller(caller: StoresContext) -> RunCaller:
    """Return *caller* as records of runs see it."""
    return RunCaller(
        engine=caller.engine,
        workspace=caller.workspace,
        clock=caller.clock,
        demand=partial(refuse_narrowed, caller),
    )
