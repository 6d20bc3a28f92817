"""Files that were read, sorted out against what is kept, and written: within one open book."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.json import encode

from holdfast.ground.errors import HoldfastError, ImportRefused, InvalidInput, MemoryFull
from holdfast.memories.durable.forget import forget_rows
from holdfast.memories.durable.markdown.format import MarkdownEntry, told_path
from holdfast.memories.durable.records import DAILY, HOUR, WORKSPACE, RejectedFile, code_of
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryLocation, EntryRow, tags_text
from holdfast.memories.durable.transaction import AgentTransaction
from holdfast.memories.durable.validation import refuse_long
from holdfast.memories.durable.write_entry import EntryWrite, store

_NEVER: Final = 2**63
"""Stands after every `seq`: a file without one was made by hand, after the others."""


class Intake:
    """The files of one import, each told by its number, and what became of them.

    `removed` has the keys that went for it, by the number of the log's row on that.
    """

    def __init__(self, book: AgentTransaction, files: Sequence[MarkdownEntry]) -> None:
        self._book, self._files = book, files
        self._own = {said.asked.key for said in files if not is_shared(said)}
        self._writing: list[int] = []
        self.created: list[int] = []
        self.replaced: list[int] = []
        self.unchanged: list[int] = []
        self.rejected: dict[int, RejectedFile] = {}
        self.removed: dict[int, str] = {}
        self._sort_out()

    def refuse_rejected(self, before: Iterable[RejectedFile]) -> None:
        """Raise ImportRefused if any file is rejected, here or *before*."""
        rejected = (*before, *self.rejected.values())
        if rejected:
            raise ImportRefused(
                f"{len(rejected):,} files were rejected, so nothing was replaced.",
                rejected=rejected,
                next="Correct them or leave them out; `rejected` has the reason for each.",
            )

    def forget_others(self) -> int:
        """Forget the agent's entries that no file holds; return how many those were."""
        book = self._book
        kept = self._own | {row.key for row in self._moving()}
        others = sorted(set(book.tx.all(_key, book.sql.own_keys, now=book.now)) - kept)
        told = encode(others).decode()
        found = book.tx.all(EntryRow, book.sql.entries_under, keys=told, run_id=NO_RUN)
        rows = [row for row in found if row.agent != SHARED]
        for row in rows:
            book.pending.found(row)
        forget_rows(book, rows)
        self._remove((row.seq, row.key) for row in rows)
        return len(rows)

    def refuse_too_many(self) -> None:
        """Raise ImportRefused if more entries would be there than may."""
        book = self._book
        own, cap = len(self._own), book.limits.cap
        new = [n for n in self._writing if self._is_shared(n) and self._before(n) is None]
        shared = book.held(EntryLocation(SHARED)).entries + len(new) if new else 0
        if own > cap or shared > book.limits.workspace_cap:
            many, most = (own, cap) if own > cap else (shared, book.limits.workspace_cap)
            raise ImportRefused(
                f"{many:,} entries would be kept, of at most {most:,}, so nothing was replaced.",
                next="Take files out, or set a higher cap.",
            )

    def write(self) -> None:
        """Write what is new or changed: the newest last, so that it is the newest here too."""
        book, moving = self._book, self._moving()
        moved = {row.key for row in moving}
        changed = {
            number
            for number in self._writing
            if self._before(number) is not None
            or (self._is_shared(number) and self._files[number].asked.key in moved)
        }
        for row in moving:
            # All of them first, so that nothing is evicted for want of their places.
            book.take(row, "move", cause={"moved_to": "workspace"})
        for number in sorted(self._writing, key=lambda each: self._order(each, each in changed)):
            self._store(number, changed=number in changed)

    def _sort_out(self) -> None:
        for number, said in enumerate(self._files):
            before = self._before(number)
            if before is not None and _is_same(before, said):
                self.unchanged.append(number)
                continue
            try:
                self._refuse(said)
            except InvalidInput as error:
                self.rejected[number] = rejected(said.path, error)
            else:
                self._writing.append(number)

    def _refuse(self, said: MarkdownEntry) -> None:
        """Raise InvalidInput if *said* is too long, or a daily entry whose time is over."""
        book = self._book
        refuse_long(said.asked, most=book.limits.content_bytes)
        hours = book.limits.daily_hours
        over = self._now_at_most(said.updated) + hours * HOUR < book.now
        if said.asked.category == DAILY and over:
            reason = f"is more than {hours:,} hours ago, so this daily entry has expired"
            raise InvalidInput("updated", reason, limit=hours)

    def _before(self, number: int) -> EntryRow | None:
        owner = SHARED if self._is_shared(number) else self._book.caller.agent
        return self._book.at(EntryLocation(owner), self._files[number].asked.key)

    def _moving(self) -> list[EntryRow]:
        """Return the agent's own entries that, by their files, are now the workspace's."""
        shared = [
            self._files[number].asked.key for number in self._writing if self._is_shared(number)
        ]
        own = EntryLocation(self._book.caller.agent)
        rows = [self._book.at(own, key) for key in shared if key not in self._own]
        return [row for row in rows if row is not None]

    def _is_shared(self, number: int) -> bool:
        return is_shared(self._files[number])

    def _order(self, number: int, changed: bool) -> tuple[int, int, str]:
        said = self._files[number]
        when = self._book.now if changed else self._now_at_most(said.updated)
        return when, _NEVER if said.seq is None else said.seq, said.path

    def _now_at_most(self, instant: int | None) -> int:
        now = self._book.now
        return now if instant is None else min(instant, now)

    def _store(self, number: int, *, changed: bool) -> None:
        said = self._files[number]
        wish = EntryWrite(
            refresh=False,
            moves=False,
            cause={"imported_from": told_path(said.path, said.asked.key)},
            born=None if changed else self._now_at_most(said.created),
            written=None if changed else self._now_at_most(said.updated),
        )
        try:
            entry = store(self._book, said.asked, wish)
        except MemoryFull as error:
            self.rejected[number] = rejected(said.path, error)
            return
        (self.replaced if changed else self.created).append(number)
        self._remove((gone.seq, gone.key) for gone in entry.evicted)

    def _remove(self, gone: Iterable[tuple[int, str]]) -> None:
        self.removed.update((self._book.taken[seq], key) for seq, key in gone)


def is_shared(said: MarkdownEntry) -> bool:
    """Tell whether the entry is to be the workspace's."""
    return said.asked.category == WORKSPACE


def rejected(path: str, error: HoldfastError) -> RejectedFile:
    """Return what a report says of the file at *path*, which was rejected with *error*."""
    return RejectedFile(path=path, code=code_of(error) or "", reason=error.message)


def _is_same(before: EntryRow, said: MarkdownEntry) -> bool:
    asked = said.asked
    told = (before.content, before.category, before.tags)
    return told == (asked.content, asked.category, tags_text(asked.tags))


def _key(*, key: str) -> str:
    return key
