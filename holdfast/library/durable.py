"""Open durable memory from a workspace's handle, for one agent or all."""

from holdfast.ground.pages import Page
from holdfast.ground.scope import Scope, checked_name
from holdfast.library.erasure import ForgetReport
from holdfast.library.forgetting import elsewhere
from holdfast.library.spans import DURABLE, traced
from holdfast.memories.durable import forget
from holdfast.memories.durable.context import AgentContext as DurableCaller
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.read import list_agents
from holdfast.memories.durable.records import (
    AgentSummary,
    DurableLimits,
    LimitsChanged,
    Swept,
    coded,
)
from holdfast.memories.durable.retention import Given, limits_of, set_workspace_limits, sweep_all
from holdfast.memories.durable.rows import SHARED
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

EVERY = "*"
"""Wildcard for every agent, or every workspace, in a scope of upkeep."""


def durable(caller: StoresContext, agent: str, *, trace_content: bool = False) -> DurableMemory:
    """Return the memory of *agent* in *caller*'s workspace.

    A session's handle has none.

    With *trace_content* its spans record texts.
    """
    with coded():
        refuse_narrowed(caller, "write")
        checked_name("agent", agent)
    memory = DurableMemory(_of(caller, agent, Scope(workspace=caller.workspace, agent=agent)))
    return traced(memory, DURABLE, store=agent, content=trace_content)


def durable_agents(
    caller: StoresContext, limit: int | None, page: str | None
) -> Page[AgentSummary]:
    """Return the agents of *caller*'s workspace, by name."""
    with coded():
        return list_agents(_of_workspace(caller, "read"), limit=limit, page=page)


def durable_limits(caller: StoresContext) -> DurableLimits:
    """Return the limits of *caller*'s workspace."""
    with coded():
        return limits_of(_of_workspace(caller, "read"))


def set_durable_limits(caller: StoresContext, given: Given, *, evict: bool) -> LimitsChanged:
    """Set the limits of *caller*'s workspace."""
    with coded():
        whole = _of_workspace(caller, "admin")
    return set_workspace_limits(whole, given, evict=evict)


def sweep(caller: StoresContext) -> Swept:
    """Remove expired data of every agent of *caller*'s workspace."""
    with coded():
        return sweep_all(_of_workspace(caller, "admin"))


def forget_agent(caller: StoresContext, agent: str) -> ForgetReport:
    """Forget *agent*: durable memory, results in threads, runs, and its name."""
    with coded():
        whole = _of_workspace(caller, "admin")
    also = elsewhere(whole.engine, caller.workspace, agent)
    counts = forget.forget_agent(whole, agent, also)
    return ForgetReport(counts=counts, pending=whole.engine.scrub().pending)


def _of_workspace(caller: StoresContext, needed: str) -> DurableCaller:
    refuse_narrowed(caller, needed)
    return _of(caller, SHARED, Scope(workspace=caller.workspace, agent=EVERY))


def _of(caller: StoresContext, agent: str, scope: Scope) -> DurableCaller:
    return DurableCaller(
        engine=caller.engine.scoped(scope),
        workspace=caller.workspace,
        agent=agent,
        actor=caller.actor,
        clock=caller.clock,
        ids=caller.ids,
    )
