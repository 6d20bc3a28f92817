"""Export entries as Markdown files, and import them."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.errors import (
    HoldfastError,
    ImportRefused,
    InvalidInput,
    MemoryFull,
    RunRequired,
    ScopeDenied,
    shortened,
)
from holdfast.ground.trust import (
    HeldFor,
    Provenance,
    Tier,
    gives_orders,
    tier_of_writer,
    weaker,
)
from holdfast.ground.validation import check_one_of
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_rows
from holdfast.memories.durable.idempotency import UNKNOWN, Replay, names_of
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
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryLocation, EntryRow
from holdfast.memories.durable.transaction import REFUSED, AgentTransaction, refusals, write
from holdfast.memories.durable.validation import refuse_long
from holdfast.memories.durable.write_entry import EntryWrite, store

_ELSEWHERE: Final = "Choose a folder that is absent or empty, or an earlier export of this agent."


def export_markdown(
    context: AgentContext, directory: str | os.PathLike[str], *, include_workspace: bool = True
) -> ExportReport:
    """Write the agent's entries as files to *directory*.

    *directory* is absent, empty, or an earlier export of the same entries. Conversation entries are
    not exported. Files of deleted entries are removed; nothing else is changed.
    """
    return write_export(directory, export_files(context, include_workspace=include_workspace))


def export_files(context: AgentContext, *, include_workspace: bool = True) -> tuple[File, ...]:
    """Return an export of one snapshot: the marker, then a file per entry."""
    shared = SHARED if include_workspace else context.agent

    with coded():
        rows = context.engine.read(
            lambda reader: reader.all(
                EntryRow, context.sql.entries_to_export, shared=shared, now=context.now()
            )
        )
    entries: list[DurableEntry] = [row.record(context.workspace) for row in rows]
    return to_files(entries, agent=context.agent, workspace=context.workspace)


def write_export(directory: str | os.PathLike[str], files: tuple[File, ...]) -> ExportReport:
    """Write *files*, which `export_files` returned, to *directory*."""
    with coded():
        marker = _marker_of(files)
        with target(directory) as place:
            _refuse_other(place, marker)
            place.check(files)
            new = frozenset(path for path, _ in files)
            stale = [path for path, text in place.earlier(new) if _is_of(marker, path, text)]
            # The marker comes first, so that an interrupted export can be repeated.
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
    """Raise InvalidInput unless *place* is empty or an earlier export.

    The earlier export must be of the same workspace and agent.
    """
    if place.is_empty():
        return
    content = place.marker()
    found = None if content is None else read_marker(content.decode(errors="replace"))
    if found is None or found.format != FORMAT:
        reason = "is neither empty nor an earlier export"
        raise InvalidInput("directory", reason, next=_ELSEWHERE)
    if (found.agent, found.workspace) != (marker.agent, marker.workspace):
        owner = msgspec.json.encode([found.workspace, found.agent]).decode()
        reason = "is an export of another workspace or agent"
        raise InvalidInput("directory", reason, given=owner, next=_ELSEWHERE)


def _is_of(marker: Marker, path: str, text: str | None) -> bool:
    """Return whether an earlier export wrote the file, by its own fields.

    False for a file that was written by hand.
    """
    if text is None:
        return True
    try:
        file = read_file(path, text)
    except HoldfastError:
        return False
    entry = file.checked
    ours = file.agent in (None, marker.agent)
    return ours and file.seq is not None and is_path_of(path, entry.category, entry.key)


_NEVER: Final = 2**63
"""Greater than every `seq`: a file without one was written by hand, after the others."""


class Intake:
    """The files of one import, by number, and their results.

    *writer* is the tier that the caller states. `removed` has the keys that the import evicted or
    forgot, by the number of the log's row.
    """

    def __init__(
        self, unit: AgentTransaction, files: Sequence[MarkdownEntry], writer: Tier | None
    ) -> None:
        self._unit, self._files = unit, files
        self._writer: Tier | None = writer
        self._entries = [file.checked for file in files]
        self._own = {each.key for each in self._entries if each.category != WORKSPACE}
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
        """Forget the agent's entries that no file holds; return how many."""
        unit = self._unit
        kept = self._own | {row.key for row in self._moving()}
        others = sorted(set(unit.tx.all(scalar, unit.sql.own_keys, now=unit.now)) - kept)
        keys = encode(others).decode()
        found = unit.tx.all(EntryRow, unit.sql.entries_under, keys=keys, run_id=NO_RUN)
        rows = [row for row in found if row.agent != SHARED]
        for row in rows:
            unit.pending.found(row)
        forget_rows(unit, rows)
        self._remove((row.seq, row.key) for row in rows)
        return len(rows)

    def refuse_too_many(self) -> None:
        """Raise ImportRefused if the entries would exceed a cap."""
        unit = self._unit
        own, cap = len(self._own), unit.limits.cap
        new = [n for n in self._writing if self._is_shared(n) and self._before(n) is None]
        shared = unit.held(EntryLocation(SHARED)).entries + len(new) if new else 0
        if own > cap or shared > unit.limits.workspace_cap:
            many, most = (own, cap) if own > cap else (shared, unit.limits.workspace_cap)
            raise ImportRefused(
                f"{many:,} entries would be kept, of at most {most:,}, so nothing was replaced.",
                next="Take files out, or set a higher cap.",
            )

    def write(self) -> None:
        """Write the new and changed entries in the order of their age.

        The newest is written last, so that it is the newest here too.
        """
        unit, moving = self._unit, self._moving()
        moved = {row.key for row in moving}
        changed = {
            number
            for number in self._writing
            if self._before(number) is not None
            or (self._is_shared(number) and self._entries[number].key in moved)
        }
        for row in moving:
            # Moves come first, so that no entry is evicted although they make space.
            unit.take(row, "move", cause={"moved_to": "workspace"})
        for number in sorted(self._writing, key=lambda each: self._order(each, each in changed)):
            self._store(number, changed=number in changed)

    def _sort_out(self) -> None:
        for number, file in enumerate(self._files):
            before = self._before(number)
            if before is not None and before.holds(file.checked):
                self.unchanged.append(number)
                continue
            try:
                self._refuse(file)
            except InvalidInput as error:
                self.rejected[number] = rejected(file.path, error)
            else:
                self._writing.append(number)

    def _refuse(self, file: MarkdownEntry) -> None:
        """Raise InvalidInput if *file* is too long, or an expired daily entry."""
        unit = self._unit
        entry = file.checked
        refuse_long(entry, most=unit.limits.content_bytes)
        hours = unit.limits.daily_hours
        over = self._now_at_most(file.updated) + hours * HOUR < unit.now
        if entry.category == DAILY and over:
            reason = f"is more than {hours:,} hours ago, so this daily entry has expired"
            raise InvalidInput("updated", reason, limit=hours)

    def _before(self, number: int) -> EntryRow | None:
        owner = SHARED if self._is_shared(number) else self._unit.context.agent
        return self._unit.at(EntryLocation(owner), self._entries[number].key)

    def _moving(self) -> list[EntryRow]:
        """Return the agent's own entries that their files move to the workspace."""
        shared = [self._entries[number].key for number in self._writing if self._is_shared(number)]
        own = EntryLocation(self._unit.context.agent)
        rows = [self._unit.at(own, key) for key in shared if key not in self._own]
        return [row for row in rows if row is not None]

    def _is_shared(self, number: int) -> bool:
        return is_shared(self._files[number])

    def _order(self, number: int, changed: bool) -> tuple[int, int, str]:
        file = self._files[number]
        when = self._unit.now if changed else self._now_at_most(file.updated)
        return when, _NEVER if file.seq is None else file.seq, file.path

    def _now_at_most(self, instant: int | None) -> int:
        now = self._unit.now
        return now if instant is None else min(instant, now)

    def _store(self, number: int, *, changed: bool) -> None:
        file, request = self._files[number], self._entries[number]
        options = EntryWrite(
            refresh=False,
            moves=False,
            cause={"imported_from": told_path(file.path, request.key)},
            born=None if changed else self._now_at_most(file.created),
            written=None if changed else self._now_at_most(file.updated),
            source=self._source(number),
        )
        try:
            entry = store(self._unit, request, options)
        except MemoryFull as error:
            self.rejected[number] = rejected(file.path, error)
            return
        (self.replaced if changed else self.created).append(number)
        self._remove((gone.seq, gone.key) for gone in entry.evicted)

    def _source(self, number: int) -> Provenance | None:
        """Return the provenance that the file states; None if there is none to set.

        An unchanged text keeps its own. One that gives orders is held whatever its tier, as the
        file may be anyone's.
        """
        file, before, context = self._files[number], self._before(number), self._unit.context
        text = file.checked.content
        if file.tier is None or (before is not None and before.content == text):
            return None
        own = tier_of_writer(context.actor, self._writer, in_run=context.run is not None)
        held: HeldFor | None = "instruction" if gives_orders(text) else None
        return Provenance(weaker(file.tier, own), file.origin_ref, held)

    def _remove(self, gone: Iterable[tuple[int, str]]) -> None:
        self.removed.update((self._unit.taken[seq], key) for seq, key in gone)


def is_shared(file: MarkdownEntry) -> bool:
    """Return whether the entry belongs to the workspace."""
    return file.checked.category == WORKSPACE


def rejected(path: str, error: HoldfastError) -> RejectedFile:
    """Return the report of the file at *path*, which *error* rejected."""
    return RejectedFile(path=path, code=code_of(error) or "", reason=error.message)


Mode = Literal["upsert", "replace"]

_MOST_PATH: Final = 4_096
"""Characters of the path of a file."""


class How(Struct, frozen=True, kw_only=True):
    """Options of an import.

    `replace` also forgets the agent's entries that no file holds. With *rebind* another agent's
    files are imported as this agent's.
    """

    mode: Mode = "upsert"
    dry_run: bool = False
    rebind: bool = False


UPSERT: Final = How()


def import_markdown(
    context: AgentContext, directory: str | os.PathLike[str], how: How = UPSERT
) -> ImportReport:
    """Import the Markdown files of *directory*; see `import_files`."""
    with refusals(context):
        files, passed = read_markdown(directory)
    return import_files(context, files, how, passed=passed)


def read_markdown(
    directory: str | os.PathLike[str],
) -> tuple[tuple[File, ...], tuple[RejectedFile, ...]]:
    """Return the Markdown files of *directory*, and those rejected unread."""
    folder = read_folder(directory)
    code = CODES[InvalidInput]
    passed = [RejectedFile(path=each.path, code=code, reason=each.reason) for each in folder.passed]
    return folder.files, tuple(passed)


def import_files(
    context: AgentContext,
    files: Iterable[File],
    how: How = UPSERT,
    *,
    passed: Sequence[RejectedFile] = (),
) -> ImportReport:
    """Import *files*; return the result by key.

    *passed* are files that were rejected before. Files that cannot be imported are rejected, and
    the others are imported. In the mode `replace` a rejected file raises ImportRefused, and so do
    more entries than a cap permits: then nothing is changed. A dry run changes nothing, and reports
    what an import would have done.
    """
    with refusals(context):
        check_one_of("mode", how.mode, get_args(Mode), "must be upsert or replace")
        given = [(path, text) for path, text in files if path.rpartition("/")[2] != MARKER]
        read = _read(context, given, how, passed)
        keyed = None if how.dry_run else context.idempotency_key
        replay = Replay(keyed, "import", given, passed, how.mode, how.rebind)

    writer = context.tier
    context = replace(context, tier=weaker(writer or "imported", "imported"))

    def work(tx: Transaction) -> _Done:
        unit = _opened(context, tx, read)
        first = replay.answer(unit, _Answer)
        if first is not None:
            return _Done(_rebuild_report(unit, read, first))
        intake = Intake(unit, read.files, writer)
        forgot = _run(intake, read, how)
        answer = _Answer.of(intake)
        report = _report(read, answer, intake.removed.values(), dry_run=how.dry_run)
        if how.dry_run:
            raise _DryRunEnd(report)
        replay.keep(unit, answer)
        _publish(unit, report, how)
        unit.close()
        return _Done(report, erased=forgot > 0)

    try:
        done = write(context, work)
    except _DryRunEnd as end:
        return end.report
    if done.erased:
        context.engine.scrub()
    return done.report


class _DryRunEnd(Exception):
    """The end of a dry run, which rolls the transaction back."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__("This was a dry run.")
        self.report = report


class _Done(Struct, frozen=True):
    report: ImportReport
    erased: bool = False


class _ParsedFiles(Struct, frozen=True, kw_only=True):
    """The valid files, and those that were rejected while parsing."""

    files: tuple[MarkdownEntry, ...]
    rejected: tuple[RejectedFile, ...]
    ignored: int


class _Answer(Struct, frozen=True, kw_only=True):
    """The stored result of an import.

    Files are by number, deleted entries by the number of the log's row. Reasons name neither keys
    nor contents.
    """

    created: list[int]
    replaced: list[int]
    unchanged: list[int]
    removed: list[int]
    rejected: dict[int, tuple[str, str]]

    @classmethod
    def of(cls, intake: Intake) -> "_Answer":
        """Return the result of *intake* to store."""
        return cls(
            created=intake.created,
            replaced=intake.replaced,
            unchanged=intake.unchanged,
            removed=list(intake.removed),
            rejected={n: (each.code, each.reason) for n, each in intake.rejected.items()},
        )


def _read(
    context: AgentContext, files: Sequence[File], how: How, passed: Sequence[RejectedFile]
) -> _ParsedFiles:
    parsed: list[MarkdownEntry] = []
    refused = list(passed)
    ignored = 0
    for path, text in files:
        try:
            if len(path) > _MOST_PATH:
                raise InvalidInput("path", f"must have at most {_MOST_PATH:,} characters")
            file = read_file(path, text)
            ignored += file.ignored
            _refuse_foreign(context, file, how)
        except HoldfastError as error:
            refused.append(rejected(path, error))
        else:
            parsed.append(file)
    often = Counter(map(_spot, parsed))
    for each in parsed:
        if (many := often[_spot(each)]) > 1:
            reason = f"is in {many} files, so none of them is used"
            error = InvalidInput("key", reason, given=each.checked.key)
            refused.append(rejected(each.path, error))
    alone = tuple(each for each in parsed if often[_spot(each)] == 1)
    return _ParsedFiles(files=alone, rejected=tuple(refused), ignored=ignored)


def _refuse_foreign(context: AgentContext, file: MarkdownEntry, how: How) -> None:
    """Raise RunRequired for a run's entry, ScopeDenied for another agent's."""
    if file.checked.category == CONVERSATION:
        raise RunRequired
    if file.agent not in (None, context.agent) and not how.rebind:
        agent = shortened(file.agent)
        raise ScopeDenied(f"The file is another agent's, {agent}.", needed=f"agent {agent}")


def _spot(file: MarkdownEntry) -> tuple[bool, str]:
    """Return whether the entry is the workspace's, and its key."""
    return is_shared(file), file.checked.key


def _opened(context: AgentContext, tx: Transaction, read: _ParsedFiles) -> AgentTransaction:
    unit = AgentTransaction(context, tx)
    unit.open(
        sorted({each.checked.key for each in read.files}),
        shared=any(map(is_shared, read.files)),
        mutations=len(read.files),
    )
    return unit


def _run(intake: Intake, read: _ParsedFiles, how: How) -> int:
    """Run the import, without closing the unit of work.

    Returns how many entries were forgotten.
    """
    forgot = 0
    if how.mode == "replace":
        intake.refuse_rejected(read.rejected)
        intake.refuse_too_many()
        forgot = intake.forget_others()
    intake.write()
    return forgot


def _report(
    read: _ParsedFiles, answer: _Answer, removed: Iterable[str], *, dry_run: bool = False
) -> ImportReport:
    refused = [
        RejectedFile(path=read.files[number].path, code=code, reason=reason)
        for number, (code, reason) in answer.rejected.items()
    ]
    return ImportReport(
        created=_keys(read, answer.created),
        replaced=_keys(read, answer.replaced),
        unchanged=_keys(read, answer.unchanged),
        removed=tuple(removed),
        rejected=tuple(sorted((*read.rejected, *refused), key=lambda each: each.path)),
        ignored=read.ignored,
        dry_run=dry_run,
    )


def _rebuild_report(unit: AgentTransaction, read: _ParsedFiles, answer: _Answer) -> ImportReport:
    """Rebuild the first report from *answer* and the same files."""
    known = {seq: each.key for seq, each in names_of(unit, answer.removed).items()}
    return _report(read, answer, (known.get(seq) or UNKNOWN for seq in answer.removed))


def _keys(read: _ParsedFiles, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(read.files[number].checked.key for number in sorted(numbers))


def _publish(unit: AgentTransaction, report: ImportReport, how: How) -> None:
    unit.note(
        "imported",
        mode=how.mode,
        created=len(report.created),
        replaced=len(report.replaced),
        unchanged=len(report.unchanged),
        removed=len(report.removed),
        rejected=len(report.rejected),
    )
    for each in report.rejected:
        unit.count(REFUSED, each.code)
