"""From a workspace's handle to its threads, and to the runs of networks."""

from functools import partial

from holdfast.memories.state.thread import ThreadsContext as StateCaller
from holdfast.memories.state.threads import NetworkRuns, Threads
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed


def threads(caller: StoresContext) -> Threads:
    """Return the threads of *caller*'s workspace; a session reaches none of them."""
    return Threads(state_caller(caller))


def network_runs(caller: StoresContext) -> NetworkRuns:
    """Return the records of runs of *caller*'s workspace; a session reaches none of them."""
    return NetworkRuns(state_caller(caller))


def state_caller(caller: StoresContext) -> StateCaller:
    """Return *caller* as threads see it."""
    return StateCaller(
        engine=caller.engine,
        workspace=caller.workspace,
        clock=caller.clock,
        demand=partial(refuse_narrowed, caller),
    )
