"""Putting the unsaved bytes of one store's files into the spool, and telling of it."""

import logging
import os
from errno import EIO, errorcode
from typing import Literal

from holdfast.doors.mount.filesystem.nodes import EditAttempt, File, Frozen, work_of
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.names import Kind
from holdfast.doors.mount.storage.spool import NOT_FAILED, Spooled, SpoolEntry
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.text import sha256_hex

_log = logging.getLogger(__name__)


class Keeping:
    """Keeps what cannot be saved, or not yet. What cannot even be kept makes the mount unsafe."""

    def __init__(self, branch: Branch) -> None:
        self._branch, self._spool = branch, branch.surroundings.spool

    def keep_attempt(self, file: File, attempt: EditAttempt, errno: int) -> bool:
        """Keep what *attempt* saves, because of *errno*, in place of its entry; tell if it is."""
        frozen = attempt.frozen
        if frozen is None:
            return True
        kept = self._put(
            file,
            frozen,
            base=frozen.base_sha256,
            edit_id=attempt.edit_id,
            errno=errno,
            instead_of=attempt.kept,
        )
        if kept is not None:
            attempt.kept = kept
        return kept is not None

    def leave_attempt(self, file: File, attempt: EditAttempt, errno: int) -> None:
        """Leave what *attempt* could not save for a person."""
        attempt.left = True
        self.keep_attempt(file, attempt, errno)
        if attempt.kept is not None:
            self._spool.release(attempt.kept)
            attempt.kept = None

    def keep_unsaved(self, file: File, frozen: Frozen, version: int, errno: int) -> bool:
        """Keep *frozen*, which is unsaved of *file*, in place of its entry; tell if it is.

        The entry has the id of the one before it, so that who finds both knows which is newer.
        """
        work = work_of(file)
        attempt = work.attempt
        base = frozen.base_sha256
        if attempt is not None and attempt.frozen is not None:
            base = sha256_hex(attempt.frozen.content)
        known = work.kept_id if work.kept is not None else ""
        edit_id = known or self._branch.surroundings.new_edit_id()
        work.closed = frozen
        kept = self._put(
            file, frozen, base=base, edit_id=edit_id, errno=errno, instead_of=work.kept
        )
        if kept is not None:
            work.kept, work.kept_id, work.kept_version = kept, edit_id, version
        return kept is not None

    def secure(self, file: File, kept: SpoolEntry | None) -> bool:
        """Have what is kept of *file* outlive a loss of power; tell if it does."""
        if kept is None:
            return True
        self._branch.kernel().step_aside()
        try:
            self._spool.secure(kept)
        except OSError as error:
            self._unsafe(file, error)
            return False
        return True

    def renew(self, file: File) -> None:
        """Keep what is kept of *file* as what it is by now, after it was renamed."""
        work = file.work
        if work is not None and work.kept is not None and work.closed is not None:
            errno = 0 if file.kind is Kind.TRANSIENT else EIO
            self.keep_unsaved(file, work.closed, work.kept_version, errno)

    def leave_unsaved(self, file: File, errno: int) -> None:
        """Leave all that is unsaved of *file* for a person, because of *errno*."""
        work, buffer = work_of(file), file.buffer
        if work.attempt is not None:
            self.leave_attempt(file, work.attempt, errno)
        current = work.kept is not None and buffer and work.kept_version == buffer.version
        if buffer is not None and buffer.unsaved and not current:
            frozen = buffer.freeze()
            buffer.thaw(frozen)
            self.keep_unsaved(file, frozen, buffer.version, errno)
        if work.kept is not None:
            self.secure(file, work.kept)
            self._spool.release(work.kept)
            work.kept = None

    def remove(self, kept: SpoolEntry | None) -> None:
        """Remove an entry whose bytes are saved, or whose file is removed."""
        if kept is not None:
            self._branch.kernel().step_aside()
            self._spool.remove(kept)

    def drop_saved(self, file: File) -> None:
        """Remove what is kept of *file* if all of it is saved, by who had its turn meanwhile."""
        with self._branch.lock:
            buffer, work = file.buffer, work_of(file)
            if buffer is not None and buffer.unsaved:
                return
            done = work.kept, work.spare
            work.kept = work.spare = work.closed = None
            work.due = False
        for kept in done:
            self.remove(kept)

    def forget(self, file: File) -> None:
        """Remove what is kept of *file*, which is removed or saved otherwise."""
        work = file.work
        if work is None:
            return
        work.stop_retrying()
        work.stop_grace()
        self.remove(work.kept)
        self.remove(work.spare)
        if work.attempt is not None:
            self.remove(work.attempt.kept)
        work.kept = work.spare = work.attempt = work.closed = None
        work.due = False
        self._branch.unsafe.discard(file)

    def _put(
        self,
        file: File,
        frozen: Frozen,
        *,
        base: str | None,
        edit_id: str,
        errno: int,
        instead_of: SpoolEntry | None,
    ) -> SpoolEntry | None:
        branch, appended, memory = self._branch, frozen.appended, file.memory
        kind: Literal["save", "append", "transient"] = "save"
        if file.kind is Kind.TRANSIENT:
            kind = "transient"
        elif appended is not None:
            kind = "append"
        if frozen.replaced and memory is not None and base is None:
            base = memory.content_sha256
        around = branch.surroundings
        spooled = Spooled(
            store_id=branch.source.id,
            memory_id=memory.id if memory is not None else frozen.memory_id,
            path=branch.in_store(file.path),
            base_sha256=base,
            kind=kind,
            errno=errorcode.get(errno, "EIO") if errno else NOT_FAILED,
            message=os.strerror(errno) if errno else "",
            edit_id=edit_id,
            at=to_rfc3339(around.clock.now()),
            session_id=around.options.session_id,
        )
        content = appended if kind == "append" and appended is not None else frozen.content
        branch.kernel().step_aside()
        try:
            # What did not fail was only closed: that is to outlive the process, and no more.
            kept = self._spool.put(spooled, content, instead_of=instead_of, on_disk=bool(errno))
        except OSError as error:
            self._unsafe(file, error)
            return None
        if errno:
            branch.counts.tell("spooled", spooled.memory_id, errno=spooled.errno, size=len(content))
        branch.unsafe.discard(file)
        return kept

    def _unsafe(self, file: File, error: OSError) -> None:
        """Take in that what is unsaved of *file* is in memory alone."""
        if file not in self._branch.unsafe:
            self._branch.unsafe.add(file)
            _log.error("unsaved data cannot be spooled: %s", error.strerror)
            name = errorcode.get(error.errno or 0, "EIO")
            self._branch.counts.tell("degraded", state="unsafe", errno=name)
