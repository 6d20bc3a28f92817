"""Open the runs of a workspace from its handle."""

from functools import partial

from holdfast.memories.run.records.mirror import Attachments
from holdfast.memories.run.records.record import RunsContext as RunCaller
from holdfast.memories.run.records.runs import Runs
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed


def runs(caller: StoresContext, attachments: Attachments) -> Runs:
    """Return the runs of *caller*'s workspace; a session reaches none of them."""
    return Runs(run_caller(caller), attachments)


def run_caller(caller: StoresContext) -> RunCaller:
    """Return the context of run records for *caller*."""
    return RunCaller(
        engine=caller.engine,
        workspace=caller.workspace,
        clock=caller.clock,
        demand=partial(refuse_narrowed, caller),
    )
