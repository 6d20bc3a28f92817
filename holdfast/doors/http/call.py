"""One request as its handler sees it, and checks that its objects exist."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from holdfast.doors.http.params import B, BodyLimits, read_body, read_json
from holdfast.doors.http.request import Lanes, LibraryHandles, Visitor
from holdfast.doors.http.state import House
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import StoresContext, reach

T = TypeVar("T")

BULKY = 16_384
"""Bytes of a body above which its words are counted and hashed on a thread, not on the loop."""


class Call:
    """A request with its visitor, and the ways to run its work.

    `query` holds the values of the query by the library's names.
    """

    __slots__ = ("handles", "headers", "house", "query", "raw", "segments", "visitor")

    def __init__(
        self,
        house: House,
        visitor: Visitor,
        handles: LibraryHandles,
        segments: Mapping[str, str],
        *,
        headers: Mapping[bytes, bytes],
        raw: bytes,
    ) -> None:
        self.house, self.visitor, self.handles = house, visitor, handles
        self.segments, self.headers, self.raw = segments, headers, raw
        self.query: dict[str, Any] = {}

    def __getitem__(self, name: str) -> str:
        """Return the value of the path parameter *name*."""
        return self.segments[name]

    def body(self, make: type[B], limits: BodyLimits | None = None) -> B:
        """Return the body as a *make*, within the usual limits or *limits*.

        Raise InvalidInput with the key that is wrong.
        """
        return read_body(self.raw, make, limits)

    def json(self, limits: BodyLimits | None = None) -> JSONObject:
        """Return the body as a JSON object; raise InvalidInput if it is none."""
        return read_json(self.raw, limits)

    async def quick(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), which reads one row or a few consecutive ones."""
        return await self._lanes.quick(lambda: act(self.handles.plain))

    async def slow(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), run on a thread: it may wait or compute for long."""
        return await self._lanes.slow(lambda: act(self.handles.plain))

    async def write(self, act: Callable[[Holdfast], T]) -> T:
        """Return *act*(handle), which ends with one write; await that without a thread.

        What it does before (validate its arguments, in PostgreSQL also read rows) may use one.
        """

        def begun() -> Awaitable[T]:
            return cast("Awaitable[T]", act(self.handles.awaited))

        run = self._lanes.slow if len(self.raw) > BULKY else self._lanes.quick
        return await (await run(begun))

    @property
    def _lanes(self) -> Lanes:
        return self.house.lanes


async def store_there(call: Call) -> None:
    """Raise NotFound unless the store exists, NotPermitted unless it is accessible."""
    await call.quick(lambda hf: hf.memory_stores.retrieve(call["s"]))


async def store_writable(call: Call) -> None:
    """Raise as `store_there` does, and NotPermitted for a store attached `read_only`."""

    def look(hf: Holdfast) -> None:
        _demand_writable(call)
        hf.memory_stores.retrieve(call["s"])

    await call.quick(look)


async def memory_there(call: Call) -> None:
    """Raise NotFound unless the store and its memory exist."""
    await call.quick(lambda hf: _memory(hf, call))


async def memory_writable(call: Call) -> None:
    """Raise as `memory_there` does, and NotPermitted for a store attached `read_only`."""

    def look(hf: Holdfast) -> None:
        _demand_writable(call)
        _memory(hf, call)

    await call.quick(look)


async def version_there(call: Call) -> None:
    """Raise NotFound unless the store and its version exist."""
    await call.quick(
        lambda hf: hf.memory_stores.memory_versions.retrieve(
            call["v"], memory_store_id=call["s"], view="basic"
        )
    )


async def session_there(call: Call) -> None:
    """Raise NotFound unless the session exists."""
    await call.quick(lambda hf: hf.sessions.retrieve(call["id"]))


async def agent_there(call: Call) -> None:
    """Raise NotFound unless the agent exists."""
    await call.quick(lambda hf: hf.agents.retrieve(call["id"]))


async def environment_there(call: Call) -> None:
    """Raise NotFound unless the environment exists."""
    await call.quick(lambda hf: hf.environments.retrieve(call["id"]))


def _memory(hf: Holdfast, call: Call) -> None:
    hf.memory_stores.memories.retrieve(call["m"], memory_store_id=call["s"], view="basic")


def caller_of(call: Call) -> StoresContext:
    """Return the context of *call* for memory stores."""
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
    context = caller_of(call)
    reach(context, context.engine, call["s"], write=True)
