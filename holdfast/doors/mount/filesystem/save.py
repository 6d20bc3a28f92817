"""Saving one file: in order, once, and kept where it fails.

A save is sent under an id and takes the file as it is then; what is written meanwhile is for the
next. One that fails for a passing reason stays what readers see and is sent again with the same
id; a newer save takes its place, unless it may have been done, for then it is answered first. One
that fails for good is left in the spool, and the head shows again.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from errno import EEXIST, EIO, ESTALE
from functools import partial

from holdfast.doors.mount.errors import errno_of, failure, passing
from holdfast.doors.mount.filesystem.keeping import Keeping
from holdfast.doors.mount.filesystem.nodes import EditAttempt, File, Frozen, content_fault, work_of
from holdfast.doors.mount.filesystem.sending import StoreWriter, in_doubt
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.ground.errors import HoldfastError, Unavailable
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Applied

PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
"""Seconds until a save that failed is tried again; the last again and again."""

_log = logging.getLogger(__name__)


class Saves:
    """Saves the files of one store."""

    def __init__(self, branch: Branch, keeping: Keeping, sending: StoreWriter) -> None:
        self._branch, self._keeping, self._sending = branch, keeping, sending
        self._around = branch.surroundings
        self.parted: Callable[[File, bytes], None] = lambda _file, _content: None
        """Told of a backup that is no longer its memory, but a file with the content it had."""

    def save(self, file: File) -> None:
        """Save all that was written to *file*; OSError once what failed is kept."""
        try:
            with self.turn(file) as aside:
                self.send_all(file, aside)
        except Unavailable as error:
            raise self._put_off(file, error) from error

    @contextmanager
    def turn(self, file: File) -> Generator[File | None]:
        """Have the turn of *file*, and of the memory that was put aside for it, which it gives."""
        aside = self._branch.heads.aside.get(file.path)
        if aside is None or aside is file:
            with self._branch.turns.of(file):
                yield None
        else:
            with self._branch.turns.of(file, aside):
                yield aside

    def send_all(self, file: File, aside: File | None = None) -> None:
        """Send what is unsaved of *file*, whose turn it is, and that of *aside*."""
        with self._branch.lock:
            buffer, work = file.buffer, work_of(file)
            if file.orphan or buffer is None:
                return
            self._branch.demand_writable()
            waiting = work.attempt
            if waiting is not None and not waiting.doubt and buffer.unsaved:
                self.thaw(file, waiting)
                waiting = None
        try:
            self._sending.answer(file)
            if waiting is not None:
                self._send(file, waiting)
        except OSError as failed:
            self._put_off(file, failed)
            raise
        self._send_new(file, aside)

    def settle(self, file: File) -> None:
        """Let nothing be in doubt about *file*, whose turn it is; OSError if that cannot be."""
        self._sending.answer(file)
        work = work_of(file)
        attempt = work.attempt
        if attempt is None:
            return
        if attempt.doubt:
            self._send(file, attempt)
            return
        with self._branch.lock:
            self.thaw(file, attempt)
            work.due = True

    def resume(self, file: File) -> None:
        """Save later what a close of *file* asked for and what was held up."""
        if file.work is not None and file.work.due:
            self._try_again(file)

    def refuse(self, file: File, number: int) -> OSError:
        """Leave what is unsaved of *file* in the spool: it fails for good with *number*."""
        with self._branch.lock:
            buffer = file.buffer
            if buffer is None:
                return failure(number)
            attempt = EditAttempt(
                (), self._around.new_edit_id(), self._branch.absorb, buffer.freeze()
            )
            attempt.kept, work_of(file).kept = work_of(file).kept, None
            for handle in work_of(file).handles:
                handle.send()
        return self._fail_for_good(file, attempt, number)

    def thaw(self, file: File, attempt: EditAttempt) -> None:
        """Take *attempt*, which was not done, back into what is unsaved; under the lock."""
        work, buffer = work_of(file), file.buffer
        work.attempt = None
        work.stop_retrying()
        if attempt.frozen is None or buffer is None:
            return
        changed, frozen = buffer.unsaved, attempt.frozen
        buffer.thaw(frozen)
        work.closed = frozen if work.closed is None else work.closed.on(frozen)
        if attempt.kept is not None and work.kept is not None:
            work.spare, work.kept_version = attempt.kept, -1
        elif attempt.kept is not None:
            work.kept, work.kept_id = attempt.kept, attempt.edit_id
            work.kept_version = -1 if changed else buffer.version

    def saved(self, file: File, frozen: Frozen, result: Applied) -> File:
        """Take in that *frozen* of *file* was saved, as *result* says; under the lock."""
        branch, memory = self._branch, result.memories[0]
        file = branch.heads.own(file, memory, result.seq)
        if file.memory is None:
            branch.unsaved.drop(file)
            branch.unsaved.vanish(file)
            return file
        same = frozen.appended is None or memory.content_sha256 == sha256_hex(frozen.content)
        work, buffer = work_of(file), file.buffer
        for handle in work.handles:
            handle.sent = False
        if same:
            branch.source.keep(memory.content_sha256, frozen.content)
            for handle in work.handles:
                handle.pin(frozen.content, memory.content_sha256, memory.id)
        elif file.parent is not None:
            branch.kernel().forget_content(file.path)
        if buffer is not None and not buffer.unsaved:
            branch.unsaved.drop(file)
        elif buffer is not None:
            buffer.memory_id = memory.id
            buffer.base_sha256 = memory.content_sha256 if same else sha256_hex(frozen.content)
        branch.unsafe.discard(file)
        branch.counts.saves += result.changed
        return file

    def catch_up(self, file: File) -> None:
        """Let *file*'s handles, and what is appended to it, stand on its head as it is by now."""
        memory = file.memory
        if memory is None:
            return
        try:
            found, content = self._branch.content(file, memory)
        except HoldfastError as error:
            # They stand on what they had: what is edited there is refused at its own save.
            _log.info("the head of %s cannot be read: %s", memory.id, type(error).__name__)
            return
        with self._branch.lock:
            for handle in work_of(file).handles:
                handle.pin(content, found.content_sha256, found.id)
            buffer = file.buffer
            if buffer is not None and buffer.only_appended and self._grow(file, content):
                buffer.rebase(content, memory_id=found.id, base_sha256=found.content_sha256)

    def _grow(self, file: File, content: bytes) -> bool:
        """Take room for *content* in place of the base of what is appended to *file*."""
        buffer = file.buffer
        more = len(content) - (buffer.base_size if buffer is not None else 0)
        if more > 0:
            return self._branch.unsaved.room(file).take(more)
        self._branch.unsaved.room(file).give(-more)
        return True

    def _send_new(self, file: File, aside: File | None) -> None:
        branch, work = self._branch, work_of(file)
        if branch.heads.aside.get(file.path) not in (None, file, aside):
            raise self._put_off(file, failure(EIO))
        try:
            content = b"" if aside is None else branch.loaded(aside)[1]
        except OSError as error:
            raise self._put_off(file, error) from error
        self._keeping.drop_saved(file)
        with branch.lock:
            buffer = file.buffer
            if buffer is None or not buffer.unsaved:
                return
            version, frozen = buffer.version, buffer.freeze()
            for handle in work.handles:
                handle.send()
            work.due, work.closed = False, None
            attempt = work.attempt = self._attempt(file, frozen, aside, content)
        fault = content_fault(frozen.content, zeros=frozen.zeros)
        if fault:
            raise self._fail_for_good(file, attempt, fault)
        self._adopt_kept(file, attempt, version)
        self._send(file, attempt)
        if aside is not None:
            self.parted(aside, content)

    def _attempt(
        self, file: File, frozen: Frozen, aside: File | None, content: bytes
    ) -> EditAttempt:
        """Return how *frozen* is saved: on the memory of *aside*, if that was put aside for it."""
        memory_id = file.memory.id if file.memory is not None else frozen.memory_id
        if aside is not None and aside.memory is not None:
            memory_id = aside.memory.id
        appended = frozen.appended
        edit = Save(
            path=self._branch.in_store(file.path),
            content=frozen.content.decode(errors="replace"),
            memory_id=memory_id,
            base_sha256=None if frozen.replaced else frozen.base_sha256,
            appended=None if appended is None else appended.decode(errors="replace"),
        )

        def commit(applied: list[Applied]) -> None:
            work_of(file).attempt = None
            if aside is not None:
                self._branch.unsaved.part(aside, content)
            self.saved(file, frozen, applied[0])

        return EditAttempt((edit,), self._around.new_edit_id(), commit, frozen)

    def _adopt_kept(self, file: File, attempt: EditAttempt, version: int) -> None:
        """Let the spool's entry of what *attempt* saves tell of it, under its id.

        So a crash between the answer and the entry's removal does not make it be done twice.
        """
        work = work_of(file)
        kept, spare = work.kept, work.spare
        work.kept = work.spare = None
        if kept is None:
            return
        attempt.kept, attempt.edit_id = kept, work.kept_id or attempt.edit_id
        if work.kept_version != version:
            self._keeping.keep_attempt(file, attempt, EIO)
            self._keeping.remove(spare)

    def _send(self, file: File, attempt: EditAttempt) -> None:
        try:
            self._branch.apply(attempt.edits, attempt.edit_id, attempt.commit)
        except Exception as error:
            raise self._failed(file, attempt, error) from error
        work, frozen, memory = work_of(file), attempt.frozen, file.memory
        work.stop_retrying()
        work.tries = 0
        self._keeping.remove(attempt.kept)
        if work.due:
            self._try_again(file)
        if attempt.tries:
            self._branch.counts.tell("recovered", memory.id if memory else None)
        if frozen is not None and frozen.appended is not None and memory is not None:
            now = memory.content_sha256
            behind = any(handle.sha256 != now for handle in work.handles)
            if behind:
                self.catch_up(file)

    def _failed(self, file: File, attempt: EditAttempt, error: Exception) -> OSError:
        """Keep what *attempt* could not save because of *error*; return what its program gets."""
        branch, number = self._branch, errno_of(error)
        branch.noted(error)
        if branch.gone:
            return failure(ESTALE)
        if not isinstance(error, HoldfastError | OSError):
            _log.error("a save failed", exc_info=error)
        if not passing(error):
            return self._fail_for_good(file, attempt, number)
        attempt.doubt = attempt.doubt or in_doubt(error)
        attempt.tries += 1
        if attempt.kept is not None:
            self._keeping.secure(file, attempt.kept)
        elif not attempt.left:
            self._keeping.keep_attempt(file, attempt, number)
        if attempt.tries == 1:
            frozen = attempt.frozen
            size = 0 if frozen is None else len(frozen.content)
            branch.counts.fail(number, memory_id=file.memory.id if file.memory else None, size=size)
        self._try_again(file)
        return failure(number)

    def _fail_for_good(self, file: File, attempt: EditAttempt, number: int) -> OSError:
        """Leave what *attempt* could not save in the spool, and show the head again."""
        branch, work, frozen = self._branch, work_of(file), attempt.frozen
        self._keeping.leave_attempt(file, attempt, number)
        memory_id = file.memory.id if file.memory else None
        branch.counts.fail(number, memory_id=memory_id, size=len(frozen.content) if frozen else 0)
        if number in (ESTALE, EEXIST):
            branch.counts.conflict(number, memory_id=memory_id)
        with branch.lock:
            work.attempt = None
            work.stop_retrying()
            for handle in work.handles:
                if handle.sent:
                    handle.sent, handle.failed = False, number
            buffer = file.buffer
            if buffer is not None and frozen is not None and buffer.unsaved:
                buffer.memory_id = frozen.memory_id
                buffer.base_sha256 = sha256_hex(frozen.content)
            else:
                branch.unsaved.drop(file)
            if file.memory is None and file.buffer is None:
                branch.unsaved.vanish(file)
                for handle in work.handles:
                    handle.pin(b"", "", None)
            elif file.parent is not None:
                branch.kernel().forget_content(file.path)
        if work.handles or file.buffer is not None:
            self.catch_up(file)
        return failure(number)

    def _put_off(self, file: File, error: Exception) -> OSError:
        """Keep what of *file* could not even be sent, because of *error*, until it can be."""
        number = errno_of(error)
        work = work_of(file)
        with self._branch.lock:
            buffer = file.buffer
            if buffer is None or not buffer.unsaved or file.orphan:
                return failure(number)
            frozen, version = buffer.freeze(), buffer.version
            buffer.thaw(frozen)
        fault = content_fault(frozen.content, zeros=frozen.zeros)
        self._keeping.keep_unsaved(file, frozen, version, fault or number)
        # Whoever has the file's turn may have saved it meanwhile; then the next try drops this.
        work.due = True
        self._branch.counts.fail(number, size=len(frozen.content))
        self._try_again(file)
        return failure(number)

    def _try_again(self, file: File) -> None:
        work = work_of(file)
        if self._around.stopping or work.retry is not None:
            return
        pause = PAUSES[min(work.tries, len(PAUSES) - 1)]
        work.tries += 1
        work.retry = self._around.later.after(pause, partial(self._retry, file), key=file.inode)

    def _retry(self, file: File) -> None:
        work = work_of(file)
        work.retry = None
        if self._around.stopping or self._branch.refusal or not (work.attempt or work.due):
            return
        self._branch.counts.retried += 1
        try:
            with self.turn(file) as aside:
                if work.attempt is not None:
                    self._send(file, work.attempt)
                if work.due:
                    self._send_new(file, aside)
        except (OSError, Unavailable) as error:
            _log.debug("still not saved: %s", error)
            if work.attempt is not None or work.due:
                self._try_again(file)
