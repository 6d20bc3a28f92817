"""Recover unsaved bytes after a stop or a crash."""

import logging
from collections.abc import Callable
from errno import EIO, EROFS, errorcode
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from holdfast.doors.mount.errors import PASSING, passing
from holdfast.doors.mount.filesystem.nodes import File, content_fault, work_of
from holdfast.doors.mount.filesystem.transient import StorePersistence
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.spool import NOT_FAILED, Spooled, SpoolEntry
from holdfast.ground.errors import HoldfastError, IdempotencyMismatch
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Memory


class Shutdown:
    """Save or spool the unsaved files of one store when its mount ends."""

    def __init__(self, store: StorePersistence) -> None:
        self._store, self._branch = store, store.branch
        self._away = False
        """Whether the storage failed once: no further save is tried."""

    def run(self, over: Callable[[], bool]) -> int:
        """Save all pending files until *over*(); return how many were spooled instead."""
        spooled = 0
        for file in self._waiting():
            saved = not over() and not self._away and self._save(file)
            if not saved or file.unsaved:
                spooled += self._leave(file)
        return spooled

    def _waiting(self) -> list[File]:
        """Return the files with pending work, backups first."""
        with self._branch.lock:
            files = [
                file for file in self._branch.tree.root.files() if file.work and not file.orphan
            ]
        waiting = [file for file in files if file.unsaved or work_of(file).stored_path]
        return sorted(waiting, key=lambda file: work_of(file).stored_path is None)

    def _save(self, file: File) -> bool:
        transient = file.kind is Kind.TRANSIENT
        try:
            if work_of(file).stored_path is not None:
                self._store.grace.commit(file)
            if file.unsaved:
                self._store.saver.save(file)
        except OSError as error:
            self._away = error.errno in PASSING
            return False
        if transient and file.memory is not None:
            self._branch.status.materialise(file.memory.id)
        return True

    def _leave(self, file: File) -> bool:
        """Spool *file*; return False if another run already does."""
        with self._branch.lock:
            if file in self._store.left:
                return False
            self._store.left.add(file)
            work_of(file).stop_retrying()
            work_of(file).stop_grace()
            unsaved = file.unsaved
        if unsaved:
            errno = EROFS if self._branch.refusal else EIO
            self._store.spool.leave_unsaved(file, errno)
        return True


_PASSING = frozenset(errorcode[number] for number in PASSING) | {NOT_FAILED}

_log = logging.getLogger(__name__)


AGAIN_SECONDS = 1.0
"""Seconds until a save that failed at the start is retried."""

Entry = tuple[SpoolEntry, Spooled, bytes]


class LeftEntry(Struct, frozen=True):
    """A spool entry that conflicts with the store and is left for a person."""

    entry: Path
    path: str
    errno: str


class _Before(NamedTuple):
    """An entry that was just saved: its base, its content, and the head after it.

    A later entry on the same base replaced it, and the mount was killed before it removed this
    one.
    """

    base_sha256: str | None
    content: bytes
    sha256: str


class Recovery:
    """Save the spool entries of one store, the oldest first."""

    def __init__(self, store: StorePersistence) -> None:
        self._branch = store.branch
        self._waiting: list[Entry] = []
        self._before: dict[str, _Before] = {}

    def run(self) -> list[LeftEntry]:
        """Save what an earlier mount could not; return the entries left for a person."""
        branch, spool = self._branch, self._branch.context.spool
        if branch.refusal:
            return []
        return self._try(self._newest(spool.take(branch.source.id)))

    def _newest(self, entries: list[Entry]) -> list[Entry]:
        """Remove entries replaced by a newer one with the same id; return the rest.

        Both exist if the mount was killed before it removed the older.
        """
        newest = {spooled.edit_id: held for held, spooled, _ in entries}
        for held, spooled, _ in entries:
            if newest[spooled.edit_id] is not held:
                self._branch.context.spool.remove(held)
        return [entry for entry in entries if newest[entry[1].edit_id] is entry[0]]

    def end(self) -> None:
        """Release entries that could not be saved yet, for the next mount."""
        with self._branch.lock:
            waiting, self._waiting = self._waiting, []
        for held, _, _ in waiting:
            held.release()

    def _try(self, entries: list[Entry]) -> list[LeftEntry]:
        """Save *entries* in their order; once the storage fails, the rest waits."""
        branch, spool = self._branch, self._branch.context.spool
        left: list[LeftEntry] = []
        for index, (held, spooled, content) in enumerate(entries):
            try:
                saved = self._save(spooled, content)
            except HoldfastError as error:
                _log.info("not recovered yet: %s", type(error).__name__)
                self._wait(entries[index:])
                break
            if saved:
                spool.remove(held)
                branch.status.emit("recovered", spooled.memory_id, size_bytes=len(content))
            else:
                held.release()
                left.append(LeftEntry(held.path, spooled.path, spooled.errno))
                _log.warning("left in the spool: %s", held.path)
        return left

    def _wait(self, entries: list[Entry]) -> None:
        context = self._branch.context
        with self._branch.lock:
            self._waiting = entries
        if context.stopping:
            self.end()
        else:
            context.later.after(AGAIN_SECONDS, self._again, key=(self._branch.slug, "recovery"))

    def _again(self) -> None:
        with self._branch.lock:
            waiting, self._waiting = self._waiting, []
        self._try(waiting)

    def _save(self, spooled: Spooled, content: bytes) -> bool:
        """Save *content* and return whether the store has it now.

        Raise HoldfastError if a retry may succeed.
        """
        if spooled.errno not in _PASSING or content_fault(content, zeros=True):
            return False
        branch, head = self._branch, self._head(spooled)
        whole = spooled.kind != "append"
        if whole and head is not None and head.content_sha256 == sha256_hex(content):
            return True
        try:
            edit = self._edit(spooled, content, head)
            if edit is not None:
                branch.apply((edit,), spooled.edit_id, branch.absorb)
                self._saved(spooled, content)
        except IdempotencyMismatch:
            # It was already applied, as a different edit with the same id.
            return True
        except HoldfastError as error:
            if passing(error):
                raise
            _log.warning("not recovered: %s", type(error).__name__)
            return False
        return edit is not None

    def _saved(self, spooled: Spooled, content: bytes) -> None:
        head = self._head(spooled)
        if head is None:
            return
        if spooled.kind == "transient":
            self._branch.status.materialise(head.id)
        self._before[spooled.path] = _Before(spooled.base_sha256, content, head.content_sha256)

    def _head(self, spooled: Spooled) -> Memory | None:
        """Return the memory of the entry, found by its id, else by its path."""
        heads, tree = self._branch.heads, self._branch.tree
        file = heads.by_id.get(spooled.memory_id or "")
        if file is None:
            node = tree.at(self._branch.prefix + spooled.path)
            file = node if isinstance(node, File) else None
        return None if file is None else file.memory

    def _edit(self, spooled: Spooled, content: bytes, head: Memory | None) -> Save | None:
        """Return the edit that saves the entry; None if the store has changed since."""
        path, memory_id, base = spooled.path, spooled.memory_id, spooled.base_sha256
        before = self._before.get(path)
        if head is None or before is None or before.sha256 != head.content_sha256:
            before = None
        again = before is not None and before.base_sha256 == base
        if spooled.kind == "append":
            if before is not None and again and content.startswith(before.content):
                content = content[len(before.content) :]
            return self._append(path, memory_id, content.decode(), head)
        if head is None:
            return Save(path=path, content=content.decode()) if memory_id is None else None
        if head.content_sha256 != base and not again:
            return None
        return Save(
            path=path,
            content=content.decode(),
            memory_id=memory_id or head.id,
            base_sha256=head.content_sha256,
        )

    def _append(self, path: str, memory_id: str | None, text: str, head: Memory | None) -> Save:
        """Return the edit that appends *text* to *head*; *text* alone if that was deleted."""
        if head is None:
            return Save(
                path=path, content=text, memory_id=memory_id, base_sha256=_NONE, appended=text
            )
        before = self._branch.source.content(head)
        return Save(
            path=path,
            content=(before.content or "") + text,
            memory_id=before.id,
            base_sha256=before.content_sha256,
            appended=text,
        )


_NONE = "0" * 64
"""A hash that no head has, so that appended text is saved alone if its memory was deleted."""
