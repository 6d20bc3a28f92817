"""Markdown files taken in as an agent's entries, all in one transaction."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    RunRequired,
    ScopeDenied,
    shortened,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.intake import Intake, is_shared, rejected
from holdfast.memories.durable.markdown.folder import read_folder
from holdfast.memories.durable.markdown.format import MARKER, File, MarkdownEntry, read_file
from holdfast.memories.durable.records import CODES, CONVERSATION, ImportReport, RejectedFile
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write

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
