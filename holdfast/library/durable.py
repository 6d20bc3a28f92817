"""From a workspace's handle to one agent's durable memory."""

from holdfast.ground.scope import Scope, checked_name
from holdfast.memories.durable.caller import Caller as DurableCaller
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.stores.caller import Caller
from holdfast.memories.stores.session_access import refuse_narrowed


def durable(caller: Caller, agent: str) -> DurableMemory:
    """Return the memory of *agent* in *caller*'s workspace; a session's handle has none."""
    refuse_narrowed(caller, "write")
    checked_name("agent", agent)
    return DurableMemory(
        DurableCaller(
            engine=caller.engine.scoped(Scope(workspace=caller.workspace, agent=agent)),
            workspace=caller.workspace,
            agent=agent,
            actor=caller.actor,
            clock=caller.clock,
            ids=caller.ids,
        )
    )
