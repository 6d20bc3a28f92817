"""OpenTelemetry spans around the calls of memories.

They follow OpenTelemetry's conventions for agents' memories. A memory opened while a tracer
provider is set gets a wrapper with the same interface; without one the memory is returned
unchanged, and OpenTelemetry is not imported. Spans contain texts only for a handle opened with
`trace_content=True`.
"""

import inspect
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

import msgspec
from msgspec import Struct, field

from holdfast.ground.errors import HoldfastError
from holdfast.memories.durable.records import DurableEntry, ImportReport, StoredEntry, StoredMany
from holdfast.memories.longterm.records import (
    Cleared,
    ForgetResult,
    Imported,
    Item,
    Recalled,
    Recorded,
    Remembered,
    Turn,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


T = TypeVar("T")

Operation = Literal[
    "search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"
]

Store = str | Callable[[], str | None] | None
"""Id of a memory's store, a function that looks it up, or None if unknown."""

_STORE: Final = "gen_ai.memory.store.id"
_API: Final = "opentelemetry.trace"
"""Module that is imported wherever a tracer provider can be set."""


def _nothing(answer: object) -> Sequence[Any]:
    del answer
    return ()


class TracedMethod(Struct, frozen=True, kw_only=True):
    """Span description of a memory's method: its operation and result attributes.

    *records* returns the records found or written; a *single* one's id is recorded. *count*
    returns how many it found or tried to write, if that is not the number of *records*. *query*
    names the argument with the query text; *record* names the argument with the id of its record,
    which is recorded if the result is true.
    """

    operation: Operation
    records: Callable[[Any], Sequence[Any]] = _nothing
    count: Callable[[Any], int] | None = None
    single: bool = False
    query: str | None = None
    record: str | None = None


class Given(Struct, frozen=True):
    """Arguments of a call that its span may record.

    *sought* is the query text, *record* the id of a record.
    """

    sought: str | None = None
    record: str | None = None


class Face(Struct, frozen=True, kw_only=True):
    """Traced methods of a memory, and how a record is encoded if texts are traced.

    *opens* maps methods that return a memory to the traced methods of that.
    """

    acts: Mapping[str, TracedMethod]
    shown: Callable[[Any], Mapping[str, object]]
    opens: Mapping[str, "Face"] = field(default_factory=dict[str, "Face"])


class Spans(Struct, frozen=True, kw_only=True):
    """Create the spans of one memory, whose id is *store*."""

    tracer: "Tracer"
    store: Store
    face: Face
    content: bool
    remote: bool

    def around(self, act: TracedMethod, given: Given, call: Callable[[], T]) -> T:
        """Return the result of *call*, run within a span; await it there if needed."""
        store = self._store()
        span = self._begun(act, given, store)
        record = partial(self._record, span, act, given, found=store is not None)
        with self._within(span):
            result = call()
            if not inspect.isawaitable(result):
                record(result)
        if inspect.isawaitable(result):
            return cast("T", self._awaited(span, result, record))
        span.end()
        return result

    async def _awaited(
        self, span: "Span", awaitable: Awaitable[T], record: Callable[[object], None]
    ) -> T:
        with self._within(span):
            result = await awaitable
            record(result)
        span.end()
        return result

    def _store(self) -> str | None:
        """Return the store's id if known by now, else None; a failed lookup is ignored."""
        if not callable(self.store):
            return self.store
        with suppress(HoldfastError):
            return self.store()
        return None

    def _begun(self, act: TracedMethod, given: Given, store: str | None) -> "Span":
        from opentelemetry.trace import SpanKind

        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": act.operation,
            "gen_ai.provider.name": "holdfast",
        }
        if store is not None:
            attributes[_STORE] = store
        if self.content and given.sought:
            attributes["gen_ai.memory.query.text"] = given.sought
        kind = SpanKind.CLIENT if self.remote else SpanKind.INTERNAL
        return self.tracer.start_span(act.operation, kind=kind, attributes=attributes)

    @contextmanager
    def _within(self, span: "Span") -> Generator[None]:
        """Make *span* current; an exception ends it and is recorded by its class only.

        An error's message may contain a text.
        """
        from opentelemetry.trace import StatusCode, use_span

        with use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                span.end()
                raise

    def _record(
        self, span: "Span", act: TracedMethod, given: Given, result: object, *, found: bool
    ) -> None:
        """Record the attributes of *result*, and the store's id unless already *found*."""
        if not found and (store := self._store()) is not None:
            span.set_attribute(_STORE, store)
        records = act.records(result)
        count = len(records) if act.count is None else act.count(result)
        span.set_attribute("gen_ai.memory.record.count", count)
        if act.single and records:
            span.set_attribute("gen_ai.memory.record.id", records[0].id)
        if given.record and result:
            span.set_attribute("gen_ai.memory.record.id", given.record)
        if self.content and records:
            encoded = msgspec.json.encode([self.face.shown(each) for each in records])
            span.set_attribute("gen_ai.memory.records", encoded.decode())


class TracedMemory:
    """Proxy of a memory with a span around each traced method.

    All other attributes are the memory's own.
    """

    def __init__(self, of: Any, spans: Spans) -> None:
        self._of, self._spans = of, spans

    # So that `isinstance` sees the class of the memory.
    @property
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cast("type[Any]", type(self._of))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        face = self._spans.face
        if (act := face.acts.get(name)) is not None:
            return partial(self._call, act, found)
        if (opened := face.opens.get(name)) is not None:
            return partial(self._opened, opened, found)
        return found

    def _call(self, act: TracedMethod, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        names = (act.query if self._spans.content else None, act.record)
        given = Given()
        if any(names):
            bound = inspect.signature(call).bind_partial(*args, **kwargs).arguments
            values = [bound.get(name) if name else None for name in names]
            given = Given(*[each if isinstance(each, str) else None for each in values])
        return self._spans.around(act, given, partial(call, *args, **kwargs))

    def _opened(
        self, face: Face, call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "TracedMemory":
        return TracedMemory(call(*args, **kwargs), msgspec.structs.replace(self._spans, face=face))

    def __enter__(self) -> Self:
        self._of.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._of.__exit__(kind, error, trace)


def traced(of: T, face: Face, *, store: Store, content: bool, remote: bool = False) -> T:
    """Return *of* with spans around its calls, or *of* itself without a tracer.

    This is decided when a memory is opened: a tracer provider set later gets the spans of memories
    opened after it.
    """
    tracer = _tracer()
    if tracer is None:
        return of
    spans = Spans(tracer=tracer, store=store, face=face, content=content, remote=remote)
    return cast("T", TracedMemory(of, spans))


def traced_as(like: object, of: T) -> T:
    """Return *of* with the same spans as *like*, if it has any."""
    return cast("T", TracedMemory(of, spans)) if (spans := _spans_of(like)) is not None else of


def within(like: object, name: str, call: Callable[[], T], *, query: str | None = None) -> T:
    """Return the result of *call*, within a span of *like*'s method *name*.

    For a caller that implements the method in another way.
    """
    spans = _spans_of(like)
    return call() if spans is None else spans.around(spans.face.acts[name], Given(query), call)


def _spans_of(memory: object) -> Spans | None:
    found = vars(memory).get("_spans") if type(memory) is TracedMemory else None
    return cast("Spans | None", found)


def _tracer() -> "Tracer | None":
    """Return the tracer; None if no tracer provider is set."""
    if _API not in sys.modules:
        return None
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    return provider.get_tracer("holdfast")


def _found(entry: DurableEntry | None) -> Sequence[DurableEntry]:
    return () if entry is None else (entry,)


def _stored(entry: StoredEntry) -> Sequence[StoredEntry]:
    return (entry,)


def _tried(many: StoredMany) -> int:
    return len(many.stored) + len(many.refused)


def _files_read(report: ImportReport) -> int:
    stored = len(report.created) + len(report.replaced) + len(report.unchanged)
    return stored + len(report.rejected)


def _entry_attributes(entry: DurableEntry) -> Mapping[str, object]:
    metadata = {"key": entry.key, "category": entry.category, "tags": entry.tags}
    return {"id": entry.id, "content": entry.content, "metadata": metadata}


_MANY: Final = TracedMethod(
    operation="upsert_memory", records=lambda many: many.stored, count=_tried
)
_IN_A_RUN: Final = {
    "get": TracedMethod(operation="search_memory", records=_found, single=True, query="key"),
    "list": TracedMethod(operation="search_memory", records=lambda page: page.data, query="query"),
    "hydrate": TracedMethod(operation="search_memory", records=lambda hydration: hydration.entries),
    "set": TracedMethod(operation="upsert_memory", records=_stored, single=True),
    "set_many": _MANY,
    "forget": TracedMethod(operation="delete_memory", count=lambda _: 1),
}
DURABLE: Final = Face(
    acts={
        **_IN_A_RUN,
        "import_markdown": TracedMethod(operation="upsert_memory", count=_files_read),
        "promote": TracedMethod(operation="upsert_memory", records=_stored, single=True),
    },
    shown=_entry_attributes,
    opens={"run": Face(acts={**_IN_A_RUN, "capture": _MANY}, shown=_entry_attributes)},
)


def _stored_item(done: Remembered) -> Sequence[Item]:
    return () if done.stored is None else (done.stored,)


def _messages(done: Recorded) -> int:
    return len(done.turns) + len(done.skipped)


def _records_read(done: Imported) -> int:
    return done.items + done.turns + done.skipped + len(done.rejected)


def _forgotten(done: ForgetResult) -> int:
    return len(done.items) + len(done.turns)


def _cleared(done: Cleared) -> int:
    return done.items + done.turns


def _record_attributes(record: Recalled | Item | Turn) -> Mapping[str, object]:
    if isinstance(record, Recalled):
        found = record.item or record.turn
        return {} if found is None else {**_record_attributes(found), "score": record.score}
    if isinstance(record, Item):
        metadata: Mapping[str, object] = {
            "type": "item",
            "kind": record.kind,
            "importance": record.importance,
        }
    else:
        metadata = {"type": "turn", "role": record.role, "speaker": record.speaker}
    return {"id": record.id, "content": record.text, "metadata": metadata}


_RECORDED: Final = TracedMethod(
    operation="create_memory", records=lambda done: done.turns, count=_messages
)
_ACTS: Final = {
    "recall": TracedMethod(operation="search_memory", records=lambda found: found, query="query"),
    "remember": TracedMethod(
        operation="create_memory", records=_stored_item, count=lambda _: 1, single=True
    ),
    "record": _RECORDED,
    "remember_conversation": _RECORDED,
    "update": TracedMethod(operation="update_memory", records=lambda item: (item,), single=True),
    "import_": TracedMethod(operation="upsert_memory", count=_records_read),
    "forget": TracedMethod(operation="delete_memory", count=_forgotten, record="id"),
    "clear": TracedMethod(operation="delete_memory", count=_cleared),
}
LONGTERM: Final = Face(
    acts=_ACTS,
    shown=_record_attributes,
    opens={"by_tool": Face(acts=_ACTS, shown=_record_attributes)},
)
