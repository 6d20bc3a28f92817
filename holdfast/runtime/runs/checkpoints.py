"""Checkpoints of runs: their form, and places for them in memory and in files.

Changes are appended to one that was saved whole: saving takes no longer as a run grows.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import CheckpointUnreadable, InvalidInput
from holdfast.ground.json_values import DEEPEST, is_nested_over
from holdfast.ground.permissions import create_folders, sync_folder
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateKind, StateRow
from holdfast.memories.run.keys import Kind
from holdfast.memories.run.records.event import Ending
from holdfast.memories.run.records.question import Question
from holdfast.runtime.plans.leases import (
    LEASES,
    CheckpointLease,
    LeaseFile,
    LeaseRequest,
    LeaseState,
    Saving,
    granted,
    owned,
    released,
    renewed,
)


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The progress of a run at *saved_at*, in ms since 1970.

    `parts` are hashes of what the run was begun with, by name, `plan_hash` that of them all.
    `completed_steps` has finished items too, as `<step>.<item>`, and nodes of a workflow. `rows`
    are other facts, `turns` messages of parts. `cause`, `part` and `agent` are not loaded. `fence`
    is the token of the lease that it is saved under, 0 without one.
    """

    run_id: str
    plan_hash: str
    parts: Mapping[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    entries: tuple[RunEntry, ...]
    saved_at: int
    fence: int = 0
    rows: tuple[StateRow, ...] = ()
    turns: tuple[KeptTurn, ...] = ()
    questions: tuple[Question, ...] = ()
    cause: str = "step"
    part: str | None = None
    agent: str | None = None


class CheckpointChange(Struct, frozen=True, kw_only=True):
    """The progress of a run since its last save, at *saved_at*, in ms since 1970.

    `removed` are keys that were deleted; an entry may have been written again after that. `cause`
    is what the version is stored for, None where messages alone are; `part` and `agent` are those
    that it is stored for, if it is one.
    """

    run_id: str
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    removed: tuple[str, ...]
    entries: tuple[RunEntry, ...]
    saved_at: int
    fence: int = 0
    rows: tuple[StateRow, ...] = ()
    turns: tuple[KeptTurn, ...] = ()
    questions: tuple[Question, ...] = ()
    cause: str | None = "step"
    part: str | None = None
    agent: str | None = None


class Checkpoints(Protocol):
    """A store of checkpoints, one for each run. Any thread may call it."""

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the last saved checkpoint of *run_id*, or None.

        Raise CheckpointUnreadable when there is one that cannot be read.
        """
        ...

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* in place of an earlier one; it is durable when this returns."""
        ...

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        ...


class CheckpointLog(Protocol):
    """The stored checkpoint of one run, which takes changes. Any thread may call it."""

    def append(self, change: CheckpointChange) -> bool:
        """Store *change*, which is durable when this returns True.

        Return False if something else was stored for the run meanwhile: it is to be saved whole.
        """
        ...


@runtime_checkable
class LoggedCheckpoints(Checkpoints, Protocol):
    """A store that takes changes, so that a save need not write everything again."""

    def begin(self, checkpoint: Checkpoint) -> CheckpointLog:
        """Store *checkpoint* as `save` does; return the log of its changes."""
        ...


def changed(checkpoint: Checkpoint, changes: Iterable[CheckpointChange]) -> Checkpoint:
    """Return *checkpoint* after *changes*, in their order."""
    entries = {entry.key: entry for entry in checkpoint.entries}
    tasks = dict.fromkeys(checkpoint.completed_tasks)
    steps = dict.fromkeys(checkpoint.completed_steps)
    rows = {(row.kind, row.key): row for row in checkpoint.rows}
    turns = {(turn.part, turn.n): turn for turn in checkpoint.turns}
    questions = {each.id: each for each in checkpoint.questions}
    saved_at = checkpoint.saved_at
    for change in changes:
        for key in change.removed:
            entries.pop(key, None)
        entries |= {entry.key: entry for entry in change.entries}
        tasks |= dict.fromkeys(change.completed_tasks)
        steps |= dict.fromkeys(change.completed_steps)
        rows |= {(row.kind, row.key): row for row in change.rows}
        turns |= {(turn.part, turn.n): turn for turn in change.turns}
        questions |= {each.id: each for each in change.questions}
        saved_at = change.saved_at
    return msgspec.structs.replace(
        checkpoint,
        completed_tasks=tuple(tasks),
        completed_steps=tuple(steps),
        entries=tuple(entries.values()),
        saved_at=saved_at,
        rows=tuple([row for row in rows.values() if row.body is not None]),
        turns=tuple(turns.values()),
        questions=tuple(questions.values()),
    )


FORMAT: Final = "holdfast.checkpoint"
VERSION: Final = 2
READ: Final = (1, VERSION)
"""The versions of the format that are read; the first one has no rows and no messages."""


class Unreadable(ValueError):
    """The bytes are no checkpoint, for this reason."""


class _Header(Struct, frozen=True, kw_only=True):
    """The first line: the format, length and hash of the rest."""

    format: str
    version: int
    change: bool = False
    size: int
    sha256: str


class _Entry(Struct, frozen=True, kw_only=True):
    """A run entry with its value as JSON."""

    key: str
    kind: Kind
    value: Raw
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    failed: bool


class _Row(Struct, frozen=True, kw_only=True):
    """A fact of a run with its JSON; without it, it was deleted."""

    kind: StateKind
    key: str
    body: Raw | UnsetType = UNSET

    def row(self) -> StateRow:
        return StateRow(self.kind, self.key, None if self.body is UNSET else bytes(self.body))


class _Turn(Struct, frozen=True, kw_only=True):
    """A message of a part with its JSON."""

    part: str
    n: int
    body: Raw
    agent: str | None


class _Body(Struct, frozen=True, kw_only=True):
    """A checkpoint with its values as JSON."""

    run_id: str
    plan_hash: str
    parts: dict[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    saved_at: int
    entries: tuple[_Entry, ...]
    rows: tuple[_Row, ...] = ()
    turns: tuple[_Turn, ...] = ()
    questions: tuple[dict[str, Any], ...] = ()


class _Change(Struct, frozen=True, kw_only=True):
    """A change of a checkpoint with its values as JSON."""

    run_id: str
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    removed: tuple[str, ...]
    saved_at: int
    entries: tuple[_Entry, ...]
    rows: tuple[_Row, ...] = ()
    turns: tuple[_Turn, ...] = ()
    questions: tuple[dict[str, Any], ...] = ()


def encoded(record: Checkpoint | CheckpointChange) -> bytes:
    """Return *record* as bytes."""
    values = {
        "entries": [_written(each) for each in record.entries],
        "rows": [
            _Row(kind=row.kind, key=row.key, body=UNSET if row.body is None else Raw(row.body))
            for row in record.rows
        ],
        "turns": [asdict(turn) | {"body": Raw(turn.body)} for turn in record.turns],
        "questions": [each.export() for each in record.questions],
    }
    body = msgspec.json.encode({**asdict(record), **values})
    header = _Header(
        format=FORMAT,
        version=VERSION,
        change=isinstance(record, CheckpointChange),
        size=len(body),
        sha256=sha256(body).hexdigest(),
    )
    return msgspec.json.encode(header) + b"\n" + body


def decoded(records: Iterable[bytes], run_id: str) -> Checkpoint:
    """Return the checkpoint of *run_id* in *records*.

    It is the last whole one, with the changes after it; two saves at once may leave two. Raise
    Unreadable if it is not intact, or of another run.
    """
    first, *rest = records
    for number, each in enumerate(rest):
        if not _header(each.partition(b"\n")[0]).change:
            return decoded(rest[number:], run_id)
    body = _parsed(first, _Body)
    if body.run_id != run_id:
        raise Unreadable(f"it is of the run {body.run_id}")
    whole = Checkpoint(**_values(body))
    return changed(whole, map(_changed, rest)) if rest else whole


def _changed(content: bytes) -> CheckpointChange:
    return CheckpointChange(**_values(_parsed(content, _Change)))


def _values(body: _Body | _Change) -> dict[str, Any]:
    """Return the members of *body* with our values; raise Unreadable for others."""
    try:
        questions = tuple(map(Question.from_dict, body.questions))
    except InvalidInput as error:
        raise Unreadable(f"it has another shape: {error}") from error
    return asdict(body) | {
        "entries": tuple(map(_read, body.entries)),
        "rows": tuple([row.row() for row in body.rows]),
        "turns": tuple(
            [KeptTurn(turn.part, turn.n, bytes(turn.body), turn.agent) for turn in body.turns]
        ),
        "questions": questions,
    }


T = TypeVar("T")


def _parsed(content: bytes, kind: type[T]) -> T:
    """Return the *kind* in *content*; raise Unreadable if it is not intact."""
    first, _, body = content.partition(b"\n")
    header = _header(first)
    if len(body) != header.size or sha256(body).hexdigest() != header.sha256:
        raise Unreadable("it is damaged or cut short")
    if is_nested_over(body):
        raise Unreadable(f"it holds a value that is nested over {DEEPEST} deep")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"it has another shape: {error}") from error


def _header(line: bytes) -> _Header:
    if is_nested_over(line):
        raise Unreadable(f"it holds a value that is nested over {DEEPEST} deep")
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable("it does not begin as a checkpoint does") from error
    if header.format != FORMAT or header.version not in READ:
        raise Unreadable(f"it is {header.format} version {header.version}, of another release")
    return header


def _written(entry: RunEntry) -> dict[str, Any]:
    facts = asdict(entry)
    return facts | {"value": Raw(facts.pop("value_json"))}


def _read(entry: _Entry) -> RunEntry:
    facts = asdict(entry)
    return RunEntry(value_json=bytes(facts.pop("value")), **facts)


BESIDE = ".new"
"""The end of the name of a file that is not complete yet."""

NAME_LENGTH = 120
"""Characters of a run's id in the name of its file; a longer id adds its hash."""


class FileCheckpoints:
    """Stores checkpoints in *directory*, which is made for the first one.

    A file that cannot be read raises CheckpointUnreadable; it never counts as absent. Only its
    owner may read it: it holds what the run knew.
    """

    def __init__(self, directory: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._directory, self._clock = Path(directory), clock or SystemClock()

    def acquire(self, request: LeaseRequest) -> CheckpointLease:
        """Take the run; raise RunTaken if another owner has it."""
        with self._leases(request.run_id) as file:
            state = granted(file.read(), request, self._now())
            file.write(state)
        return CheckpointLease(run_id=request.run_id, holder=request.holder, fence=state.fence)

    def renew(self, lease: CheckpointLease) -> None:
        """Extend *lease*; raise StaleRun if another owner has the run."""
        with self._leases(lease.run_id) as file:
            file.write(renewed(file.read(), lease, self._now()))

    def release(self, lease: CheckpointLease, status: Ending | None) -> None:
        """Give *lease* back."""
        del status
        with self._leases(lease.run_id) as file:
            file.write(released(file.read(), lease))

    def _now(self) -> int:
        return to_microseconds(self._clock.now())

    def _leases(self, run_id: str) -> "LeaseFile":
        create_folders(self._directory)
        path = self.path(run_id)
        return LeaseFile(path.with_name(f"{path.name}{LEASES}"))

    @contextmanager
    def _saving(self, run_id: str, fence: int) -> Generator[None]:
        """Lock the run for the block; raise StaleRun for a former owner."""
        if not fence:
            yield
            return
        with self._leases(run_id) as file:
            owned(file.read(), fence)
            yield

    def path(self, run_id: str) -> Path:
        """Return the path of the checkpoint of *run_id*."""
        name = quote(run_id, safe="")
        if len(name) > NAME_LENGTH:
            name = f"{name[:NAME_LENGTH]}-{sha256(run_id.encode()).hexdigest()}"
        return self._directory / f"{name}.checkpoint"

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the last saved checkpoint of *run_id*, or None."""
        path = self.path(run_id)
        try:
            return decoded(_records(path.read_bytes()), run_id)
        except FileNotFoundError:
            return None
        except (OSError, Unreadable) as error:
            raise CheckpointUnreadable(str(path), str(error)) from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint*: write a new file, sync it, rename it into place."""
        self.begin(checkpoint)

    def begin(self, checkpoint: Checkpoint) -> "FileLog":
        """Store *checkpoint* as `save` does; return the log of its changes."""
        with self._saving(checkpoint.run_id, checkpoint.fence):
            return self._begun(checkpoint)

    def _begun(self, checkpoint: Checkpoint) -> "FileLog":
        path = self.path(checkpoint.run_id)
        create_folders(self._directory)
        handle, beside = mkstemp(BESIDE, f"{path.name}.", self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encoded(checkpoint))
                file.flush()
                os.fsync(file.fileno())
                log = FileLog(path, file.fileno(), self._saving)
            Path(beside).replace(path)
        finally:
            Path(beside).unlink(missing_ok=True)
        sync_folder(self._directory)
        return log

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        path = self.path(run_id)
        # A process that was killed while it saved left what it had written so far.
        lease = path.with_name(f"{path.name}{LEASES}")
        there = [path, lease, *self._directory.glob(f"{path.name}.*{BESIDE}")]
        for each in there:
            each.unlink(missing_ok=True)
        if self._directory.exists():
            sync_folder(self._directory)


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records in the *content* of a file, without an incomplete last change.

    The process or the power ended while it was appended: its save has never returned.
    """
    start = 0
    while start <= len(content):
        line = content.find(b"\n", start)
        if start and (line < 0 or _is_torn(content, start - 1, line)):
            return
        end = line + 1 + _header(content[start : line if line >= 0 else None]).size
        if start and (end > len(content) or _is_torn(content, line, end)):
            return
        yield content[start:end]
        start = end + 1


def _is_torn(content: bytes, start: int, end: int) -> bool:
    """Check whether *start* to *end* of the last change was not wholly on the disk."""
    # Zeros stand for what was not, and JSON has none. A change before another one was synced.
    return b"\0" in content[start:end] and b'\n{"format":' not in content[start + 1 :]


class FileLog:
    """Appends changes to the file at *path*, which *handle* has open."""

    def __init__(self, path: Path, handle: int, saving: Saving) -> None:
        self._path, self._saving = path, saving
        self._file, self._size = _identity(handle)

    def append(self, change: CheckpointChange) -> bool:
        """Store *change* and sync it; return False if the file is another or was changed."""
        with self._saving(change.run_id, change.fence):
            return self._appended(change)

    def _appended(self, change: CheckpointChange) -> bool:
        try:
            file = self._path.open("r+b", buffering=0)
        except FileNotFoundError:
            return False
        with file:
            if _identity(file.fileno()) != (self._file, self._size):
                return False
            content = b"\n" + encoded(change)
            file.seek(self._size)
            try:
                written = file.write(content)
            except OSError:
                # Without the part that was written, the next change may follow.
                file.truncate(self._size)
                raise
            os.fsync(file.fileno())
        self._size += written
        return written == len(content)


def _identity(handle: int) -> tuple[tuple[int, int], int]:
    """Return what tells the open file *handle* from others, and its size."""
    status = os.fstat(handle)
    return (status.st_dev, status.st_ino), status.st_size


class MemoryCheckpoints:
    """Stores checkpoints in the memory of the process.

    >>> MemoryCheckpoints().load("run_42") is None
    True
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._leases: dict[str, LeaseState] = {}
        self._lock, self._clock = Lock(), clock or SystemClock()

    def acquire(self, request: LeaseRequest) -> CheckpointLease:
        """Take the run; raise RunTaken if another owner has it."""
        with self._lock:
            state = granted(self._leases.get(request.run_id), request, self._now())
            self._leases[request.run_id] = state
        return CheckpointLease(run_id=request.run_id, holder=request.holder, fence=state.fence)

    def renew(self, lease: CheckpointLease) -> None:
        """Extend *lease*; raise StaleRun if another owner has the run."""
        with self._lock:
            last = self._leases.get(lease.run_id)
            self._leases[lease.run_id] = renewed(last, lease, self._now())

    def release(self, lease: CheckpointLease, status: Ending | None) -> None:
        """Give *lease* back."""
        del status
        with self._lock:
            self._leases[lease.run_id] = released(self._leases.get(lease.run_id), lease)

    def _now(self) -> int:
        return to_microseconds(self._clock.now())

    def _check(self, run_id: str, fence: int) -> None:
        if fence:
            owned(self._leases.get(run_id), fence)

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the last saved checkpoint of *run_id*, or None."""
        with self._lock:
            found = self._logs.get(run_id)
            return found.whole() if found else None

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* in place of an earlier one."""
        self.begin(checkpoint)

    def begin(self, checkpoint: Checkpoint) -> "MemoryLog":
        """Store *checkpoint* as `save` does; return the log of its changes."""
        with self._lock:
            self._check(checkpoint.run_id, checkpoint.fence)
            log = self._logs[checkpoint.run_id] = MemoryLog(checkpoint, self._lock, self._is_last)
        return log

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        with self._lock:
            self._logs.pop(run_id, None)

    def _is_last(self, log: "MemoryLog", fence: int) -> bool:
        self._check(log.run_id, fence)
        return self._logs.get(log.run_id) is log


class MemoryLog:
    """A checkpoint and its changes, while *is_last* is true of it."""

    def __init__(
        self, checkpoint: Checkpoint, lock: Lock, is_last: Callable[["MemoryLog", int], bool]
    ) -> None:
        self.run_id, self._checkpoint = checkpoint.run_id, checkpoint
        self._changes: list[CheckpointChange] = []
        self._lock, self._is_last = lock, is_last

    def append(self, change: CheckpointChange) -> bool:
        """Store *change*; return False if another checkpoint was stored meanwhile."""
        with self._lock:
            if not self._is_last(self, change.fence):
                return False
            self._changes.append(change)
        return True

    def whole(self) -> Checkpoint:
        """Return the checkpoint with its changes."""
        if self._changes:
            self._checkpoint, self._changes = changed(self._checkpoint, self._changes), []
        return self._checkpoint
