"""One agent's entries within one transaction: opened locked, each mutation logged."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.events import Event, Fact
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.changes import Cause, Op
from holdfast.memories.durable.entry import Gone
from holdfast.memories.durable.evict import Held
from holdfast.memories.durable.fence import pass_fence
from holdfast.memories.durable.limits import DurableLimits
from holdfast.memories.durable.rows import ENTRY_FIELDS, EntryRow, by_text
from holdfast.memories.durable.times import to_milliseconds

CHANGES_KEPT: Final = 20
"""Rows of the log about one key."""

SHARED: Final = ""
"""The agent of workspace entries."""

_NO_CONTENT: Final = frozenset({"expire", "end", "forget", "redact"})
"""What is logged without the content it was about."""


class _Opened(Struct, frozen=True, kw_only=True):
    entries: int
    core_entries: int
    first_expiry: int | None
    cap: int | None
    workspace_cap: int | None
    run_cap: int | None
    content_bytes: int | None
    budget: int | None
    daily_hours: int | None
    id: str | None
    agent: str | None
    run_id: str | None
    key: str | None
    content: str | None
    category: str | None
    tags: str | None
    size_bytes: int | None
    seq: int | None
    created_at: int | None
    updated_at: int | None
    expires_at: int | None
    created_by: str | None
    updated_by: str | None
    writes: int | None


class Page(Struct, frozen=True, kw_only=True):
    """What the book says at one key: the limits, what is held, and the entries, nearest first."""

    limits: DurableLimits
    held: Held
    first_expiry: int | None
    entries: tuple[EntryRow, ...]

    def at(self, owner: str, run_id: str) -> EntryRow | None:
        """Return the entry of one scope, or None."""
        place = (owner, run_id)
        return next((row for row in self.entries if (row.agent, row.run_id) == place), None)


class Book:
    """An agent's entries, locked for one transaction; *shared* locks the workspace's as well.

    StaleRun when the caller's run is no longer its lane's.
    """

    def __init__(self, caller: Caller, tx: Transaction, *, shared: bool = False) -> None:
        self.caller, self.tx = caller, tx
        self.sql = caller.engine.queries("holdfast.memories.durable")
        self.now = to_milliseconds(caller.now())
        self.by = by_text(caller.by)
        self.fence = pass_fence(caller, tx, lock=True)
        self._numbers: list[int] | None = None
        tx.send(self.sql.lock_agent, owner=caller.agent)
        if shared:
            tx.send(self.sql.lock_agent, owner=SHARED)

    def open_at(self, key: str) -> Page:
        """Return what is there under *key*, expired entries of the agent gone before it is read."""
        rows = self.tx.all(_Opened, self.sql.open_book, key=key, run_id=self.caller.run_id)
        first = rows[0]
        return Page(
            limits=limits_of(first),
            held=Held(entries=first.entries, core=first.core_entries),
            first_expiry=first.first_expiry,
            entries=tuple(_entry(row) for row in rows if row.id is not None),
        )

    def number(self) -> int:
        """Return the next number in the engine-wide order: the transaction's own comes first."""
        if self._numbers is None:
            self._numbers = []
            return self.tx.seq
        if not self._numbers:
            self._numbers = self.tx.numbers(1)
        return self._numbers.pop(0)

    def expect(self, count: int) -> None:
        """Draw the numbers of *count* mutations at once."""
        self._numbers = [self.tx.seq, *(self.tx.numbers(count - 1) if count > 1 else ())]

    def held_by(self, owner: str, run_id: str) -> Held:
        """Return what a scope other than the agent's own holds."""
        if run_id:
            return self.tx.one(_held, self.sql.held_by_run, run_id=run_id)
        return self.tx.one(_held, self.sql.held_by, owner=owner)

    def expire(self, cause: Cause) -> tuple[Gone, ...]:
        """Take away the agent's entries whose time is over."""
        rows = self.tx.all(EntryRow, self.sql.expire_entries, now=self.now)
        self.log_all("expire", rows, cause)
        self.tx.send(self.sql.set_first_expiry)
        return tuple(row.gone() for row in sorted(rows, key=lambda row: row.seq))

    def take_coldest(
        self, owner: str, run_id: str, *, pinned: bool, rows: int, cause: Cause
    ) -> tuple[Gone, ...]:
        """Evict a scope's coldest entries of one tier."""
        taken = self.tx.all(
            EntryRow,
            self.sql.take_coldest,
            owner=owner,
            run_id=run_id,
            pinned=int(pinned),
            rows=rows,
        )
        taken.sort(key=lambda row: row.seq)
        self.log_all("evict", taken, cause)
        return tuple(row.gone() for row in taken)

    def remove(self, row: EntryRow, op: Op, cause: Cause | None = None) -> None:
        """Take one entry away and log it as *op*."""
        self.tx.send(self.sql.remove_entry, owner=row.agent, run_id=row.run_id, key=row.key)
        self.log_all(op, (row,), cause or {})

    def log_all(self, op: Op, rows: Iterable[EntryRow], cause: Cause) -> None:
        """Log that *op* happened to each of *rows*, as they were."""
        for row in rows:
            self.log(op, row, number=self.number(), cause=cause)

    def log(self, op: Op, row: EntryRow, *, number: int, cause: Cause) -> None:
        """Write one row of the log; a run's entries and what went for good leave no content."""
        content = None if op in _NO_CONTENT or row.run_id else row.content
        self.tx.send(
            self.sql.insert_change,
            seq=number,
            owner=row.agent,
            run_id=row.run_id,
            at=self.now,
            op=op,
            key=row.key,
            category=row.category,
            size_bytes=row.size_bytes,
            content=content,
            content_sha256=None if content is None else sha256(content.encode()).hexdigest(),
            actor=self.by,
            cause=msgspec.json.encode(cause).decode(),
        )

    def note(self, what: str, **data: Fact) -> None:
        """Tell the feed that `durable.<what>` happened; never content or a key."""
        run = self.caller.run
        self.tx.note(
            Event(
                type=f"durable.{what}",
                at=from_microseconds(self.now),
                workspace=self.caller.workspace,
                owner=self.caller.agent,
                actor=self.caller.by.actor,
                ids={"run_id": run.run_id} if run else {},
                data=data,
            )
        )

    def close(self) -> None:
        """Write down that the run was seen."""
        if (run := self.caller.run) is not None:
            self.tx.send(self.sql.see_run, lane=run.lane, token=run.token, now=self.now)


def limits_of(row: Struct) -> DurableLimits:
    """Return the limits in *row*'s columns; what is null there has its default."""
    names = DurableLimits.__struct_fields__
    given = {name: value for name in names if (value := getattr(row, name)) is not None}
    return DurableLimits(**given)


def _entry(row: _Opened) -> EntryRow:
    return msgspec.convert({name: getattr(row, name) for name in ENTRY_FIELDS}, EntryRow)


def _held(*, entries: int, core_entries: int) -> Held:
    return Held(entries=entries, core=core_entries)
