"""Checkpoints of runs: in memory, in files, in an engine.

Saving may take as long as a disk or a database does, so it is done on a thread, and what is
complete meanwhile is part of the next save.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import mkstemp
from threading import Lock
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from holdfast.ground.errors import CheckpointUnreadable
from holdfast.ground.json_values import DEEPEST, is_nested_over
from holdfast.ground.permissions import create_folders, sync_folder
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.keys import Kind
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The progress of a run at *saved_at*, in ms since 1970.

    `parts` are hashes of what the run was begun with, by name, and `plan_hash` is the hash of them
    all. `completed_steps` has the finished items of a fan-out too, as `<step>.<item>`.
    """

    run_id: str
    plan_hash: str
    parts: Mapping[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    entries: tuple[RunEntry, ...]
    saved_at: int


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


def hashed(value: Any) -> str:
    """Return the SHA-256 of *value* as canonical JSON: members sorted, no white space."""
    encoded = msgspec.json.encode(value, order="deterministic")
    return sha256(encoded).hexdigest()


def differing(stored: Mapping[str, str], requested: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of parts that differ, in the order of *requested*."""
    names = dict.fromkeys([*requested, *stored])
    return tuple(name for name in names if stored.get(name) != requested.get(name))


FORMAT = "holdfast.checkpoint"
VERSION = 1


class Unreadable(ValueError):
    """The bytes are no checkpoint; the text gives the reason."""


class _Header(Struct, frozen=True, kw_only=True):
    """The first line: the format of the rest, and its hash when it was written."""

    format: str
    version: int
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


class _Body(Struct, frozen=True, kw_only=True):
    """A checkpoint with its entries as JSON."""

    run_id: str
    plan_hash: str
    parts: dict[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    saved_at: int
    entries: tuple[_Entry, ...]


def encoded(checkpoint: Checkpoint) -> bytes:
    """Return *checkpoint* as bytes."""
    body = msgspec.json.encode(
        {**asdict(checkpoint), "entries": [_written(each) for each in checkpoint.entries]}
    )
    header = _Header(format=FORMAT, version=VERSION, sha256=sha256(body).hexdigest())
    return msgspec.json.encode(header) + b"\n" + body


def decoded(content: bytes) -> Checkpoint:
    """Return the checkpoint in *content*; raise Unreadable if it is not intact."""
    first, _, body = content.partition(b"\n")
    if is_nested_over(content):
        raise Unreadable(f"it holds a value that is nested over {DEEPEST} deep")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable("it does not begin as a checkpoint does") from error
    if header.format != FORMAT or header.version != VERSION:
        raise Unreadable(f"it is {header.format} version {header.version}, of another release")
    if sha256(body).hexdigest() != header.sha256:
        raise Unreadable("it is damaged or cut short")
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"it has another shape: {error}") from error
    facts = asdict(found)
    return Checkpoint(entries=tuple(map(_read, facts.pop("entries"))), **facts)


def _written(entry: RunEntry) -> dict[str, Any]:
    facts = asdict(entry)
    return facts | {"value": Raw(facts.pop("value_json"))}


def _read(entry: _Entry) -> RunEntry:
    facts = asdict(entry)
    return RunEntry(value_json=bytes(facts.pop("value")), **facts)


class EngineCheckpoints:
    """Stores checkpoints in the workspace that *hf* is opened for.

    *hf* is opened on a database; through a server it raises Unsupported.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._rows = hf.runs.checkpoints

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the last saved checkpoint of *run_id*, or None."""
        content = self._rows.load(run_id)
        if content is None:
            return None
        where = f"checkpoint of {run_id}"
        try:
            found = decoded(content)
        except Unreadable as error:
            raise CheckpointUnreadable(where, str(error)) from error
        if found.run_id != run_id:
            raise CheckpointUnreadable(where, f"it is of the run {found.run_id}")
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* in place of an earlier one."""
        self._rows.save(checkpoint.run_id, encoded(checkpoint))

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        self._rows.delete(run_id)


BESIDE = ".new"
"""The end of the name of a file that is not complete yet."""

NAME_LENGTH = 120
"""Characters of a run's id in the name of its file; a longer id adds its hash."""


class FileCheckpoints:
    """Stores checkpoints in *directory*, which is made for the first one.

    A file that cannot be read raises CheckpointUnreadable; it never counts as absent. Only its
    owner may read it: it holds what the run knew.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)

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
            found = decoded(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, Unreadable) as error:
            raise CheckpointUnreadable(str(path), str(error)) from error
        if found.run_id != run_id:
            raise CheckpointUnreadable(str(path), f"it is of the run {found.run_id}")
        return found

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint*: write a new file, sync it, rename it into place."""
        path = self.path(checkpoint.run_id)
        if not self._directory.exists():
            create_folders(self._directory)
        handle, beside = mkstemp(BESIDE, f"{path.name}.", self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encoded(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            Path(beside).replace(path)
        finally:
            Path(beside).unlink(missing_ok=True)
        sync_folder(self._directory)

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        path = self.path(run_id)
        # A process that was killed while it saved left what it had written so far.
        there = [path, *self._directory.glob(f"{path.name}.*{BESIDE}")]
        for each in there:
            each.unlink(missing_ok=True)
        if self._directory.exists():
            sync_folder(self._directory)


log = logging.getLogger(__name__)


class CheckpointWriter:
    """Saves the checkpoints of one run: what is complete is part of the next save.

    `failed` is the reason of the last save that failed; a run goes on without its checkpoint.
    """

    def __init__(
        self, checkpoints: Checkpoints, context: Context, parts: Mapping[str, str]
    ) -> None:
        self._checkpoints, self._context = checkpoints, context
        self._parts, self._plan_hash = parts, hashed(parts)
        self._tasks: dict[str, None] = {}
        self._steps: dict[str, None] = {}
        self._requested = self._begun = self._done = 0
        self._saving: asyncio.Task[None] | None = None
        self.failed: str | None = None
        self.restored_steps: frozenset[str] = frozenset()
        self.restored_tasks: frozenset[str] = frozenset()

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Restore the memory of the run and what was complete from *checkpoint*."""
        self._context.memory.restore(checkpoint.entries)
        there = {entry.key for entry in checkpoint.entries if not entry.failed}
        for step in checkpoint.completed_steps:
            if keys.step(step) in there:
                self._steps[step] = None
        for task in checkpoint.completed_tasks:
            if keys.task(task) in there:
                self._tasks[task] = None
        self.restored_steps, self.restored_tasks = frozenset(self._steps), frozenset(self._tasks)

    def note(self, step: str, *, task: str | None = None) -> None:
        """Mark *step* as complete for the next save, and *task* with it."""
        self._steps[step] = None
        if task is not None:
            self._tasks[task] = None
        self._request()

    async def keep(self) -> None:
        """Return when everything noted is saved, or its save has failed."""
        wanted = self._request()
        while self._done < wanted:
            await asyncio.shield(self._ensure())

    async def close(self) -> None:
        """Return when no save is under way, even when cancelled meanwhile."""
        again: asyncio.CancelledError | None = None
        while self._saving is not None:
            try:
                await asyncio.shield(self._saving)
            except asyncio.CancelledError as error:
                again = error
        if again:
            raise again

    def _request(self) -> int:
        self._requested += 1
        self._ensure()
        return self._requested

    def _ensure(self) -> asyncio.Task[None]:
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())
        return self._saving

    async def _save(self) -> None:
        try:
            while self._begun < self._requested:
                self._begun = self._requested
                await self._tried(self._checkpoints.save, self._now())
                self._done = self._begun
        finally:
            self._saving = None

    def _now(self) -> Checkpoint:
        # Names first, entries after: each name that is complete has its entry.
        steps, tasks = tuple(self._steps), tuple(self._tasks)
        return Checkpoint(
            run_id=self._context.run_id,
            plan_hash=self._plan_hash,
            parts=self._parts,
            completed_tasks=tasks,
            completed_steps=steps,
            entries=tuple(self._context.memory.snapshot()),
            saved_at=self._context.now(),
        )

    async def _tried(self, save: Callable[[Checkpoint], None], checkpoint: Checkpoint) -> None:
        try:
            await asyncio.to_thread(save, checkpoint)
        except Exception as error:
            # A failed save, for any reason, does not fail the run.
            log.warning("the checkpoint of %s was not saved", checkpoint.run_id, exc_info=True)
            self.failed = f"{type(error).__name__}: {error}"
            message = f"The checkpoint was not saved: {self.failed}"
            self._context.tell_soon(LogUpdate(severity="error", content=message))


class MemoryCheckpoints:
    """Stores checkpoints in the memory of the process.

    >>> MemoryCheckpoints().load("run_42") is None
    True
    """

    def __init__(self) -> None:
        self._checkpoints: dict[str, Checkpoint] = {}
        self._lock = Lock()

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the last saved checkpoint of *run_id*, or None."""
        with self._lock:
            return self._checkpoints.get(run_id)

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* in place of an earlier one."""
        with self._lock:
            self._checkpoints[checkpoint.run_id] = checkpoint

    def delete(self, run_id: str) -> None:
        """Delete the checkpoint of *run_id*."""
        with self._lock:
            self._checkpoints.pop(run_id, None)
