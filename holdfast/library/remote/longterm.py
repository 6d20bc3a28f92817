"""Long-term memory on a server: its switch, models, lists, imports, and waiting."""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import asdict, replace

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.pages import Page
from holdfast.library.longterm import LongTermSpec
from holdfast.library.operations.base import time_text
from holdfast.library.operations.longterm import (
    DATA,
    HOMES,
    MEMORY,
    USER,
    form,
    kind_of,
    sorted_kinds,
)
from holdfast.library.remote.calls import (
    MemoryRequests,
    arguments_of,
    decoded,
    page_of,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.library.remote.client import WireClient, body_of, filled, json_of
from holdfast.library.spans import LONGTERM, traced
from holdfast.memories.longterm.context import ENABLED, is_on, said_by
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.read import LISTED
from holdfast.memories.longterm.records import (
    Flushed,
    ForgetResult,
    Imported,
    Item,
    LongTermOptions,
    LongTermStatus,
    RejectedRecord,
    Remembered,
    Turn,
)
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.longterm.validation import checked_name, checked_user

D = TypeVar("D", bound=LongTermData)

BYTES_AT_ONCE: Final = 8_388_608
"""Bytes of lines in one request; a server accepts four times as much."""
_PIECE: Final = 20.0
"""Most seconds that one request lets the server wait."""
_NO_EMBEDDER: Final = "none"
_NO_EXTRACTOR: Final = "none"
_USUAL: Final = LongTermOptions()
_ROWS: Final = {"item": form(Item), "turn": form(Turn)}


def _list(
    self: LongTermData,
    what: str = "items",
    *,
    kinds: Iterable[str] | None = None,
    query: str | None = None,
    include_superseded: bool = False,
    held: bool = False,
    at: datetime | str | None = None,
    valid_at: datetime | str | None = None,
    limit: int | None = LISTED,
    page: str | None = None,
) -> Page[Any]:
    params: dict[str, object] = {"query": query, "limit": limit, "page": page}
    params |= {"at": time_text(at), "valid_at": time_text(valid_at), "held": held or None}
    if what == "turns":
        if kinds is not None:
            raise InvalidInput("kinds", "are of items alone", next="Leave it out for turns.")
        return page_of(requests_of(self), f"{USER}/turns", params, _ROWS["turn"])
    if what != "items":
        raise InvalidInput("what", "must be items or turns", given=what)
    named = sorted_kinds(kinds)
    params["include_superseded"] = bool(include_superseded)
    # A query cannot encode an empty list: one empty name represents it.
    params["kinds"] = None if named is None else named or [""]
    return page_of(requests_of(self), f"{USER}/items", params, _ROWS["item"])


def _get(self: LongTermData, id: str, *, at: datetime | str | None = None) -> Item | Turn | None:
    kind = kind_of(id)
    if kind is None:
        return None
    try:
        path, query = f"{USER}/{HOMES[kind]}/{{id}}", {"at": time_text(at)}
        return decoded(_ROWS[kind].decode, _below(self, id).read(path, query))
    except NotFound as missing:
        if missing.kind == kind:
            return None
        raise


def _forget(self: LongTermData, id: str) -> ForgetResult:
    kind = kind_of(id)
    if kind is None:
        return ForgetResult()
    answer = _below(self, id).write("DELETE", f"{USER}/{HOMES[kind]}/{{id}}")
    return decoded(form(ForgetResult).decode, answer)


def _below(memory: object, id: str) -> MemoryRequests:
    requests = requests_of(memory)
    return replace(requests, segments={**requests.segments, "id": id})


def _export(self: LongTermData) -> Iterator[dict[str, object]]:
    requests = requests_of(self)
    path = filled(f"{USER}/export", requests.segments)
    for line in requests.client.read_lines(path, requests.query):
        yield msgspec.json.decode(line, type=dict[str, object])


def _status(self: LongTermData) -> LongTermStatus:
    return decoded(form(LongTermStatus).decode, requests_of(self).read(f"{USER}/status"))


RemoteLongTermData: Final = remote_memory(
    DATA, list=_list, get=_get, forget=_forget, export=_export, status=_status
)


def _by_tool(self: LongTermMemory, session: SessionTrust | None = None) -> LongTermMemory:
    memory = RemoteLongTermMemory(requests_of(self))
    vars(memory).update(origin="tool", session=session)
    return memory


def _remember(self: LongTermMemory, *args: Any, **kwargs: Any) -> Remembered:
    item = arguments_of(self, "remember", *args, **kwargs)
    given = {**item, "origin": vars(self).get("origin", "api")}
    session: SessionTrust | None = vars(self).get("session")
    if session is not None:
        # Only the server has the collection's statistics, so it judges the evidence.
        given["evidence"] = session.evidence
        given["echo"] = session.is_echo(str(given.get("text", "")))
        given["source"] = given.get("source") or f"thread:{session.thread_id}"
    return perform(self, "remember", given)


class _Batches:
    """Batch of lines with their positions, and the results of sent batches."""

    def __init__(self, requests: MemoryRequests, query: Mapping[str, object]) -> None:
        self._requests, self._query = requests, {**requests.query, **query}
        self._lines: list[bytes] = []
        self._places: list[int] = []
        self._size = 0
        self.rejected: list[RejectedRecord] = []
        self.done: list[Imported] = []

    def add(self, index: int, line: bytes) -> None:
        """Add *line* to the batch; send the batch first if it is full."""
        if self._lines and self._size + len(line) >= BYTES_AT_ONCE:
            self.send()
        self._lines.append(line)
        self._places.append(index)
        self._size += len(line) + 1

    def send(self) -> None:
        """Send the batch."""
        if not self._lines:
            return
        lines, places = self._lines, self._places
        self._lines, self._places, self._size = [], [], 0
        requests = self._requests
        path = filled(f"{USER}/import", requests.segments)
        answer = requests.client.write_lines(path, lines, self._query)
        done = decoded(form(Imported).decode, answer)
        self.rejected += [replace(each, index=places[each.index]) for each in done.rejected]
        self.done.append(done)


def _import(
    self: LongTermMemory,
    records: Iterable[object],
    *,
    foreign: bool = False,
    dry_run: bool = False,
    mine: bool = False,
) -> Imported:
    given = {"foreign": foreign, "dry_run": dry_run, "mine": mine}
    chosen = {name: value for name, value in given.items() if value}
    batches = _Batches(requests_of(self), chosen)
    for index, each in enumerate(records):
        try:
            batches.add(index, json_of("record", _sendable(each)))
        except InvalidInput as error:
            batches.rejected.append(RejectedRecord(index, f"{error.field}: {error.reason}"))
    batches.send()
    return Imported(
        items=sum(each.items for each in batches.done),
        turns=sum(each.turns for each in batches.done),
        skipped=sum(each.skipped for each in batches.done),
        duplicates=sum(each.duplicates for each in batches.done),
        held=sum(each.held for each in batches.done),
        queued=sum(each.queued for each in batches.done),
        rejected=tuple(sorted(batches.rejected, key=lambda each: each.index)),
        evicted=tuple(id for each in batches.done for id in each.evicted),
    )


def _sendable(value: object) -> object:
    """Return *value* with each instant in it as RFC 3339 text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _sendable(each) for name, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_sendable(each) for each in cast("list[object]", value)]
    return value


def _flush(self: LongTermMemory, timeout: float | None = None) -> Flushed:
    end = None if timeout is None else monotonic() + timeout
    results: tuple[Remembered, ...] = ()
    while True:
        left = _PIECE if end is None else max(0.0, min(_PIECE, end - monotonic()))
        begun = monotonic()
        answer = requests_of(self).write("POST", f"{USER}/flush", {"timeout": left})
        flushed = decoded(form(Flushed).decode, answer)
        results += flushed.results
        idle = monotonic() - begun < left
        if flushed.done or idle or (end is not None and monotonic() >= end):
            return replace(flushed, results=results)


def _retry(self: LongTermMemory) -> int:
    answer = requests_of(self).write("POST", f"{USER}/retry")
    return decoded(partial(msgspec.convert, type=int), answer.get("queued"))


RemoteLongTermMemory: Final = remote_memory(
    MEMORY,
    RemoteLongTermData,
    by_tool=_by_tool,
    remember=_remember,
    import_=_import,
    flush=_flush,
    retry=_retry,
)


def longterm(
    client: WireClient, spec: LongTermSpec, *, trace_content: bool = False
) -> LongTermMemory | None:
    """Return the memory that *spec* names, or None if client or server disable it.

    With *trace_content* its spans record texts.
    """
    requests = _switched(_requests(client, spec), spec.enabled)
    if requests is None:
        return None
    return _traced(RemoteLongTermMemory(requests), content=trace_content)


def longterm_data(
    client: WireClient, spec: LongTermSpec, *, trace_content: bool = False
) -> LongTermData:
    """Return a user's data, also where long-term memory is disabled."""
    return _traced(RemoteLongTermData(_requests(client, spec)), content=trace_content)


def _traced(data: D, *, content: bool) -> D:
    """Return *data* with spans; only the server knows the id of its collection."""
    return traced(data, LONGTERM, store=None, content=content, remote=True)


def _requests(client: WireClient, spec: LongTermSpec) -> MemoryRequests:
    """Return the requests for the collection that *spec* names.

    Raises InvalidInput for an invalid name, and for a model or option that cannot be sent.
    """
    segments = {"user": checked_user(spec.user_id)}
    query: dict[str, object] = {"namespace": checked_name("namespace", spec.namespace)}
    if spec.workspace_id is not None:
        query["workspace_id"] = checked_name("workspace_id", spec.workspace_id)
    query |= {
        "embedder": _NO_EMBEDDER if spec.embedder is False else _model("embedder", spec.embedder),
        "extractor": _NO_EXTRACTOR
        if spec.extractor is False
        else _model("extractor", spec.extractor),
        "options": _options(spec.options),
    }
    return MemoryRequests(client=client, segments=segments, query=query)


def _switched(requests: MemoryRequests, enabled: bool | None) -> MemoryRequests | None:
    """Return *requests* with memory switched on, or None where it is switched off.

    The server is queried too, since it may switch memory off.
    """
    variable = os.environ.get(ENABLED)
    on = is_on(enabled, variable)
    if enabled is False or said_by(variable) is False:
        return None
    requests = replace(requests, query={**requests.query, "enabled": True if on else None})
    status = requests.read(f"{USER}/status")
    return requests if decoded(partial(msgspec.convert, type=bool), status.get("enabled")) else None


def _model(field: str, given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InvalidInput(
            field,
            "must be provider:model against a server",
            given=type(given).__name__,
            next="An object works where the database is.",
        )
    return given


def _options(options: LongTermOptions) -> str | None:
    """Encode the options that differ from the defaults as JSON; None if none do."""
    if options.credentials is not None:
        reason = "cannot be sent to a server, which has its own"
        raise InvalidInput("credentials", reason)
    fields = {**asdict(options), "weights": asdict(options.weights)}
    usual = {**asdict(_USUAL), "weights": asdict(_USUAL.weights)}
    given = {name: value for name, value in fields.items() if value != usual[name]}
    return body_of(given).decode() if given else None
