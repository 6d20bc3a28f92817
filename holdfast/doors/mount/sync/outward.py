"""Write heads to the disk, and undo local changes of a read-only store."""

import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from errno import EACCES, EBUSY, EEXIST, EISDIR, ENOTDIR, EROFS, errorcode
from time import monotonic

from msgspec import structs

from holdfast.doors.mount.storage.spool import Spooled
from holdfast.doors.mount.sync.cases import Case
from holdfast.doors.mount.sync.merge import Agreed, What
from holdfast.doors.mount.sync.notices import KEPT_OUT, UNWRITTEN, Notice
from holdfast.doors.mount.sync.replica import Replica
from holdfast.doors.mount.sync.sight import ABSENT
from holdfast.doors.mount.sync.state import Known
from holdfast.ground.clock import to_microseconds, to_rfc3339
from holdfast.ground.errors import HoldfastError, NotFound
from holdfast.memories.stores.records import Memory

_log = logging.getLogger(__name__)

SPOOLED_MAX = 6 * 1024 * 1024
"""Size limit in bytes of a file to spool from a read-only store; a larger one stays."""

MANY = 16
"""Above this number of files, the disk is synced once instead of once for each."""


class Outward:
    """Write the heads of one store to its files."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._written: list[Known] | None = None

    @contextmanager
    def together(self, files: int) -> Generator[None]:
        """Record the bases of all files written in this context together, at its end.

        *files* is their expected number; for few files, each is recorded at once.
        """
        if self._written is not None or files <= MANY:
            yield
            return
        self._written = []
        try:
            yield
        finally:
            written, self._written = self._written, None
            self._replica.files.sync()
            self._replica.state.put_all(written)

    def write(self, case: Case) -> bool:
        """Write the head over the file as seen; return whether it was written."""
        replica, head = self._replica, case.head
        memory = None if head is None else self._content(case.path, head)
        if memory is None:
            return False
        try:
            if case.seen.found.what is What.DIRECTORY and not replica.files.clear(case.path):
                raise IsADirectoryError(EISDIR, "A directory is there")
            put = replica.files.put(
                case.path,
                (memory.content or "").encode(),
                at_ns=to_microseconds(memory.updated_at) * 1000,
                over=case.seen.found.sha256 if case.seen.found.what is What.FILE else None,
                lasting=self._written is None,
            )
        except OSError as error:
            self._hide(case.path, error)
            return False
        if put is None:
            replica.soon(case.path)
            return False
        known = Known(case.path, memory.id, memory.content_sha256, put.mark, put.born)
        self._agree(known, again=not put.alone)
        return True

    def adopt(self, case: Case) -> None:
        """Record the file, which equals the head, as the base."""
        if case.head is not None:
            self._agree(Known.of(case.path, _agreed(case.head), case.seen))

    def refresh(self, case: Case) -> None:
        """Update the mark of a file that equals its base."""
        replica, base = self._replica, case.base
        if base is not None and case.seen.mark != base.mark:
            replica.state.put(Known.of(case.path, base.agreed, case.seen))
        replica.missing.found(case.path)
        replica.settled(case.path)

    def forget(self, case: Case) -> None:
        """Drop the base of a path whose memory and file are both deleted."""
        replica = self._replica
        replica.state.forget(case.path)
        replica.missing.found(case.path)
        replica.settled(case.path)

    def remove(self, case: Case) -> None:
        """Remove the file of a deleted memory, and directories that become empty."""
        replica, sha256 = self._replica, case.seen.found.sha256
        if not self._take(case.path, sha256):
            replica.soon(case.path)
            return
        self.forget(case)
        self.prune(case.path)
        replica.reconsider()

    def prune(self, path: str) -> None:
        """Remove the empty directories above *path*, unless they were created here."""
        above = path.rpartition("/")[0]
        while above and above not in self._replica.local and self._replica.files.clear(above):
            above = above.rpartition("/")[0]

    def follow(self, known: Known) -> bool:
        """Rename a file after another client moved its memory; return whether it worked."""
        replica = self._replica
        head = replica.heads.of(known.memory_id)
        if head is None or head.path == known.path or replica.heads.at(head.path) is not head:
            return False
        free = replica.files.look(head.path).found.what is What.ABSENT
        if not free or replica.files.look(known.path).found.what is not What.FILE:
            return False
        if not replica.files.move(known.path, head.path):
            return False
        replica.state.put(Known(head.path, known.memory_id, known.sha256, None, known.born))
        replica.state.forget(known.path)
        replica.settled(known.path)
        replica.soon(head.path)
        self.prune(known.path)
        return True

    def undo(self, case: Case) -> None:
        """Restore the head at the path; spool local bytes that no version has first."""
        replica, path = self._replica, case.path
        if replica.ended:
            replica.refuse(path, EACCES)
            return
        if case.head is not None and self._content(path, case.head) is None:
            return
        if case.seen.found.what is What.FILE:
            if not self._spool(case):
                replica.refuse(path, EROFS, KEPT_OUT)
                return
            if not self._take(path, case.seen.found.sha256):
                replica.soon(path)
                return
            case = structs.replace(case, seen=ABSENT)
        if case.head is None:
            self.forget(case)
        elif not self.write(case):
            return
        if replica.notices.keep(path, EROFS):
            replica.counts.refuse(EROFS)

    def _take(self, path: str, sha256: str | None) -> bool:
        """Remove the file at *path* if it still has the hash *sha256*, or if that is None."""
        with suppress(FileNotFoundError):
            if sha256 is not None:
                return self._replica.files.take(path, sha256)
            self._replica.files.drop(path)
        return True

    def _agree(self, known: Known, *, again: bool = False) -> None:
        """Record *known* as the base; check the path *again* if the file may have changed."""
        replica = self._replica
        if self._written is None:
            replica.state.put(known)
        else:
            self._written.append(known)
        replica.settled(known.path)
        if again:
            replica.soon(known.path)
        else:
            replica.missing.found(known.path)

    def _content(self, path: str, head: Memory) -> Memory | None:
        """Return *head* with its content; None, after scheduling a retry, if that fails."""
        replica = self._replica
        try:
            replica.source.ahead(head)
            memory = replica.source.content(head)
            if memory.content_sha256 == head.content_sha256:
                return memory
            replica.catch_up()
            replica.agenda.put(path, monotonic() + replica.pace.quiet)
        except HoldfastError as error:
            replica.failed(error)
            if isinstance(error, NotFound) and not replica.gone:
                replica.soon(*replica.heads.lose(head.id))
                return None
            replica.agenda.put(path, monotonic() + replica.pace.again)
        return None

    def _hide(self, path: str, error: OSError) -> None:
        """Record that a memory cannot be written, for example as a file is in its way."""
        replica, number = self._replica, error.errno or EBUSY
        if number in (ENOTDIR, EISDIR, EEXIST):
            number = EEXIST
        replica.hidden[path] = number
        if replica.notices.put(path, Notice.of(number, UNWRITTEN)):
            replica.counts.tell("refused", hidden=True, errno=errorcode.get(number, "EIO"))

    def _spool(self, case: Case) -> bool:
        """Spool the file; return False and do nothing if it is too large."""
        replica, path = self._replica, case.path
        try:
            content = replica.files.read(path, SPOOLED_MAX)
        except FileNotFoundError:
            return True
        if content is None:
            return False
        if not content:
            # A program may have just created it to write to it.
            return True
        around = replica.around
        spooled = Spooled(
            store_id=replica.source.id,
            memory_id=case.base and case.base.memory_id,
            path=path,
            base_sha256=case.base and case.base.sha256,
            kind="save",
            errno=errorcode[replica.refusal],
            message="The store is read-only.",
            edit_id=around.new_edit_id(),
            at=to_rfc3339(around.clock.now()),
            session_id=around.options.session_id,
        )
        try:
            around.spool.release(around.spool.put(spooled, content))
        except OSError as error:
            _log.warning("a file that is not allowed cannot be spooled: %s", error.strerror)
            return False
        replica.counts.tell("spooled", errno=spooled.errno, size=len(content))
        return True


def _agreed(memory: Memory) -> Agreed:
    return Agreed(memory.id, memory.content_sha256)
