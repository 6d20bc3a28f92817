"""Whether what a path names is there, and may be written to by who asks."""

from holdfast.doors.http.call import Call
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.rows import StoresContext, reach


async def store_there(call: Call) -> None:
    """Raise NotFound unless the store is there, NotPermitted unless *call* reaches it."""
    await call.quick(lambda hf: hf.memory_stores.retrieve(call["s"]))


async def store_writable(call: Call) -> None:
    """Raise as `store_there` does, and NotPermitted for a store attached `read_only`."""

    def look(hf: Holdfast) -> None:
        _demand_writable(call)
        hf.memory_stores.retrieve(call["s"])

    await call.quick(look)


async def memory_there(call: Call) -> None:
    """Raise NotFound unless the store and its memory are there."""
    await call.quick(lambda hf: _memory(hf, call))


async def memory_writable(call: Call) -> None:
    """Raise as `memory_there` does, and NotPermitted for a store attached `read_only`."""

    def look(hf: Holdfast) -> None:
        _demand_writable(call)
        _memory(hf, call)

    await call.quick(look)


async def version_there(call: Call) -> None:
    """Raise NotFound unless the store and its version are there."""
    await call.quick(
        lambda hf: hf.memory_stores.memory_versions.retrieve(
            call["v"], memory_store_id=call["s"], view="basic"
        )
    )


async def session_there(call: Call) -> None:
    """Raise NotFound unless the session is there."""
    await call.quick(lambda hf: hf.sessions.retrieve(call["id"]))


async def agent_there(call: Call) -> None:
    """Raise NotFound unless the agent is there."""
    await call.quick(lambda hf: hf.agents.retrieve(call["id"]))


async def environment_there(call: Call) -> None:
    """Raise NotFound unless the environment is there."""
    await call.quick(lambda hf: hf.environments.retrieve(call["id"]))


def _memory(hf: Holdfast, call: Call) -> None:
    hf.memory_stores.memories.retrieve(call["m"], memory_store_id=call["s"], view="basic")


def caller_of(call: Call) -> StoresContext:
    """Return who asks, as the memories see it."""
    house, visitor = call.house, call.visitor
    return StoresContext(
        engine=house.hf.engine.scoped(Scope(workspace=visitor.workspace)),
        workspace=visitor.workspace,
        actor=visitor.actor,
        clock=house.clock,
        ids=house.ids,
        session_id=visitor.session_id,
    )


def _demand_writable(call: Call) -> None:
    if call.visitor.session_id is None:
        return
    caller = caller_of(call)
    reach(caller, caller.engine, call["s"], write=True)
