"""RunMemory: entries that the steps, tasks and agents of one run share."""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    LimitExceeded,
    PreconditionFailed,
    WaitTimeout,
)
from holdfast.ground.events import EventBus
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON, decode, encode_plain
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import checked_name
from holdfast.memories.run import keys as run_keys
from holdfast.memories.run.entries import (
    EntryChanges,
    EntryTable,
    checked_entries,
    fitting_kind,
    over,
    parsed,
    text_of,
)
from holdfast.memories.run.entry import (
    UNLESS_SAID,
    VALUE_DEPTH,
    OneOrMany,
    RunEntry,
    RunLimits,
    checked_description,
    checked_seconds,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
    filter_of,
    value_json,
)
from holdfast.memories.run.listeners import EntryListener, EventListener, Listeners

_READS: Final = REGISTRY.counter("run_reads_total", "Entries that models read.")
REFUSED: Final = REGISTRY.counter(
    "run_refused_total",
    "Writes refused.",
    reason=(
        "invalid_input",
        "limit_exceeded",
        "precondition_failed",
        "superseded",
        "ended",
        "taken",
    ),
)
"""Refused writes of entries, and of runs that another owner has or that are over."""


VALUE_CHARS: Final = 4_000
"""Characters of a value in a prompt block."""

_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(entries: Iterable[RunEntry]) -> str:
    """Render *entries* as a prompt block, the oldest first; "" for none."""
    parts = [_part(each) for each in sorted(entries, key=attrgetter("created_at"))]
    return "\n".join(("<run_memory>", *parts, "</run_memory>")) if parts else ""


def one_line(text: str) -> str:
    """Return *text* with a space for each run of white space and line breaks."""
    return " ".join(text.split())


def _part(entry: RunEntry) -> str:
    key = _escaped(entry.key)
    title = _escaped(one_line(entry.title or "")) or key
    lines = [f"## {entry.kind}: {title} ({key})"]
    if entry.description:
        lines.append(_escaped(entry.description))
    text = _text(entry)
    lines.append(_escaped(text[:VALUE_CHARS]))
    if (more := len(text) - VALUE_CHARS) > 0:
        lines.append(f"[… {more:,} more characters: read {key}]")
    return "\n".join(lines)


def _text(entry: RunEntry) -> str:
    value = entry.value
    if isinstance(value, str):
        return value
    return msgspec.json.format(entry.value_json, indent=2).decode()


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)


Entries: TypeAlias = list[RunEntry]
Numbers: TypeAlias = dict[str, int]

_ids: Final = Ids()


class Published(Struct, frozen=True):
    """An entry that was written, and the one it replaced, if there was one."""

    entry: RunEntry
    replaced: RunEntry | None


class RunMemory:
    """Entries that the agents, tasks and steps of one run share, by namespaced key.

    Values are JSON: encoded at each write, copied at each read. Threads and tasks may use it at
    once.

    >>> from holdfast import RunMemory, keys
    >>> memory = RunMemory()
    >>> memory.set(keys.shared("owner"), {"name": "Ada"}).version
    1
    >>> memory.get_value("shared:owner")
    {'name': 'Ada'}
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        clock: Clock | None = None,
        limits: RunLimits = UNLESS_SAID,
        bus: EventBus | None = None,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self.run_id = (
            _ids.new("run", to_microseconds(self._clock.now()))
            if run_id is None
            else checked_name("run_id", run_id)
        )
        self._bus = bus
        self._listeners = Listeners(self.run_id)
        self._kept = EntryTable(limits, self._clock, self._listeners)
        if bus is not None:
            publish = bus.publish
            self._listeners.to_events(lambda event: publish(event.notice()))

    @property
    def limits(self) -> RunLimits:
        """Its limits."""
        return self._kept.limits

    @property
    def size_bytes(self) -> int:
        """The size of all values: bytes of their compact JSON."""
        return self._kept.size_bytes

    def set(
        self,
        key: str,
        value: object,
        *,
        kind: str | None = None,
        source: str | None = None,
        title: str | UnsetType | None = UNSET,
        description: str | UnsetType | None = UNSET,
        created_at: int | None = None,
        expected_version: int | None = None,
        failed: bool = False,
    ) -> RunEntry:
        """Write *value* under *key*, replacing the former entry.

        Title, description and the time of the first write stay unless given; the source never
        stays. With *expected_version* (0: the key is absent), raise `PreconditionFailed` if the
        version is another. `InvalidInput` names the place in the value; `LimitExceeded` names the
        limit.
        """
        try:
            # A stored key was validated at its first write.
            if type(key) is not str or key not in self._kept.entries:
                key = run_keys.checked(key)
            if kind is not None:
                fitting_kind(kind, key)
            taken = encode_plain(value, VALUE_DEPTH) or value_json(value)
            if source is not None:
                source = checked_source(source)
            if title is not UNSET:
                title = checked_title(title)
            if description is not UNSET:
                description = checked_description(description)
            if created_at is not None:
                created_at = checked_time("created_at", created_at)
            if expected_version is not None:
                checked_version("expected_version", expected_version)
            entry, _ = self._kept.put(
                key, taken, source, title, description, created_at, failed, expected_version
            )
        except HoldfastError as refusal:
            self._note_refusal(key, refusal)
            raise
        return entry

    def publish(
        self,
        name: str,
        value: object,
        *,
        source: str,
        title: str,
        description: str | UnsetType = UNSET,
        expected_version: int | None = None,
    ) -> Published:
        """Write *value* for a model, below `shared:` and within `limits.tool_value_bytes`."""
        key = name
        try:
            key = run_keys.shared(name)
            taken = value_json(value)
            if len(taken) > self.limits.tool_value_bytes:
                raise over("tool_value_bytes", self.limits.tool_value_bytes, len(taken), key)
            entry, before = self._kept.put(
                key,
                taken,
                checked_source(source),
                checked_title(title),
                description if description is UNSET else checked_description(description),
                None,
                False,
                expected_version,
            )
        except HoldfastError as refusal:
            self._note_refusal(key, refusal)
            raise
        return Published(entry, before if before.version else None)

    def get(self, key: str) -> RunEntry | None:
        """Return the entry under *key*, or None."""
        try:
            return self._kept.entries[key]
        except (KeyError, TypeError):
            return self._kept.entries.get(run_keys.checked(key))

    def get_value(self, key: str, default: JSON = None) -> JSON:
        """Return a copy of the value under *key*, which may be None.

        Without an entry return *default*.
        """
        try:
            return decode(self._kept.entries[key].value_json)
        except (KeyError, TypeError):
            found = self._kept.entries.get(run_keys.checked(key))
            return default if found is None else found.value

    def has(self, key: str) -> bool:
        """Check whether there is an entry under *key*."""
        return self.get(key) is not None

    def __contains__(self, key: object) -> bool:
        return run_keys.checked(key) in self._kept.entries

    def __len__(self) -> int:
        return len(self._kept.entries)

    def list(
        self,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
    ) -> Entries:
        """Return the entries that meet all conditions, in order of first write."""
        return filter_of(kind, keys, key_prefix, sources).chosen(self.snapshot())

    def snapshot(self) -> Entries:
        """Return a snapshot of all entries, in the order of their first write."""
        return self._kept.all()

    def by_last_write(self) -> tuple[Entries, Numbers]:
        """Return all entries in order of last write, and the write number of each key."""
        return self._kept.by_last_write()

    def changes(self, known: Collection[str] = ()) -> EntryChanges:
        """Record the changes from now on; entries but *known* ones count as written."""
        return self._kept.follow(known)

    def restore(self, entries: Iterable[object], *, replace: bool = False) -> int:
        """Restore *entries* with their times and versions; return how many.

        They are entries, or objects as in `to_json`. If one is wrong, none is restored. With
        *replace* all other entries are removed.
        """
        try:
            given = checked_entries(entries)
            self._kept.put_back(given, replace=replace)
        except HoldfastError as refusal:
            REFUSED.add(_reason(refusal))
            raise
        return len(given)

    def delete(self, key: str) -> bool:
        """Delete the entry under *key*; return whether there was one."""
        return self._kept.remove(run_keys.checked(key))

    def clear(
        self,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
    ) -> int:
        """Delete the entries that meet all conditions; return how many."""
        return self._kept.remove_all(filter_of(kind, keys, key_prefix, sources))

    def subscribe(self, listener: EntryListener) -> Callable[[], None]:
        """Call *listener* with each written or restored entry; return a function to stop.

        It runs after the entry is stored, one call at a time, in the order of the writes. One that
        raises is logged and counted. InvalidInput for an async function.
        """
        return self._listeners.to_entries(listener)

    def on_event(self, listener: EventListener) -> Callable[[], None]:
        """Call *listener* with each event, reads included; return a function to stop."""
        return self._listeners.to_events(listener)

    def wait_for(
        self, key: str, *, after_version: int = 0, timeout: float | None = None
    ) -> RunEntry:
        """Return the entry under *key* once its version is above *after_version*.

        Blocks the thread for at most *timeout* seconds; then WaitTimeout.
        """
        key = run_keys.checked(key)
        checked_version("after_version", after_version)
        seconds = None if timeout is None else checked_seconds(timeout)
        found = self._kept.wait_for(key, after_version, seconds)
        if found is None:
            raise WaitTimeout(key, seconds or 0)
        return found

    def copy(
        self,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
    ) -> "RunMemory":
        """Return a memory of another run, empty or with the entries of the filter."""
        twin = RunMemory(clock=self._clock, limits=self.limits, bus=self._bus)
        if any(each is not None for each in (kind, keys, key_prefix, sources)):
            twin.restore(self.list(kind, keys, key_prefix, sources))
        return twin

    def render(
        self,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
    ) -> str:
        """Render the entries that meet all conditions as one prompt block, or ""."""
        return render(self.list(kind, keys, key_prefix, sources))

    def to_json(self) -> str:
        """Return the run's id and all entries as JSON text."""
        return text_of(self.run_id, self.snapshot())

    @classmethod
    def from_json(
        cls, text: str, *, clock: Clock | None = None, limits: RunLimits = UNLESS_SAID
    ) -> "RunMemory":
        """Return the memory in *text* from `to_json`; raise `InvalidInput` for other text."""
        run_id, entries = parsed(text)
        memory = cls(run_id=checked_name("run_id", run_id), clock=clock, limits=limits)
        memory.restore(cast("Iterable[object]", entries))
        return memory

    def note_read(self, key: str, *, reader: str, part: bool) -> None:
        """Count and publish that the model *reader* read the value of *key*, or a part."""
        _READS.add()
        if self._listeners.events_heard:
            self._kept.note(lambda at: self._listeners.read(key, reader, part=part, at=at))

    def _note_refusal(self, key: object, refusal: HoldfastError) -> None:
        """Count and publish a refused write.

        Without a valid key no event is published.
        """
        REFUSED.add(_reason(refusal))
        about_key = isinstance(refusal, InvalidInput) and refusal.field == "key"
        if isinstance(key, str) and not about_key and self._listeners.events_heard:
            self._kept.note(lambda at: self._listeners.refused(key, refusal, at))


def _reason(refusal: HoldfastError) -> str:
    if isinstance(refusal, LimitExceeded):
        return "limit_exceeded"
    return "precondition_failed" if isinstance(refusal, PreconditionFailed) else "invalid_input"
