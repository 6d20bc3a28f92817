"""Export entries as Markdown files, and import them."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.json import encode

from holdfast.engines.base import Transaction
from holdfast.ground.errors import (
    HoldfastError,
    ImportRefused,
    InvalidInput,
    MemoryFull,
    RunRequired,
    ScopeDenied,
    shortened,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_rows
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.markdown.folder import ExportFolder, read_folder, target
from holdfast.memories.durable.markdown.format import (
    FORMAT,
    MARKER,
    File,
    MarkdownEntry,
    Marker,
    is_path_of,
    read_file,
    read_marker,
    to_files,
    told_path,
)
from holdfast.memories.durable.records import (
    CODES,
    CONVERSATION,
    DAILY,
    HOUR,
    WORKSPACE,
    DurableEntry,
    ExportReport,
    ImportReport,
    RejectedFile,
    code_of,
    coded,
)
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryLocation, EntryRow, tags_text
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write
from holdfast.memories.durable.validation import refuse_long
from holdfast.memories.durable.write_entry import EntryWrite, store

_ELSEWHERE: Final = "Choose a folder that is absent or empty, or an earlier export of this agent."


def export_markdown(
    caller: AgentContext, directory: str | os.PathLike[str], *, include_workspace: bool = True
) -> ExportReport:
    """Write the agent's entries to *directory*: absent, empty, or an earlier export of them.

    Conversation entries stay out. Files of entries that are gone are removed; nothing else is
    touched.
    """
    return write_export(directory, export_files(caller, include_workspace=include_workspace))


def export_files(caller: AgentContext, *, include_workspace: bool = True) -> tuple[File, ...]:
    """Return the export of one moment: the marker, then a file for each entry, by path."""
    sql = caller.engine.queries("holdfast.memories.durable")
    shared = SHARED if include_workspace else caller.agent

    with coded():
        rows = caller.engine.read(
            lambda reader: reader.all(
                EntryRow, sql.entries_to_export, shared=shared, now=caller.now()
            )
        )
    entries: list[DurableEntry] = [row.record(caller.workspace) for row in rows]
    return to_files(entries, agent=caller.agent, workspace=caller.workspace)


def write_export(directory: str | os.PathLike[str], files: tuple[File, ...]) -> ExportReport:
    """Write *files*, which `export_files` gave, to *directory*."""
    with coded():
        marker = _marker_of(files)
        with target(directory) as place:
            _refuse_other(place, marker)
            place.check(files)
            new = frozenset(path for path, _ in files)
            stale = [path for path, text in place.earlier(new) if _is_of(marker, path, text)]
            # The marker comes first: an export that is broken off can be made again.
            place.write(files)
            place.remove(stale)
    return ExportReport(
        written=tuple(path for path, _ in files if path != MARKER), removed=tuple(stale)
    )


def _marker_of(files: tuple[File, ...]) -> Marker:
    path, text = files[0] if files else ("", "")
    marker = read_marker(text) if path == MARKER else None
    if marker is None:
        raise InvalidInput("files", f"must begin with {MARKER}")
    return marker


def _refuse_other(place: ExportFolder, marker: Marker) -> None:
    """Raise InvalidInput unless *place* is empty, or an earlier export of the same entries."""
    if place.is_empty():
        return
    content = place.marker()
    found = None if content is None else read_marker(content.decode(errors="replace"))
    if found is None or found.format != FORMAT:
        reason = "is neither empty nor an earlier export"
        raise InvalidInput("directory", reason, next=_ELSEWHERE)
    if (found.agent, found.workspace) != (marker.agent, marker.workspace):
        whose = msgspec.json.encode([found.workspace, found.agent]).decode()
        reason = "is an export of another workspace or agent"
        raise InvalidInput("directory", reason, given=whose, next=_ELSEWHERE)


def _is_of(marker: Marker, path: str, text: str | None) -> bool:
    """Tell whether an earlier export wrote the file, as it says itself; not one made by hand."""
    if text is None:
        return True
    try:
        said = read_file(path, text)
    except HoldfastError:
        return False
    asked = said.asked
    ours = said.agent in (None, marker.agent)
    return ours and said.seq is not None and is_path_of(path, asked.category, asked.key)


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


Mode = Literal["upsert", "replace"]

_MOST_PATH: Final = 4_096
"""Characters of a path that a file comes with."""
_UNKNOWN: Final = ""
"""Stands for a key that was forgotten meanwhile."""


class How(Struct, frozen=True, kw_only=True):
    """How files are to be taken in.

    `replace` besides forgets the agent's entries that no file holds. With *rebind* another agent's
    files are taken as the caller's own.
    """

    mode: Mode = "upsert"
    dry_run: bool = False
    rebind: bool = False
    idempotency_key: str | None = None


UPSERT: Final = How()


def import_markdown(
    caller: AgentContext, directory: str | os.PathLike[str], how: How = UPSERT
) -> ImportReport:
    """Take in the Markdown files of *directory*, as `import_files` does."""
    with refusals(caller):
        files, passed = read_markdown(directory)
    return import_files(caller, files, how, passed=passed)


def read_markdown(
    directory: str | os.PathLike[str],
) -> tuple[tuple[File, ...], tuple[RejectedFile, ...]]:
    """Return the Markdown files of *directory*, and what of it is rejected unread."""
    folder = read_folder(directory)
    code = CODES[InvalidInput]
    passed = [RejectedFile(path=each.path, code=code, reason=each.reason) for each in folder.passed]
    return folder.files, tuple(passed)


def import_files(
    caller: AgentContext,
    files: Iterable[File],
    how: How = UPSERT,
    *,
    passed: Sequence[RejectedFile] = (),
) -> ImportReport:
    """Take in *files*, with those *passed* over rejected already; return what became of them.

    What cannot go in is rejected and the rest still does. In the mode `replace` that is
    ImportRefused, as it is when more entries would be kept than may: then nothing is changed. A
    dry run changes nothing, and says what a real one would have.
    """
    with refusals(caller):
        if how.mode not in get_args(Mode):
            raise InvalidInput("mode", "must be upsert or replace", given=how.mode)
        given = [(path, text) for path, text in files if path.rpartition("/")[2] != MARKER]
        read = _read(caller, given, how, passed)
        keyed = None if how.dry_run else how.idempotency_key
        replay = Replay.of(keyed, "import", given, passed, how.mode, how.rebind)

    def work(tx: Transaction) -> _Done:
        book = _opened(caller, tx, read)
        first = None if replay is None else replay.answer(book, _Answer)
        if first is not None:
            return _Done(_again(book, read, first))
        intake = Intake(book, read.files)
        forgot = _run(intake, read, how)
        report = _report(intake, read, how)
        if how.dry_run:
            raise _Rehearsed(report)
        if replay is not None:
            replay.keep(book, _Answer.of(intake))
        _tell(book, report, how)
        book.close()
        return _Done(report, erased=forgot > 0)

    try:
        done = write(caller, work)
    except _Rehearsed as rehearsed:
        return rehearsed.report
    if done.erased:
        caller.engine.scrub()
    return done.report


class _Rehearsed(Exception):
    """A dry run has come to its end, and is undone."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__("This was a dry run.")
        self.report = report


class _Done(Struct, frozen=True):
    report: ImportReport
    erased: bool = False


class _Read(Struct, frozen=True, kw_only=True):
    """The files that may be tried, and those that were rejected as they were read."""

    files: tuple[MarkdownEntry, ...]
    rejected: tuple[RejectedFile, ...]
    ignored: int


class _Answer(Struct, frozen=True, kw_only=True):
    """What is kept of an import: files by their number, what went by the log's row on it.

    The reasons are such that name neither keys nor contents.
    """

    created: list[int]
    replaced: list[int]
    unchanged: list[int]
    removed: list[int]
    rejected: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, intake: Intake) -> "_Answer":
        """Return what is kept of *intake*."""
        return cls(
            created=intake.created,
            replaced=intake.replaced,
            unchanged=intake.unchanged,
            removed=list(intake.removed),
            rejected={n: (each.code, each.reason) for n, each in intake.rejected.items()},
        )


class _Named(Struct, frozen=True, kw_only=True):
    seq: int
    key: str | None
    category: str | None


def _read(
    caller: AgentContext, files: Sequence[File], how: How, passed: Sequence[RejectedFile]
) -> _Read:
    told: list[MarkdownEntry] = []
    refused = list(passed)
    ignored = 0
    for path, text in files:
        try:
            if len(path) > _MOST_PATH:
                raise InvalidInput("path", f"must have at most {_MOST_PATH:,} characters")
            said = read_file(path, text)
            ignored += said.ignored
            _refuse_foreign(caller, said, how)
        except HoldfastError as error:
            refused.append(rejected(path, error))
        else:
            told.append(said)
    often = Counter(map(_spot, told))
    for each in told:
        if (many := often[_spot(each)]) > 1:
            reason = f"is in {many} files, so none of them is used"
            error = InvalidInput("key", reason, given=each.asked.key)
            refused.append(rejected(each.path, error))
    alone = tuple(each for each in told if often[_spot(each)] == 1)
    return _Read(files=alone, rejected=tuple(refused), ignored=ignored)


def _refuse_foreign(caller: AgentContext, said: MarkdownEntry, how: How) -> None:
    """Raise RunRequired for a run's entry, ScopeDenied for another agent's."""
    if said.asked.category == CONVERSATION:
        raise RunRequired
    if said.agent not in (None, caller.agent) and not how.rebind:
        whose = shortened(said.agent)
        raise ScopeDenied(f"The file is another agent's, {whose}.", needed=f"agent {whose}")


def _spot(said: MarkdownEntry) -> tuple[bool, str]:
    """Return where the entry is to be: whether it is the workspace's, and its key."""
    return is_shared(said), said.asked.key


def _opened(caller: AgentContext, tx: Transaction, read: _Read) -> AgentTransaction:
    book = AgentTransaction(caller, tx)
    book.open(
        sorted({each.asked.key for each in read.files}),
        shared=any(map(is_shared, read.files)),
        mutations=len(read.files),
    )
    return book


def _run(intake: Intake, read: _Read, how: How) -> int:
    """Do what is asked of the book, which is not closed yet; return how many were forgotten."""
    forgot = 0
    if how.mode == "replace":
        intake.refuse_rejected(read.rejected)
        intake.refuse_too_many()
        forgot = intake.forget_others()
    intake.write()
    return forgot


def _report(intake: Intake, read: _Read, how: How) -> ImportReport:
    return ImportReport(
        created=_keys(read, intake.created),
        replaced=_keys(read, intake.replaced),
        unchanged=_keys(read, intake.unchanged),
        removed=tuple(intake.removed.values()),
        rejected=_in_order((*read.rejected, *intake.rejected.values())),
        ignored=read.ignored,
        dry_run=how.dry_run,
    )


def _again(book: AgentTransaction, read: _Read, answer: _Answer) -> ImportReport:
    """Return the report that *answer* is of, which was asked for with the same files."""
    seqs = msgspec.json.encode(answer.removed).decode()
    known = {each.seq: each.key for each in book.tx.all(_Named, book.sql.changes_at, seqs=seqs)}
    refused = [
        RejectedFile(path=read.files[number].path, code=code, reason=reason)
        for number, (code, reason) in answer.rejected.items()
    ]
    return ImportReport(
        created=_keys(read, answer.created),
        replaced=_keys(read, answer.replaced),
        unchanged=_keys(read, answer.unchanged),
        removed=tuple(known.get(seq) or _UNKNOWN for seq in answer.removed),
        rejected=_in_order((*read.rejected, *refused)),
        ignored=read.ignored,
        dry_run=False,
    )


def _keys(read: _Read, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(read.files[number].asked.key for number in sorted(numbers))


def _in_order(refused: Iterable[RejectedFile]) -> tuple[RejectedFile, ...]:
    return tuple(sorted(refused, key=lambda each: each.path))


def _tell(book: AgentTransaction, report: ImportReport, how: How) -> None:
    book.note(
        "imported",
        mode=how.mode,
        created=len(report.created),
        replaced=len(report.replaced),
        unchanged=len(report.unchanged),
        removed=len(report.removed),
        rejected=len(report.rejected),
    )
    for each in report.rejected:
        book.count("refused_total", each.code)
