"""The locked table of cells behind a network state.

There are two locks, taken in this order. A writer holds `_writing`; an update holds it while it
calls its function, so that no write comes between. `_gate` is held for the moment of a read or a
change, and during a whole batch: so readers wait for batches alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from threading import RLock, local
from typing import (
    Any,
    Literal,
    NotRequired,
    Protocol,
    Required,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec import Struct

from holdfast.ground import json_values
from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput, NotFound, PreconditionFailed
from holdfast.ground.json_values import JSON
from holdfast.ground.validation import check_chain
from holdfast.memories.state.message import Message, StateLimits, checked_key, over, to_milliseconds
from holdfast.memories.state.result import InferenceResult, canonical_of, size_of
from holdfast.memories.state.sources import Earlier, after, in_order

What = Literal["value", "deleted", "message", "result", "results", "thread_id"]


class WriteOrigin(Struct, frozen=True, kw_only=True):
    """The agent, run and tool call of a write; all None outside a run."""

    agent: str | None = None
    run_id: str | None = None
    tool: str | None = None
    call_id: str | None = None


OUTSIDE = WriteOrigin()


class Cell(Struct, frozen=True, gc=False):
    """One value as JSON with its version, times and origin.

    Each write makes one, with positional arguments.
    """

    data: bytes
    version: int
    created_at: datetime
    updated_at: datetime
    origin: WriteOrigin


class ValueInfo(Struct, frozen=True, kw_only=True):
    """A value with its version, times, size and origin.

    `version` is the state's revision of the write, so no two writes share one. `source` is the
    agent of the run that wrote it; None for a write from outside.
    """

    key: str
    value: JSON
    kind: Literal["value"] = "value"
    source: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    size_bytes: int
    agent: str | None
    run_id: str | None
    tool: str | None
    call_id: str | None

    def __repr__(self) -> str:
        return json_values.repr_with_value(self, "value", msgspec.json.encode(self.value))


class StateChange(Struct, frozen=True, kw_only=True):
    """One committed write with its origin; never the value itself.

    `key` is that of a value, or the id of a result. The `revision` is a value's new version.
    """

    what: What
    revision: int
    key: str | None
    origin: WriteOrigin


def info_of(key: str, cell: Cell) -> ValueInfo:
    """Return the facts about *cell*, stored under *key*, with a copy of its value."""
    origin = cell.origin
    return ValueInfo(
        key=key,
        value=json_values.decode(cell.data),
        source=origin.agent,
        version=cell.version,
        created_at=to_milliseconds("created_at", cell.created_at),
        updated_at=to_milliseconds("updated_at", cell.updated_at),
        size_bytes=len(cell.data),
        **msgspec.structs.asdict(origin),
    )


E_co = TypeVar("E_co", covariant=True)

NAMESPACE = "shared:"
"""Prefix of keys of run memory that all agents of the run share."""


class DurableSource(Protocol):
    """A durable entry: key and text."""

    @property
    def key(self) -> str:
        """Its key."""
        ...

    @property
    def content(self) -> str:
        """Its text."""
        ...


class Hydrated(Protocol):
    """A hydration: the entries an agent gets at a run's start, and those left out."""

    @property
    def entries(self) -> Sequence[DurableSource]:
        """The selected entries."""
        ...

    @property
    def omitted(self) -> Sequence[object]:
        """The entries left out."""
        ...


class Shares(Protocol[E_co]):
    """A run memory that accepts values."""

    def set(self, key: str, value: object, /, *, source: str | None = None) -> E_co:
        """Write *value* under *key* as of *source*."""
        ...


def share(found: ValueInfo | None, key: str, memory: Shares[E_co], as_key: str | None) -> E_co:
    """Set the value *found* under *key* in *memory*, for all its agents.

    Raise `NotFound` if *found* is None.

    Its source is the agent that wrote it, or `network`. The key is its own unless *as_key* is
    given.
    """
    if found is None:
        raise NotFound("value", key, next="List the keys of the state.")
    name = (as_key or key).removeprefix(NAMESPACE)
    return memory.set(f"{NAMESPACE}{name}", found.value, source=found.source or "network")


class Schema:
    """Types of values by key; a key without a type may hold anything."""

    def __init__(self, given: object) -> None:
        self.given = given
        self._types = {key: _bare(each) for key, each in _hints(given).items()}
        try:
            self._decoders = {key: msgspec.json.Decoder(each) for key, each in self._types.items()}
        except TypeError as error:
            raise InvalidInput("schema", f"has a type that is not JSON: {error}") from error

    def check(self, key: str, data: bytes) -> None:
        """Raise `InvalidInput` if *data*, the JSON of a value, is not of *key*'s type."""
        decoder = self._decoders.get(key)
        if decoder is None:
            return
        try:
            decoder.decode(data)
        except msgspec.ValidationError as error:
            hint = self._types[key]
            wanted = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
            raise InvalidInput("value", f'kv["{key}"] must be {wanted}: {error}') from None


def schema_of(given: object) -> Schema | None:
    """Return the schema of *given*, a class with typed fields; None for None."""
    return None if given is None else Schema(given)


def _hints(given: object) -> Mapping[str, Any]:
    if isinstance(given, type):
        kind = cast("type[object]", given)
        if issubclass(kind, msgspec.Struct):
            return {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
        if is_dataclass(kind):
            hints = get_type_hints(kind, include_extras=True)
            return {each.name: hints[each.name] for each in fields(kind)}
        if is_typeddict(kind):
            return get_type_hints(kind, include_extras=True)
    raise InvalidInput("schema", "must be a TypedDict, a dataclass or a msgspec.Struct")


def _bare(hint: Any) -> Any:
    """Return *hint* without `Required` or `NotRequired`."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


_MOST_INT = 2**63 - 1


def encoded_value(key: str, value: object, limits: StateLimits, schema: Schema | None) -> bytes:
    """Encode *value*, which will be stored under *key*, as JSON.

    Raise `InvalidInput` if it is not JSON or breaks the *schema*, `LimitExceeded` if it is too
    large.
    """
    data = json_values.encode_plain(value, limits.depth, _MOST_INT)
    if data is None:
        root = f'kv["{key}"]'
        data = json_values.encode(
            value, root=root, depth=limits.depth, field="value", largest_int=_MOST_INT
        )
    if len(data) > limits.value_bytes:
        raise over("value_bytes", allowed=limits.value_bytes, actual=len(data), key=key)
    if schema is not None:
        schema.check(key, data)
    return data


def check_room(key: str, keys: int, total_bytes: int, limits: StateLimits) -> None:
    """Raise `LimitExceeded` if *key* would make too many keys or bytes."""
    if keys > limits.keys:
        raise over("keys", allowed=limits.keys, actual=keys, key=key)
    if total_bytes > limits.total_bytes:
        raise over("total_bytes", allowed=limits.total_bytes, actual=total_bytes, key=key)


def fitting(result: InferenceResult, limits: StateLimits) -> InferenceResult:
    """Return *result*; raise `LimitExceeded` if its JSON is too large."""
    if size_of(result) > limits.result_bytes:
        check_size(result, len(canonical_of(result)), limits)
    return result


def check_size(result: InferenceResult, size: int, limits: StateLimits) -> None:
    """Raise `LimitExceeded` if *size*, the JSON bytes of *result*, is too large."""
    if size > limits.result_bytes:
        raise over("result_bytes", allowed=limits.result_bytes, actual=size, key=result.id)


_log = logging.getLogger(__name__)

Listener = Callable[[StateChange], object]


class StateContents(Struct, kw_only=True):
    """The contents of a state at one moment.

    The cells, messages and results never change. `newest` is the source of the next result.
    """

    cells: dict[str, Cell]
    messages: list[Message]
    results: list[InferenceResult]
    newest: Earlier | None
    thread_id: str | None
    revision: int
    total_bytes: int

    def copied(self) -> "StateContents":
        """Return a copy that is independent of later writes."""
        return msgspec.structs.replace(
            self, cells={**self.cells}, messages=[*self.messages], results=[*self.results]
        )


def nothing() -> StateContents:
    """Return the contents of a new state."""
    return StateContents(
        cells={},
        messages=[],
        results=[],
        newest=None,
        thread_id=None,
        revision=0,
        total_bytes=0,
    )


class _Delivery(local):
    """The changes that a thread delivers to subscribers.

    Each is queued with the length of its chain of writes; `length` is that of the change at work.
    """

    queue: "deque[tuple[int, StateChange]] | None" = None
    length: int = 0


class CellTable:
    """The cells, messages and results of one state, shared by all handles to it."""

    def __init__(
        self, held: StateContents, *, limits: StateLimits, schema: Schema | None, clock: Clock
    ) -> None:
        self._held = held
        self.limits, self.schema, self.clock = limits, schema, clock
        self.hydration: Hydrated | None = None
        self.subscriber_errors = 0
        self._writing, self._gate = RLock(), RLock()
        self._scopes, self._batches = 0, 0
        self._before: StateContents | None = None
        self._pending: list[StateChange] = []
        self._listeners: tuple[Listener, ...] = ()
        self._delivery = _Delivery()

    def cell(self, key: str) -> Cell | None:
        """Return the cell under *key*, or None."""
        with self._gate:
            return self._held.cells.get(key)

    def cells(self) -> dict[str, Cell]:
        """Return a snapshot of all cells by key, in the order of the first write."""
        with self._gate:
            return dict(self._held.cells)

    def has(self, key: str) -> bool:
        """Check whether there is a cell under *key*."""
        with self._gate:
            return key in self._held.cells

    def count(self) -> int:
        """Return the number of cells."""
        with self._gate:
            return len(self._held.cells)

    def messages(self) -> list[Message]:
        """Return the opening."""
        with self._gate:
            return list(self._held.messages)

    def results(self) -> list[InferenceResult]:
        """Return the results, oldest first."""
        with self._gate:
            return list(self._held.results)

    @property
    def thread_id(self) -> str | None:
        """The thread that the run belongs to."""
        with self._gate:
            return self._held.thread_id

    @property
    def revision(self) -> int:
        """Number of committed writes."""
        with self._gate:
            return self._held.revision

    def cloned(self) -> "CellTable":
        """Return a copy of the table, without listeners."""
        store = CellTable(self.held(), limits=self.limits, schema=self.schema, clock=self.clock)
        store.hydration = self.hydration
        return store

    def held(self) -> StateContents:
        """Return a snapshot of the contents."""
        with self._gate:
            return self._held.copied()

    def put(self, key: str, data: bytes, origin: WriteOrigin, expected: int | None = None) -> int:
        """Write *data* under *key* and return the new version."""
        now = self.clock.now()
        with self._writing, self._gate:
            held = self._held
            old = held.cells.get(key)
            if expected is not None:
                _check_version(key, old, expected)
            total = held.total_bytes + len(data)
            if old is None:
                key, created = checked_key(key, self.limits), now
                check_room(key, len(held.cells) + 1, total, self.limits)
            else:
                total, created = total - len(old.data), old.created_at
                if total > self.limits.total_bytes:
                    check_room(key, len(held.cells), total, self.limits)
            version = self._begin()
            held.cells[key] = Cell(data, version, created, now, origin)
            held.total_bytes = total
            changes = self._note("value", key, origin) if self._listeners else ()
        if changes:
            self._publish(changes)
        return version

    def drop(self, key: str, origin: WriteOrigin, expected: int | None = None) -> bool:
        """Delete the cell under *key*; return whether there was one."""
        with self._writing, self._gate:
            old = self._held.cells.get(key)
            if expected is not None:
                _check_version(key, old, expected)
            if old is None:
                return False
            self._begin()
            del self._held.cells[key]
            self._held.total_bytes -= len(old.data)
            changes = self._note("deleted", key, origin)
        self._publish(changes)
        return True

    def say(self, message: Message, origin: WriteOrigin) -> None:
        """Add *message* to the opening; InvalidInput once there is a result."""
        with self._writing, self._gate:
            if self._held.results:
                raise InvalidInput("message", "must come before the first result")
            self._begin()
            self._held.messages.append(message)
            changes = self._note("message", None, origin)
        self._publish(changes)

    def append(self, result: InferenceResult, origin: WriteOrigin) -> None:
        """Add *result* after all others."""
        with self._writing, self._gate:
            self._begin()
            held = self._held
            given, held.newest = after(held.newest, result)
            held.results.append(given)
            changes = self._note("result", result.id, origin)
        self._publish(changes)

    def replace(self, results: Iterable[InferenceResult], origin: WriteOrigin) -> None:
        """Replace all results with *results*."""
        with self._writing, self._gate:
            self._begin()
            self._held.results, self._held.newest = in_order(results)
            changes = self._note("results", None, origin)
        self._publish(changes)

    def join(self, thread_id: str, origin: WriteOrigin) -> None:
        """Set the run's thread to *thread_id*; `InvalidInput` if it has another."""
        with self._writing, self._gate:
            if self._held.thread_id == thread_id:
                return
            if self._held.thread_id is not None:
                raise InvalidInput("thread_id", "is set already", given=self._held.thread_id)
            self._begin()
            self._held.thread_id = thread_id
            changes = self._note("thread_id", None, origin)
        self._publish(changes)

    @contextmanager
    def alone(self) -> Generator[None]:
        """Exclude other writers while the block runs; publish its writes after it."""
        changes: list[StateChange] = []
        try:
            with self._writing:
                self._scopes += 1
                try:
                    yield
                finally:
                    self._scopes -= 1
                    if not self._scopes:
                        changes, self._pending = self._pending, changes
        finally:
            self._publish(changes)

    @contextmanager
    def together(self) -> Generator[None]:
        """Commit the block's writes at its end; roll back if the outermost block raises."""
        with self.alone(), self._gate:
            unpublished = len(self._pending)
            self._batches += 1
            try:
                yield
            except BaseException:
                if self._batches == 1 and self._before is not None:
                    self._held = self._before
                    del self._pending[unpublished:]
                raise
            finally:
                self._batches -= 1
                if not self._batches:
                    self._before = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with each change after its commit; return a function to stop."""

        def call(change: StateChange) -> object:
            return listener(change)

        def off() -> None:
            with self._gate:
                self._listeners = tuple(each for each in self._listeners if each is not call)

        with self._gate:
            self._listeners = (*self._listeners, call)
        return off

    def _begin(self) -> int:
        """Start a write and return its revision.

        Raise LimitExceeded at the end of a chain of writes made by subscribers.
        """
        check_chain(self._delivery.length + 1)
        if self._batches and self._before is None:
            self._before = self._held.copied()
        self._held.revision += 1
        return self._held.revision

    def _note(self, what: What, key: str | None, origin: WriteOrigin) -> Sequence[StateChange]:
        """Return the changes to publish after the locks are released.

        That is the last write, or nothing if it is queued or has no listener.
        """
        if not self._listeners:
            return ()
        change = StateChange(what=what, revision=self._held.revision, key=key, origin=origin)
        if not self._scopes:
            return (change,)
        self._pending.append(change)
        return ()

    def _publish(self, changes: Sequence[StateChange]) -> None:
        """Deliver *changes*; what a subscriber writes follows when it has returned."""
        if not changes:
            return
        delivery = self._delivery
        chained = ((delivery.length + 1, change) for change in changes)
        if delivery.queue is not None:
            delivery.queue.extend(chained)
            return
        queue = delivery.queue = deque(chained)
        try:
            while queue:
                delivery.length, change = queue.popleft()
                self._notify(change)
        finally:
            delivery.queue, delivery.length = None, 0

    def _notify(self, change: StateChange) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - a listener's error is counted
                # The write is committed, also if a listener fails.
                with self._gate:
                    self.subscriber_errors += 1
                _log.exception("a subscriber to a network state raised")


def _check_version(key: str, old: Cell | None, expected: object) -> None:
    """Raise `PreconditionFailed` unless the cell has the version *expected*.

    The version 0 stands for no cell.
    """
    if type(expected) is not int or expected < 0:
        raise InvalidInput("expected_version", "must be a whole number from 0", given=expected)
    if expected != (0 if old is None else old.version):
        current = None if old is None else info_of(key, old)
        raise PreconditionFailed(key, expected=expected, current=current)
