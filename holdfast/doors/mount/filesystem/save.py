"""Save a dirty buffer as a version.

A save is sent under an id with a snapshot of the file; later writes belong to the next save. If it
fails for a temporary reason, readers still see its content and it is retried with the same id; a
newer save replaces it, unless it is in doubt, which is resolved first. If it fails permanently, it
is left in the spool, and the head shows again.
"""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from errno import EEXIST, EIO, ESTALE, errorcode
from functools import partial
from typing import Literal

from holdfast.doors.mount.errors import errno_of, failure, in_doubt, passing
from holdfast.doors.mount.filesystem.nodes import (
    BufferSnapshot,
    EditAttempt,
    File,
    content_fault,
    work_of,
)
from holdfast.doors.mount.filesystem.store_dir import StoreDirectory, StoreWriter
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.spool import NOT_FAILED, Spooled, SpoolEntry
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError, Unavailable
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Applied

_log = logging.getLogger(__name__)


class UnsavedSpool:
    """Spool bytes that cannot be saved, or not yet; a failure makes the mount unsafe."""

    def __init__(self, branch: StoreDirectory) -> None:
        self._branch, self._spool = branch, branch.context.spool

    def spool_attempt(self, file: File, attempt: EditAttempt, errno: int) -> bool:
        """Spool the content of *attempt*, which failed with *errno*.

        The new entry replaces the attempt's old one. Return False if it cannot be written.
        """
        snapshot = attempt.snapshot
        if snapshot is None:
            return True
        entry = self._put(
            file,
            snapshot,
            base=snapshot.base_sha256,
            edit_id=attempt.edit_id,
            errno=errno,
            instead_of=attempt.spooled,
        )
        if entry is not None:
            attempt.spooled = entry
        return entry is not None

    def leave_attempt(self, file: File, attempt: EditAttempt, errno: int) -> None:
        """Leave the content of *attempt* in the spool for a person."""
        attempt.left = True
        self.spool_attempt(file, attempt, errno)
        if attempt.spooled is not None:
            attempt.spooled.release()
            attempt.spooled = None

    def spool_unsaved(self, file: File, snapshot: BufferSnapshot, version: int, errno: int) -> bool:
        """Spool *snapshot*, the unsaved content of *file*, in place of its old entry.

        The entry has the edit id of the one it replaces, so that a recovery that finds both knows
        which is newer. Return False if it cannot be written.
        """
        work = work_of(file)
        attempt = work.attempt
        base = snapshot.base_sha256
        if attempt is not None and attempt.snapshot is not None:
            base = sha256_hex(attempt.snapshot.content)
        known = work.spooled_id if work.spooled is not None else ""
        edit_id = known or self._branch.context.new_edit_id()
        work.closed = snapshot
        entry = self._put(
            file, snapshot, base=base, edit_id=edit_id, errno=errno, instead_of=work.spooled
        )
        if entry is not None:
            work.spooled, work.spooled_id, work.spooled_version = entry, edit_id, version
        return entry is not None

    def secure(self, file: File, entry: SpoolEntry | None) -> bool:
        """Sync the spool entry *entry* of *file* to disk; return whether that worked."""
        if entry is None:
            return True
        self._branch.context.kernel.step_aside()
        try:
            self._spool.secure(entry)
        except OSError as error:
            self._unsafe(file, error)
            return False
        return True

    def renew(self, file: File) -> None:
        """Rewrite the spool entry of *file* after a rename."""
        work = file.work
        if work is not None and work.spooled is not None and work.closed is not None:
            errno = 0 if file.kind is Kind.TRANSIENT else EIO
            self.spool_unsaved(file, work.closed, work.spooled_version, errno)

    def leave_unsaved(self, file: File, errno: int) -> None:
        """Leave all unsaved bytes of *file* in the spool for a person, with *errno*."""
        work, buffer = work_of(file), file.buffer
        if work.attempt is not None:
            self.leave_attempt(file, work.attempt, errno)
        current = work.spooled is not None and buffer and work.spooled_version == buffer.version
        if buffer is not None and buffer.unsaved and not current:
            snapshot = buffer.snapshot()
            buffer.undo_snapshot(snapshot)
            self.spool_unsaved(file, snapshot, buffer.version, errno)
        if work.spooled is not None:
            self.secure(file, work.spooled)
            work.spooled.release()
            work.spooled = None

    def remove(self, entry: SpoolEntry) -> None:
        """Remove a spool entry whose bytes are saved, or whose file is removed."""
        self._branch.context.kernel.step_aside()
        self._spool.remove(entry)

    def drop_saved(self, file: File) -> None:
        """Remove the spool entries of *file* if another holder of its lock saved it."""
        with self._branch.lock:
            buffer, work = file.buffer, work_of(file)
            if buffer is not None and buffer.unsaved:
                return
            done = work.spooled, work.spare
            work.spooled = work.spare = work.closed = None
            work.due = False
        for entry in done:
            if entry is not None:
                self.remove(entry)

    def forget(self, file: File) -> None:
        """Remove the spool entries of *file*, which was removed or saved otherwise."""
        work = file.work
        if work is None:
            return
        work.stop_retrying()
        work.stop_grace()
        attempted = work.attempt and work.attempt.spooled
        for entry in (work.spooled, work.spare, attempted):
            if entry is not None:
                self.remove(entry)
        work.spooled = work.spare = work.attempt = work.closed = None
        work.due = False
        self._branch.unsafe.discard(file)

    def _put(
        self,
        file: File,
        snapshot: BufferSnapshot,
        *,
        base: str | None,
        edit_id: str,
        errno: int,
        instead_of: SpoolEntry | None,
    ) -> SpoolEntry | None:
        branch, appended, memory = self._branch, snapshot.appended, file.memory
        kind: Literal["save", "append", "transient"] = "save"
        if file.kind is Kind.TRANSIENT:
            kind = "transient"
        elif appended is not None:
            kind = "append"
        if snapshot.replaced and memory is not None and base is None:
            base = memory.content_sha256
        context = branch.context
        spooled = Spooled(
            store_id=branch.source.id,
            memory_id=memory.id if memory is not None else snapshot.memory_id,
            path=file.path.removeprefix(branch.prefix),
            base_sha256=base,
            kind=kind,
            errno=errorcode.get(errno, "EIO") if errno else NOT_FAILED,
            message=os.strerror(errno) if errno else "",
            edit_id=edit_id,
            at=to_rfc3339(context.clock.now()),
            session_id=context.options.session_id,
        )
        content = appended if kind == "append" and appended is not None else snapshot.content
        branch.context.kernel.step_aside()
        try:
            # Without an errno the file was only closed: it survives the process, not power loss.
            entry = self._spool.put(spooled, content, instead_of=instead_of, on_disk=bool(errno))
        except OSError as error:
            self._unsafe(file, error)
            return None
        if errno:
            branch.status.emit("spooled", spooled.memory_id, errno=spooled.errno, size=len(content))
        branch.unsafe.discard(file)
        return entry

    def _unsafe(self, file: File, error: OSError) -> None:
        """Record that the unsaved bytes of *file* are in memory only."""
        if file not in self._branch.unsafe:
            self._branch.unsafe.add(file)
            _log.error("unsaved data cannot be spooled: %s", error.strerror)
            name = errorcode.get(error.errno or 0, "EIO")
            self._branch.status.emit("degraded", state="unsafe", errno=name)


PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
"""Seconds between retries of a failed save; the last value repeats."""


class FileSaver:
    """Save the files of one store."""

    def __init__(self, branch: StoreDirectory, spool: UnsavedSpool, writer: StoreWriter) -> None:
        self._branch, self._spool, self._writer = branch, spool, writer
        self._context = branch.context
        self.forked: Callable[[File, bytes], None] = lambda _file, _content: None
        """Called with a backup that was separated from its memory, and its content."""

    def save(self, file: File) -> None:
        """Save all that was written to *file*; if that fails, spool it and raise OSError."""
        try:
            with self.locked(file) as backup:
                self.send_all(file, backup)
        except Unavailable as error:
            raise self._put_off(file, error) from error

    @contextmanager
    def locked(self, file: File) -> Generator[File | None]:
        """Hold the lock of *file* and of the backup whose memory it replaces.

        Yield that backup, or None.
        """
        backup = self._branch.heads.backups.get(file.path)
        if backup is None or backup is file:
            with self._branch.locks.of(file):
                yield None
        else:
            with self._branch.locks.of(file, backup):
                yield backup

    def send_all(self, file: File, backup: File | None = None) -> None:
        """Send the unsaved bytes of *file*; its lock and that of *backup* are held."""
        with self._branch.lock:
            buffer, work = file.buffer, work_of(file)
            if file.orphan or buffer is None:
                return
            if self._branch.refusal:
                raise failure(self._branch.refusal)
            waiting = work.attempt
            if waiting is not None and not waiting.doubt and buffer.unsaved:
                self.undo_attempt(file, waiting)
                waiting = None
        try:
            if work.unsure is not None:
                self._writer.answer(file)
            if waiting is not None:
                self._send(file, waiting)
        except OSError as failed:
            self._put_off(file, failed)
            raise
        attempt, content = self._new_attempt(file, backup)
        if attempt is not None:
            self._send(file, attempt)
            if backup is not None:
                self.forked(backup, content)

    def settle(self, file: File) -> None:
        """Resolve edits of *file* in doubt, under its lock; OSError if not possible now."""
        self._writer.answer(file)
        work = work_of(file)
        attempt = work.attempt
        if attempt is None:
            return
        if attempt.doubt:
            self._send(file, attempt)
            return
        with self._branch.lock:
            self.undo_attempt(file, attempt)
            work.due = True

    def resume(self, file: File) -> None:
        """Schedule a save of *file* that a close requested and that was delayed."""
        if file.work is not None and file.work.due:
            self._try_again(file)

    def refuse(self, file: File, number: int) -> OSError:
        """Leave unsaved bytes of *file* in the spool: the save fails permanently.

        Return the OSError with the errno *number*.
        """
        with self._branch.lock:
            buffer = file.buffer
            if buffer is None:
                return failure(number)
            work, edit_id = work_of(file), self._context.new_edit_id()
            snapshot = buffer.snapshot(work.handles)
            attempt = EditAttempt((), edit_id, self._branch.absorb, snapshot)
            attempt.spooled, work.spooled = work.spooled, None
        return self._fail_for_good(file, attempt, number)

    def undo_attempt(self, file: File, attempt: EditAttempt) -> None:
        """Merge *attempt*, which was not applied, back into the buffer; under the lock."""
        work, buffer = work_of(file), file.buffer
        work.attempt = None
        work.stop_retrying()
        if attempt.snapshot is None or buffer is None:
            return
        changed, snapshot = buffer.unsaved, attempt.snapshot
        buffer.undo_snapshot(snapshot)
        work.closed = snapshot if work.closed is None else work.closed.on(snapshot)
        if attempt.spooled is not None and work.spooled is not None:
            work.spare, work.spooled_version = attempt.spooled, -1
        elif attempt.spooled is not None:
            work.spooled, work.spooled_id = attempt.spooled, attempt.edit_id
            work.spooled_version = -1 if changed else buffer.version

    def saved(self, file: File, snapshot: BufferSnapshot, result: Applied) -> File:
        """Apply the *result* of saving *snapshot* of *file*; under the lock."""
        branch, memory = self._branch, result.memories[0]
        file = branch.heads.own(file, memory, result.seq)
        if file.memory is None:
            branch.unsaved.drop(file)
            branch.unsaved.vanish(file)
            return file
        same = snapshot.appended is None or memory.content_sha256 == sha256_hex(snapshot.content)
        work, buffer = work_of(file), file.buffer
        for handle in work.handles:
            handle.sent = False
        if same:
            branch.source.contents.put(memory.content_sha256, snapshot.content)
            for handle in work.handles:
                handle.pin(snapshot.content, memory.content_sha256, memory.id)
        elif file.parent is not None:
            branch.context.kernel.forget_content(file.path)
        if buffer is not None and not buffer.unsaved:
            branch.unsaved.drop(file)
        elif buffer is not None:
            buffer.memory_id = memory.id
            buffer.base_sha256 = memory.content_sha256 if same else sha256_hex(snapshot.content)
        branch.unsafe.discard(file)
        branch.status.saves += result.changed
        return file

    def catch_up(self, file: File) -> None:
        """Rebase the handles of *file*, and bytes appended to it, on its current head."""
        memory = file.memory
        if memory is None:
            return
        try:
            found, content = self._branch.content(file, memory)
        except HoldfastError as error:
            # They keep their old base: an edit on that is refused when it is saved.
            _log.info("the head of %s cannot be read: %s", memory.id, type(error).__name__)
            return
        with self._branch.lock:
            for handle in work_of(file).handles:
                handle.pin(content, found.content_sha256, found.id)
            buffer, budget = file.buffer, self._context.budget
            if buffer is None or not buffer.only_appended:
                return
            if budget.take(file.kind, len(content) - buffer.base_size):
                buffer.rebase(content, memory_id=found.id, base_sha256=found.content_sha256)

    def _new_attempt(self, file: File, backup: File | None) -> tuple[EditAttempt | None, bytes]:
        """Return the attempt to save all unsaved bytes, or None; and *backup*'s content.

        The bytes are saved as the memory of *backup* if there is one.
        """
        branch, work = self._branch, work_of(file)
        if branch.heads.backups.get(file.path) not in (None, file, backup):
            raise self._put_off(file, failure(EIO))
        try:
            content = b"" if backup is None else branch.loaded(backup)[1]
        except OSError as error:
            raise self._put_off(file, error) from error
        buffer = file.buffer
        if buffer is None or not buffer.unsaved:
            self._spool.drop_saved(file)
        with branch.lock:
            buffer = file.buffer
            if buffer is None or not buffer.unsaved:
                return None, content
            version, snapshot = buffer.version, buffer.snapshot(work.handles)
            work.due, work.closed = False, None
            attempt = work.attempt = self._attempt(file, snapshot, backup, content)
        fault = content_fault(snapshot.content, zeros=snapshot.zeros)
        if fault:
            raise self._fail_for_good(file, attempt, fault)
        if work.spooled is not None:
            self._adopt_entry(file, attempt, version)
        return attempt, content

    def _attempt(
        self, file: File, snapshot: BufferSnapshot, backup: File | None, content: bytes
    ) -> EditAttempt:
        memory = file.memory if backup is None or backup.memory is None else backup.memory
        appended = snapshot.appended
        edit = Save(
            path=file.path.removeprefix(self._branch.prefix),
            content=snapshot.content.decode(errors="replace"),
            memory_id=snapshot.memory_id if memory is None else memory.id,
            base_sha256=None if snapshot.replaced else snapshot.base_sha256,
            appended=None if appended is None else appended.decode(errors="replace"),
        )

        def commit(applied: list[Applied]) -> None:
            work_of(file).attempt = None
            if backup is not None:
                self._branch.unsaved.fork(backup, content)
            self.saved(file, snapshot, applied[0])

        return EditAttempt((edit,), self._context.new_edit_id(), commit, snapshot)

    def _adopt_entry(self, file: File, attempt: EditAttempt, version: int) -> None:
        """Reuse the spool entry of *file* for *attempt*, with the entry's edit id.

        So a crash between the response and the entry's removal does not apply the edit twice.
        """
        work = work_of(file)
        entry, spare = work.spooled, work.spare
        work.spooled = work.spare = None
        attempt.spooled, attempt.edit_id = entry, work.spooled_id or attempt.edit_id
        if work.spooled_version != version:
            self._spool.spool_attempt(file, attempt, EIO)
            if spare is not None:
                self._spool.remove(spare)

    def _send(self, file: File, attempt: EditAttempt) -> None:
        try:
            self._branch.apply(attempt.edits, attempt.edit_id, attempt.commit)
        except Exception as error:
            raise self._failed(file, attempt, error) from error
        work, snapshot, memory = work_of(file), attempt.snapshot, file.memory
        if work.retry is not None:
            work.stop_retrying()
        work.tries = 0
        if attempt.spooled is not None:
            self._spool.remove(attempt.spooled)
        if work.due:
            self._try_again(file)
        if attempt.tries:
            self._branch.status.emit("recovered", memory.id if memory else None)
        if snapshot is not None and snapshot.appended is not None and memory is not None:
            now = memory.content_sha256
            behind = any(handle.sha256 != now for handle in work.handles)
            if behind:
                self.catch_up(file)

    def _failed(self, file: File, attempt: EditAttempt, error: Exception) -> OSError:
        """Spool *attempt* after *error* and schedule a retry; return the OSError to raise."""
        branch, number = self._branch, errno_of(error)
        branch.noted(error)
        if branch.status.deleted:
            return failure(ESTALE)
        if not isinstance(error, HoldfastError | OSError):
            _log.error("a save failed", exc_info=error)
        if not passing(error):
            return self._fail_for_good(file, attempt, number)
        attempt.doubt = attempt.doubt or in_doubt(error)
        attempt.tries += 1
        if attempt.spooled is not None:
            self._spool.secure(file, attempt.spooled)
        elif not attempt.left:
            self._spool.spool_attempt(file, attempt, number)
        if attempt.tries == 1:
            snapshot = attempt.snapshot
            size = 0 if snapshot is None else len(snapshot.content)
            branch.status.fail(number, memory_id=file.memory.id if file.memory else None, size=size)
        self._try_again(file)
        return failure(number)

    def _fail_for_good(self, file: File, attempt: EditAttempt, number: int) -> OSError:
        """Leave *attempt* in the spool for a person, and show the head again."""
        branch, work, snapshot = self._branch, work_of(file), attempt.snapshot
        self._spool.leave_attempt(file, attempt, number)
        memory_id = file.memory.id if file.memory else None
        branch.status.fail(
            number, memory_id=memory_id, size=len(snapshot.content) if snapshot else 0
        )
        if number in (ESTALE, EEXIST):
            branch.status.conflict(number, memory_id=memory_id)
        with branch.lock:
            work.attempt = None
            work.stop_retrying()
            for handle in work.handles:
                if handle.sent:
                    handle.sent, handle.failed = False, number
            buffer = file.buffer
            if buffer is not None and snapshot is not None and buffer.unsaved:
                buffer.memory_id = snapshot.memory_id
                buffer.base_sha256 = sha256_hex(snapshot.content)
            else:
                branch.unsaved.drop(file)
            if file.memory is None and file.buffer is None:
                branch.unsaved.vanish(file)
                for handle in work.handles:
                    handle.pin(b"", "", None)
            elif file.parent is not None:
                branch.context.kernel.forget_content(file.path)
        if work.handles or file.buffer is not None:
            self.catch_up(file)
        return failure(number)

    def _put_off(self, file: File, error: Exception) -> OSError:
        """Spool the bytes of *file* that *error* kept from being sent; retry later."""
        number = errno_of(error)
        work = work_of(file)
        with self._branch.lock:
            buffer = file.buffer
            if buffer is None or not buffer.unsaved or file.orphan:
                return failure(number)
            snapshot, version = buffer.snapshot(), buffer.version
            buffer.undo_snapshot(snapshot)
        fault = content_fault(snapshot.content, zeros=snapshot.zeros)
        self._spool.spool_unsaved(file, snapshot, version, fault or number)
        # The holder of the file's lock may have saved it meanwhile; then the next try drops this.
        work.due = True
        self._branch.status.fail(number, size=len(snapshot.content))
        self._try_again(file)
        return failure(number)

    def _try_again(self, file: File) -> None:
        work = work_of(file)
        if self._context.stopping or work.retry is not None:
            return
        pause = PAUSES[min(work.tries, len(PAUSES) - 1)]
        work.tries += 1
        work.retry = self._context.later.after(pause, partial(self._retry, file), key=file.inode)

    def _retry(self, file: File) -> None:
        work = work_of(file)
        work.retry = None
        if self._context.stopping or self._branch.refusal or not (work.attempt or work.due):
            return
        self._branch.status.retried += 1
        try:
            with self.locked(file) as backup:
                if work.attempt is not None:
                    self._send(file, work.attempt)
                attempt, content = self._new_attempt(file, backup) if work.due else (None, b"")
                if attempt is not None:
                    self._send(file, attempt)
                    if backup is not None:
                        self.forked(backup, content)
        except (OSError, Unavailable) as error:
            _log.debug("still not saved: %s", error)
            if work.attempt is not None or work.due:
                self._try_again(file)
