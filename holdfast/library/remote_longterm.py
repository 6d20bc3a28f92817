"""Long-term memory on a server, with the methods of the embedded one."""

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import Page
from holdfast.library.longterm import LongTermSpec
from holdfast.library.remote.client import WireClient
from holdfast.library.remote.transfer import imported
from holdfast.library.remote_longterm_wire import (
    LongTermWire,
    list_of,
    record,
    switched,
    value_of,
    wire_of,
)
from holdfast.library.spans import LONGTERM, traced
from holdfast.memories.longterm.read import LISTED
from holdfast.memories.longterm.recall.recall import K
from holdfast.memories.longterm.records import (
    Cleared,
    Flushed,
    ForgetResult,
    Imported,
    Item,
    LongTermStatus,
    Recalled,
    Recorded,
    Remembered,
    Turn,
    Weights,
    What,
    Wire,
    to_wire,
)
from holdfast.memories.longterm.turns import read_messages
from holdfast.memories.longterm.validation import checked_kinds, checked_turns, is_id

D = TypeVar("D", bound="RemoteLongTermData")

_PIECE: Final = 20.0
"""Most seconds that one request lets the server wait."""
_SET_BY_US: Final = frozenset(("id", "items", "created_at"))
_HOMES: Final = {"item": "items", "turn": "turns"}


class RemoteLongTermData:
    """A user's data on a server, also where long-term memory is disabled."""

    def __init__(self, wire: LongTermWire) -> None:
        self._wire = wire

    def list(
        self,
        what: str = "items",
        *,
        kinds: Iterable[str] | None = None,
        query: str | None = None,
        include_superseded: bool = False,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[Any]:
        """Return the `items` or the `turns`, newest first; *limit* is 1 to 1,000."""
        params: dict[str, object] = {"query": query, "limit": limit, "page": page}
        if what == "turns":
            if kinds is not None:
                reason = "are of items alone"
                raise InvalidInput("kinds", reason, next="Leave it out for turns.")
            return self._wire.page(lambda each: record(Turn, each), what, **params)
        if what != "items":
            raise InvalidInput("what", "must be items or turns", given=what)
        named = checked_kinds(kinds)
        params["include_superseded"] = bool(include_superseded)
        # A query cannot encode an empty list: one empty name represents it.
        params["kinds"] = None if named is None else sorted(named) or [""]
        return self._wire.page(lambda each: record(Item, each), what, **params)

    def get(self, id: str) -> Item | Turn | None:
        """Return the item or turn *id*, or None."""
        kind = _kind_of(id)
        if kind is None:
            return None
        try:
            found = self._wire.read(_HOMES[kind], id)
        except NotFound as missing:
            if missing.kind == kind:
                return None
            raise
        return record(Item, found) if kind == "item" else record(Turn, found)

    def export(self) -> Iterator[dict[str, object]]:
        """Yield every turn and then every item, each as a dict with its `type`."""
        for line in self._wire.lines("export"):
            yield msgspec.json.decode(line, type=dict[str, object])

    def forget(self, id: str) -> ForgetResult:
        """Forget the item or turn *id* permanently; return what was forgotten with it."""
        kind = _kind_of(id)
        if kind is None:
            return ForgetResult()
        return record(ForgetResult, self._wire.write("DELETE", _HOMES[kind], id))

    def clear(self) -> Cleared:
        """Forget this collection permanently, and its record of forgotten items."""
        return record(Cleared, self._wire.write("DELETE"))

    def status(self) -> LongTermStatus:
        """Return the status of the collection."""
        return record(LongTermStatus, self._wire.read("status"))


class RemoteLongTermMemory(RemoteLongTermData):
    """A user's memory across sessions, recalled by a server."""

    def by_tool(self) -> "RemoteLongTermMemory":
        """Return the same with the agent's tools as the origin of new items."""
        return RemoteLongTermMemory(self._wire.by_tool())

    def recall(
        self,
        query: str,
        k: int = K,
        *,
        what: What = "all",
        kinds: Iterable[str] | None = None,
        min_relevance: float | None = None,
        weights: Weights | None = None,
        touch: bool = True,
    ) -> "list[Recalled]":
        """Return at most *k* items and turns relevant to *query*, best first.

        *k* is 0 to 100.
        """
        named = checked_kinds(kinds)
        body: dict[str, object] = {
            "query": query,
            "k": k,
            "what": what,
            "kinds": None if named is None else sorted(named),
            "min_relevance": min_relevance,
            "weights": asdict(weights) if isinstance(weights, Weights) else weights,
            "touch": touch,
        }
        answer = self._wire.write("POST", "recall", body=body, again=True)
        return [record(Recalled, each) for each in list_of(answer, "results")]

    def remember(
        self,
        text: str,
        kind: str = "fact",
        importance: float = 0.5,
        *,
        source: str = "",
        turns: Iterable[str] = (),
    ) -> Remembered:
        """Remember one sentence about the user: a fact, preference, decision or event."""
        body = {
            "text": text,
            "kind": kind,
            "importance": importance,
            "source": source,
            "turns": turns,
            "origin": self._wire.origin,
        }
        return record(Remembered, self._wire.write("POST", "items", body=body))

    def record(self, turns: Iterable[Turn], *, thread_id: str | None = None) -> Recorded:
        """Store *turns* without extraction; if one is invalid, store none."""
        body = {
            "turns": [_sendable_turn(each) for each in checked_turns(turns)],
            "thread_id": thread_id,
        }
        return record(Recorded, self._wire.write("POST", "turns", body=body))

    def remember_conversation(
        self, messages: Iterable[object], thread_id: str | None = None
    ) -> Recorded:
        """Record the new messages, and queue them for extraction if there is an extractor.

        Messages with a role that is not recorded are sent without text.
        """
        whole = isinstance(messages, str | bytes | Mapping)
        given = cast("Any", messages if whole else list(messages))
        sent = [
            {"role": cast("Wire", each)["role"]} if turn is None else _sendable_turn(turn)
            for each, turn in zip(given, read_messages(given), strict=True)
        ]
        body = {"messages": sent, "thread_id": thread_id}
        return record(Recorded, self._wire.write("POST", "conversations", body=body))

    def update(
        self,
        id: str,
        *,
        text: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        importance: float | UnsetType = UNSET,
    ) -> Item:
        """Update an item and return it."""
        if _kind_of(id) is None:
            raise NotFound("item", str(id))
        body = {"text": text, "kind": kind, "importance": importance}
        return record(Item, self._wire.write("PATCH", "items", id, body=body, again=True))

    def import_(self, records: Iterable[object]) -> Imported:
        """Import *records* of `export`; those with an existing id are skipped."""
        return imported(self._wire, records)

    def flush(self, timeout: float | None = None) -> Flushed:
        """Wait at most *timeout* seconds for background work."""
        end = None if timeout is None else monotonic() + timeout
        results: tuple[Remembered, ...] = ()
        while True:
            left = _PIECE if end is None else max(0.0, min(_PIECE, end - monotonic()))
            begun = monotonic()
            flushed = record(Flushed, self._wire.write("POST", "flush", body={"timeout": left}))
            results += flushed.results
            idle = monotonic() - begun < left
            if flushed.done or idle or (end is not None and monotonic() >= end):
                return msgspec.structs.replace(flushed, results=results)

    def retry(self) -> int:
        """Queue failed jobs again; return how many."""
        return value_of(self._wire.write("POST", "retry"), "queued", int)


def longterm(
    client: WireClient, spec: LongTermSpec, *, trace_content: bool = False
) -> RemoteLongTermMemory | None:
    """Return the memory that *spec* names, or None if client or server disable it.

    With *trace_content* its spans record texts.
    """
    wire = switched(wire_of(client, spec), spec.enabled)
    return None if wire is None else _traced(RemoteLongTermMemory(wire), content=trace_content)


def longterm_data(
    client: WireClient, spec: LongTermSpec, *, trace_content: bool = False
) -> RemoteLongTermData:
    """Return a user's data, also where long-term memory is disabled."""
    return _traced(RemoteLongTermData(wire_of(client, spec)), content=trace_content)


def _traced(data: D, *, content: bool) -> D:
    """Return *data* with spans; only the server knows the id of its collection."""
    return traced(data, LONGTERM, store=None, content=content, remote=True)


def _kind_of(id: object) -> str | None:
    return next((kind for kind in _HOMES if is_id(kind, id)), None)


def _sendable_turn(turn: Turn) -> Wire:
    return {name: value for name, value in to_wire(turn).items() if name not in _SET_BY_US}
