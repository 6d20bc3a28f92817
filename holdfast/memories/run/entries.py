"""The in-memory table of entries of one run, within its limits.

Events are queued while the lock is held, so that they stay in order, and delivered after it.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from threading import Condition, Lock
from typing import Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.ground import json_values
from holdfast.ground.clock import Clock, milliseconds_of, nanoseconds_of
from holdfast.ground.errors import InvalidInput, LimitExceeded, PreconditionFailed, shortened
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.validation import is_list
from holdfast.memories.run.entry import (
    EntryFilter,
    RunEntry,
    RunLimits,
    checked_description,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
    value_json,
)
from holdfast.memories.run.keys import KINDS, Kind, checked, checked_kind, kind_of
from holdfast.memories.run.listeners import Listeners

ABSENT: Final = RunEntry(
    key="", kind="shared", value_json=b"", created_at=0, updated_at=0, version=0
)
"""Stands for a missing entry: version 0."""

_WRITES: Final = REGISTRY.counter(
    "run_writes_total", "Entries written to run memories.", kind=KINDS.values()
)
_count: Final = {kind: _WRITES.ticker(kind) for kind in KINDS.values()}


class EntryChanges:
    """The changes of a table since they were last taken, from its present entries on.

    Those of the keys *known* are no changes.
    """

    def __init__(self, table: "EntryTable", known: Collection[str] = ()) -> None:
        self._table = table
        written = (each for each in table.entries if each not in known)
        self.written: dict[str, None] = dict.fromkeys(written)
        self.removed: dict[str, None] = {}

    def take(self) -> tuple[list[RunEntry], list[str]]:
        """Return the entries written since, and the keys removed since; forget both.

        A key may be in both: it was removed and written again. New entries are in the order of
        their first write.
        """
        return self._table.taken(self)

    def close(self) -> None:
        """Record no further changes."""
        self._table.unfollow(self)


class EntryTable:
    """The entries by key in order of first write, with the order of last writes.

    `entries` may be read without the lock: it is changed in one step at a time.
    """

    def __init__(self, limits: RunLimits, clock: Clock, listeners: Listeners) -> None:
        self.limits, self._listeners = limits, listeners
        self._nanoseconds, self._now = nanoseconds_of(clock), milliseconds_of(clock)
        self.entries: dict[str, RunEntry] = {}
        self.size_bytes = 0
        # The number of each key's last write; sorted by it when `by_last_write` is called.
        self._written: dict[str, int] = {}
        self._number = itertools.count(1).__next__
        self._latest, self._in_order = 0, True
        self._lock = Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._changed = Condition(self._lock)
        self._waiting = 0
        self._followed: tuple[EntryChanges, ...] = ()

    def follow(self, known: Collection[str] = ()) -> EntryChanges:
        """Record the changes from now on; entries but *known* ones count as written."""
        with self._lock:
            changes = EntryChanges(self, known)
            self._followed = (*self._followed, changes)
        return changes

    def unfollow(self, changes: EntryChanges) -> None:
        """Record no further *changes*."""
        with self._lock:
            self._followed = tuple(each for each in self._followed if each is not changes)

    def taken(self, changes: EntryChanges) -> tuple[list[RunEntry], list[str]]:
        """Return the entries and the removed keys of *changes*, and empty it."""
        with self._lock:
            written, removed = changes.written, changes.removed
            changes.written, changes.removed = {}, {}
            return [self.entries[key] for key in written], list(removed)

    def put(  # noqa: PLR0917 - a call by name costs a tenth of a write
        self,
        key: str,
        value_json: bytes,
        source: str | None,
        title: str | UnsetType | None,
        description: str | UnsetType | None,
        created_at: int | None,
        failed: bool,
        expected_version: int | None,
    ) -> tuple[RunEntry, RunEntry]:
        """Write an entry under *key*; return it and the former one, which may be `ABSENT`."""
        size, limits, listeners = len(value_json), self.limits, self._listeners
        self._acquire()  # as `with` does, at half its cost
        try:
            depth = listeners.next_depth() if listeners.heard else 0
            before = self.entries.get(key, ABSENT)
            version = before.version
            if expected_version is not None:
                _check_version(key, before, expected_version)
            total = self.size_bytes + size - len(before.value_json)
            count = len(self.entries) + (not version)
            if size > limits.value_bytes or total > limits.total_bytes or count > limits.entries:
                raise self._full(key, size, count, total)
            now = self._nanoseconds() // 1_000_000
            if created_at is None:
                created_at = before.created_at if version else now
            entry = RunEntry(
                key=key,
                kind=before.kind if version else KINDS[key[: key.index(":")]],
                value_json=value_json,
                source=source,
                title=before.title if title is UNSET else title,
                description=before.description if description is UNSET else description,
                created_at=created_at,
                updated_at=now,
                version=version + 1,
                failed=failed,
            )
            self._written[key] = self._number()
            self._in_order = self._in_order and not version and now >= self._latest
            self.entries[key], self.size_bytes, self._latest = entry, total, now
            for changes in self._followed:
                changes.written[key] = None
            if depth:
                listeners.written(depth, entry, before)
            if self._waiting:
                self._changed.notify_all()
        finally:
            self._release()
        _count[entry.kind]()
        if depth:
            listeners.deliver()
        return entry, before

    def put_back(self, given: Sequence[RunEntry], *, replace: bool) -> None:
        """Restore *given*, all or none; with *replace* delete all others."""
        with self._lock:
            depth = self._depth()
            left = {} if replace else dict(self.entries)
            left.update((each.key, each) for each in given)
            self._check_room(left)
            gone = len(self.entries.keys() - left.keys())
            for changes in self._followed:
                if replace:
                    changes.removed |= dict.fromkeys(self.entries)
                    changes.written = {}
                changes.written |= dict.fromkeys(each.key for each in given)
            self.entries = left
            self.size_bytes = sum(len(each.value_json) for each in left.values())
            if replace:
                self._written = {}
            for each in given:
                self._written[each.key] = self._number()
            self._in_order = False
            if depth:
                self._listeners.restored(depth, given, gone, self._now())
            self._changed.notify_all()
        for each in given:
            _count[each.kind]()
        self._listeners.deliver()

    def remove(self, key: str) -> bool:
        """Remove the entry under *key*; return whether there was one."""
        with self._lock:
            depth = self._depth()
            found = self._take_out(key)
            if depth and found:
                self._listeners.deleted(depth, key, self._now())
        self._listeners.deliver()
        return found

    def remove_all(self, among: EntryFilter) -> int:
        """Remove the entries that match *among*; return how many."""
        with self._lock:
            depth = self._depth()
            gone = among.chosen(self.entries.values())
            for each in gone:
                self._take_out(each.key)
            if depth and gone:
                self._listeners.cleared(depth, len(gone), among.told(), self._now())
        self._listeners.deliver()
        return len(gone)

    def all(self) -> list[RunEntry]:
        """Return a snapshot of the entries, in the order of their first write."""
        with self._lock:
            return [*self.entries.values()]

    def by_last_write(self) -> tuple[list[RunEntry], dict[str, int]]:
        """Return all entries in order of last write, and the write number of each key."""
        with self._lock:
            entries = self.entries
            if not self._in_order:
                by_number = sorted(self._written.items(), key=itemgetter(1))
                by_number.sort(key=lambda each: entries[each[0]].updated_at)
                self._written, self._in_order = dict(by_number), True
            return [*map(entries.__getitem__, self._written)], dict(self._written)

    def wait_for(self, key: str, after_version: int, seconds: float | None) -> RunEntry | None:
        """Return the entry once its version exceeds *after_version*; None at the timeout."""

        def there() -> RunEntry | None:
            found = self.entries.get(key)
            return found if found is not None and found.version > after_version else None

        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(there, seconds) or None
            finally:
                self._waiting -= 1

    def note(self, tell: Callable[[int], None]) -> None:
        """Call *tell* with the present instant, in order with writes, to queue an event."""
        with self._lock:
            tell(self._now())
        self._listeners.deliver()

    def _depth(self) -> int:
        return self._listeners.next_depth() if self._listeners.heard else 0

    def _take_out(self, key: str) -> bool:
        found = self.entries.pop(key, None)
        if found is None:
            return False
        del self._written[key]
        for changes in self._followed:
            changes.written.pop(key, None)
            changes.removed[key] = None
        self.size_bytes -= len(found.value_json)
        return True

    def _check_room(self, left: dict[str, RunEntry]) -> None:
        """Raise `LimitExceeded` if the entries *left* exceed a limit."""
        limits = self.limits
        total = sum(len(each.value_json) for each in left.values())
        for each in left.values():
            if len(each.value_json) > limits.value_bytes:
                raise self._full(each.key, len(each.value_json), len(left), total)
        if total > limits.total_bytes or len(left) > limits.entries:
            raise self._full("", 0, len(left), total)

    def _full(self, key: str, size: int, count: int, total: int) -> LimitExceeded:
        """Return the error of the first limit that is exceeded."""
        limits = self.limits
        if size > limits.value_bytes:
            return over("value_bytes", limits.value_bytes, size, key)
        if count > limits.entries:
            return over("entries", limits.entries, count)
        return over("total_bytes", limits.total_bytes, total)


def _check_version(key: str, before: RunEntry, expected: int) -> None:
    if before.version != expected:
        current = before if before.version else None
        raise PreconditionFailed(key, expected=expected, current=current)


def over(limit: str, allowed: int, actual: int, key: str = "") -> LimitExceeded:
    """Return the error that *actual* exceeds *limit*, with the next step."""
    return LimitExceeded(
        limit,
        allowed=allowed,
        actual=actual,
        what=key,
        next=f"Store a reference or a summary instead, or raise RunLimits({limit}=…).",
    )


_NEEDED: Final = ("key", "value", "created_at", "updated_at", "version")
_KNOWN: Final = frozenset({*_NEEDED, "kind", "source", "title", "description", "failed"})


def checked_entries(given: object) -> list[RunEntry]:
    """Convert *given*, entries or objects as in `to_json`, to entries.

    `InvalidInput` has the wrong one's `index`, and its field.
    """
    if not is_list(given):
        kind = type(given).__name__
        raise InvalidInput(
            "entries",
            f"must be a list of entries, is {kind}",
            next="Give what snapshot() gave.",
        )
    return [_checked(each, index) for index, each in enumerate(given)]


def text_of(run_id: str, entries: Iterable[RunEntry]) -> str:
    """Return the JSON text of a memory, with the stored values."""
    wire = [each.to_wire() | {"value": msgspec.Raw(each.value_json)} for each in entries]
    return msgspec.json.encode({"run_id": run_id, "entries": wire}).decode()


def parsed(text: object) -> tuple[object, object]:
    """Return the run id and the entries in *text*, made by `text_of`, unchecked."""
    if not isinstance(text, str | bytes):
        raise _no_memory(f"must be text, is {type(text).__name__}")
    try:
        decoded = json_values.read(text, "entries")
    except InvalidInput as error:
        raise _no_memory(error.reason) from None
    if not isinstance(decoded, dict):
        raise _no_memory("must be an object")
    members = cast("dict[str, object]", decoded)
    if set(members) != {"run_id", "entries"}:
        raise _no_memory("must have run_id and entries, and nothing else")
    return members["run_id"], members["entries"]


def fitting_kind(kind: object, key: str) -> Kind:
    """Return the kind of *key*; raise `InvalidInput` if *kind* is another."""
    right = kind_of(key)
    if kind is not None and checked_kind(kind) != right:
        raise InvalidInput(
            "kind",
            f"the key {shortened(key)} is of the kind {right}, not {kind}",
            next="Leave kind out, or use the key's own namespace.",
        )
    return right


def _checked(given: object, index: int) -> RunEntry:
    try:
        if isinstance(given, RunEntry):
            try:
                return _of_object(given.to_wire())
            except (msgspec.DecodeError, TypeError):
                raise InvalidInput("value_json", "is not JSON") from None
        return _of_object(given)
    except InvalidInput as error:
        raise InvalidInput(
            f"entries[{index}].{error.field}",
            error.reason,
            limit=error.limit,
            given=error.given,
            index=index,
            next="Correct that entry; none was restored.",
        ) from None


def _of_object(given: object) -> RunEntry:
    if not isinstance(given, Mapping):
        raise InvalidInput("entry", f"must be an object, is {type(given).__name__}")
    members = cast("Mapping[str, object]", given)
    for name in _NEEDED:
        if name not in members:
            raise InvalidInput(name, "must be there")
    for name in members:
        if name not in _KNOWN:
            raise InvalidInput(str(name), f"is none of {', '.join(sorted(_KNOWN))}")
    key = checked(members["key"])
    failed = members.get("failed", False)
    if not isinstance(failed, bool):
        raise InvalidInput("failed", f"must be true or false, is {type(failed).__name__}")
    return RunEntry(
        key=key,
        kind=fitting_kind(members.get("kind"), key),
        value_json=value_json(members["value"]),
        source=checked_source(members.get("source")),
        title=checked_title(members.get("title")),
        description=checked_description(members.get("description")),
        created_at=checked_time("created_at", members["created_at"]),
        updated_at=checked_time("updated_at", members["updated_at"]),
        version=checked_version("version", members["version"], least=1),
        failed=failed,
    )


def _no_memory(reason: str) -> InvalidInput:
    return InvalidInput("text", reason, next="Give what to_json() made.")
