"""Open the threads and network runs of a workspace from its handle."""

from functools import partial

from holdfast.memories.state.thread import ThreadsContext as StateCaller
from holdfast.memories.state.threads import NetworkRuns, Threads
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed


def threads(caller: StoresContext) -> Threads:
    """Return the threads of *caller*'s workspace; a session reaches none of them."""
    return Threads(state_caller(caller))


def network_runs(caller: StoresContext) -> NetworkRuns:
    """Return the network runs of *caller*'s workspace; a session reaches none."""
    return NetworkRuns(state_caller(caller))


def state_caller(caller: StoresContext) -> StateCaller:
    """Return the context of threads for *caller*."""
    return StateCaller(
        engine=caller.engine,
        workspace=caller.workspace,
        clock=caller.clock,
        demand=partial(refuse_narrowed, caller),
    )
