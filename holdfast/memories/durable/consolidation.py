"""Consolidate an agent's durable entries: equal and near-equal ones, and old ones.

An entry that goes is evicted: its content stays in the log, from which undoing restores it. A
change holds keys and numbers, no contents.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.errors import NotFound
from holdfast.ground.events import Event, Fact
from holdfast.ground.trust import RANKS
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.history import change_at, entries_then
from holdfast.memories.durable.records import CORE, DAILY
from holdfast.memories.durable.rows import EntryLocation, EntryRow, tags_of, tags_text
from holdfast.memories.durable.transaction import AgentTransaction, event_of
from holdfast.memories.durable.validation import MOST_TAGS
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.consolidation.jobs import (
    ChangeColumns,
    JobPlan,
    JobRow,
    ProposedRow,
)
from holdfast.memories.longterm.consolidation.records import (
    ChangeState,
    JobRequest,
    ProposedChange,
    TextChange,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ALIKE, ChangeOp, names_agree
from holdfast.memories.longterm.recall.dedupe import ComparedText, said, similarity

UNWRITTEN: Final = timedelta(days=365)
"""Age of the last write from which on an entry that is not core is proposed to expire."""
_MICROSECOND: Final = timedelta(microseconds=1)
_SOURCE: Final = "consolidation"


class AgentChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a change makes of entries: keys that go, tags of the one that stays."""

    keep: str | None = None
    gone: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class _SeenEntry(Struct, frozen=True, array_like=True):
    """An entry as a job saw it."""

    key: str
    seq: int


class _TouchedEntry(Struct, frozen=True, kw_only=True):
    """An entry before an application, without content, and the number since."""

    before: EntryRow
    seq: int


class _Application(Struct, frozen=True, kw_only=True):
    entries: tuple[_TouchedEntry, ...] = ()


_seen = msgspec.json.Decoder(tuple[_SeenEntry, ...])
_changes = msgspec.json.Decoder(AgentChange)
_application = msgspec.json.Decoder(_Application)


class AgentInputs:
    """The entries of an agent at one moment; see `JobInputs`.

    Those of runs and of the workspace are left out, and held ones, and those from outside.
    """

    def __init__(self, rows: Iterable[EntryRow]) -> None:
        self.rows = {row.key: row for row in rows if _is_input(row)}

    def checked(self, task: JobRequest) -> JobRequest:
        """Return *task* as it is."""
        return task

    def plan(self, task: JobRequest, *, model: bool) -> JobPlan:
        """Return the changes of rules; nothing is left for a model."""
        del model
        merges = [*self._merges()]
        taken = {seen.key for each in merges for seen in _seen.decode(each["before"])}
        oldest = task.at - UNWRITTEN // _MICROSECOND
        old = [
            row
            for row in self.rows.values()
            if row.key not in taken
            and row.category not in {CORE, DAILY}
            and row.updated_at < oldest
        ]
        expired = [
            _columns("expire", [row], AgentChange(gone=(row.key,)), "Not written for a year.")
            for row in old
        ]
        return JobPlan(changes=(*merges, *expired), clusters=())

    def request(self, ids: Sequence[str], task: JobRequest) -> ExtractionRequest | None:
        """Return None: rules alone consolidate entries."""
        del ids, task

    def changes(self, ids: Sequence[str], answer: str) -> tuple[ChangeColumns, ...]:
        """Return nothing: there is no cluster."""
        del ids, answer
        return ()

    def _merges(self) -> Iterable[ChangeColumns]:
        """Merge entries of one category that say the same.

        The one of the highest tier stays, then the one written last.
        """
        groups: list[tuple[EntryRow, ComparedText, list[EntryRow]]] = []
        for row in sorted(self.rows.values(), key=_preferred, reverse=True):
            text = said(row.content)
            same = (
                others for best, known, others in groups if _says_the_same(best, known, row, text)
            )
            found = next(same, None)
            if found is None:
                groups.append((row, text, []))
            else:
                found.append(row)
        for best, _, others in groups:
            if others:
                every = [best, *others]
                tags = sorted({tag for row in every for tag in tags_of(row.tags)})[:MOST_TAGS]
                after = AgentChange(
                    keep=best.key, gone=tuple(row.key for row in others), tags=tuple(tags)
                )
                yield _columns("merge", every, after, "They say the same.")


def _is_input(row: EntryRow) -> bool:
    return bool(row.agent) and not row.run_id and row.held is None and row.tier != "outside"


def _preferred(row: EntryRow) -> tuple[int, int]:
    return RANKS[row.tier], row.seq


def _says_the_same(best: EntryRow, known: ComparedText, row: EntryRow, text: ComparedText) -> bool:
    if best.category != row.category:
        return False
    if best.content == row.content:
        return True
    return (
        bool(text.terms)
        and known.numbers == text.numbers
        and known.negations == text.negations
        and similarity(known.terms, text.terms) >= ALIKE
        and names_agree(best.content, row.content)
    )


def _columns(
    op: ChangeOp, rows: Sequence[EntryRow], after: AgentChange, reason: str
) -> ChangeColumns:
    return {
        "op": op,
        "before": encoded([_SeenEntry(row.key, row.seq) for row in rows]),
        "after": encoded(after),
        "reason": reason,
        "evidence": "[]",
    }


class AgentMemory(Struct, frozen=True):
    """The entries of an agent; see `JobMemory`."""

    context: AgentContext

    @property
    def engine(self) -> Engine:
        """The engine, scoped to the agent."""
        return self.context.engine

    def now(self) -> int:
        """Return the current time in microseconds since 1970."""
        return self.context.now()

    def moment(self) -> int:
        """Return the moment of a snapshot."""
        return self.context.now()

    def writes_since(self, base: int) -> int:
        """Return how many entries were written after the number *base*."""
        rows = self.engine.all(EntryRow, self.context.sql.all_entries, run_id="", now=self.now())
        return sum(row.seq > base for row in rows if row.agent)

    def event(self, what: str, data: Mapping[str, Fact]) -> Event:
        """Return the event *what* of the workspace."""
        return replace(event_of(self.context, "", data), type=what)

    def snapshot(self, reader: Reader, at: int) -> tuple[int, AgentInputs]:
        """Return the number of the newest entry, and the entries of that moment."""
        inputs = AgentInputs(entries_then(self.context, reader, at))
        return max((row.seq for row in inputs.rows.values()), default=0), inputs

    def shown(
        self, reader: Reader, row: JobRow, rows: Sequence[ProposedRow]
    ) -> tuple[ProposedChange, ...]:
        """Return changes with the contents that the job saw, as far as they are stored."""
        there = self.snapshot(reader, row.task.at)[1].rows if rows else {}
        now = self._now(reader, rows)
        changes: list[ProposedChange] = []
        for each in rows:
            seen = _seen.decode(each.before)
            fresh = all(now.get(one.key) == one.seq for one in seen) and bool(seen)
            stale = each.state == "open" and not fresh
            state: ChangeState = "stale" if stale else msgspec.convert(each.state, ChangeState)
            gone = set(_changes.decode(each.after).gone)
            changes.append(
                ProposedChange(
                    id=f"{row.id}.{each.n}",
                    op=msgspec.convert(each.op, ChangeOp),
                    state=state,
                    reason=each.reason,
                    texts=tuple(
                        TextChange(
                            id=None,
                            place=one.key,
                            before=there[one.key].content,
                            after=None if one.key in gone else there[one.key].content,
                        )
                        for one in seen
                        if one.key in there and there[one.key].seq == one.seq
                    ),
                )
            )
        return tuple(changes)

    def opener(
        self, row: JobRow, rows: Sequence[ProposedRow], *, accepts: bool
    ) -> Callable[[Transaction], "AgentDecisions"]:
        """Return what locks the agent's entries under the keys of *rows*."""
        del row, accepts
        keys = {seen.key for each in rows for seen in _seen.decode(each.before)}

        def opened(tx: Transaction) -> AgentDecisions:
            return AgentDecisions(self.context, tx, sorted(keys))

        return opened

    def _now(self, reader: Reader, rows: Sequence[ProposedRow]) -> dict[str, int]:
        """Return the numbers of the agent's entries under the keys of *rows*."""
        keys = sorted({seen.key for each in rows for seen in _seen.decode(each.before)})
        found = reader.all(EntryRow, self.context.sql.entries_under, keys=encoded(keys), run_id="")
        return {each.key: each.seq for each in found if each.agent}


class AgentDecisions:
    """The unit of work of decisions on an agent's entries; see `DecisionUnit`."""

    def __init__(self, context: AgentContext, tx: Transaction, keys: Sequence[str]) -> None:
        self.tx, self._place = tx, EntryLocation(context.agent)
        self._unit = AgentTransaction(context, tx, source=_SOURCE)
        self._keys = frozenset(keys)
        self._unit.open(keys, mutations=len(keys) or 1)

    def is_fresh(self, row: ProposedRow) -> bool:
        """Check that the entries of a change are as its job saw them."""
        seen = _seen.decode(row.before)
        found = [(self._entry(each.key), each.seq) for each in seen]
        return bool(found) and all(each is not None and each.seq == seq for each, seq in found)

    def apply(self, row: ProposedRow) -> dict[str, Any] | None:
        """Evict what goes, and give the entry that stays the tags of all."""
        after, touched = _changes.decode(row.after), list[_TouchedEntry]()
        for key in after.gone:
            entry = self._entry(key)
            if entry is None:
                return None
            cause = {"source": _SOURCE}
            seq = self._unit.take(entry, "evict", cause=cause, evicted_for=after.keep)
            touched.append(_TouchedEntry(before=replace(entry, content=""), seq=seq))
        kept = None if after.keep is None else self._entry(after.keep)
        if kept is not None and tags_text(after.tags) != kept.tags:
            touched.append(self._tagged(kept, after.tags))
        return {"entries": touched}

    def undo(self, row: ProposedRow) -> list[str]:
        """Restore the entries of a change; return the keys of those changed since."""
        found = _application.decode(row.applied or "{}")
        return [each.before.key for each in reversed(found.entries) if not self._restored(each)]

    def close(self) -> None:
        """Write the entries and the log."""
        self._unit.close()

    def _entry(self, key: str) -> EntryRow | None:
        return self._unit.at(self._place, key) if key in self._keys else None

    def _tagged(self, entry: EntryRow, tags: tuple[str, ...]) -> _TouchedEntry:
        """Write *entry* with *tags*; the time of its last write stays."""
        size = entry.size_bytes + _size(tags) - _size(tags_of(entry.tags))
        made = self._unit.put(
            replace(entry, tags=tags_text(tags), size_bytes=size), "replace", {"source": _SOURCE}
        )
        return _TouchedEntry(before=replace(entry, content=""), seq=made.seq)

    def _restored(self, touched: _TouchedEntry) -> bool:
        """Restore one entry; return False if it changed since, or lost its content."""
        before, unit = touched.before, self._unit
        entry = self._entry(before.key)
        cause = {"restored": str(touched.seq)}
        if entry is not None:
            # It stayed, with other tags.
            if entry.seq != touched.seq:
                return False
            unit.put(replace(before, content=entry.content), "restore", cause)
            return True
        try:
            content = change_at(unit.context, self.tx, touched.seq).content
        except NotFound:
            return False
        if content is None or unit.held(self._place).entries >= unit.limits.cap:
            return False
        if before.expires_at is not None and before.expires_at < unit.now:
            return False
        unit.put(replace(before, content=content), "restore", cause)
        return True


def _size(tags: Iterable[str]) -> int:
    return sum(len(tag.encode()) for tag in tags)
