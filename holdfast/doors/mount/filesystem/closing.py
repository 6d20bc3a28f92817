"""The end of a mount: what is unsaved is saved, and what cannot be is spooled."""

from collections.abc import Callable
from errno import EIO, EROFS

from holdfast.doors.mount.errors import PASSING
from holdfast.doors.mount.filesystem.nodes import File, work_of
from holdfast.doors.mount.filesystem.transient import Parts
from holdfast.doors.mount.names import Kind


class Closing:
    """Ends the mounting of one store."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._branch = parts, parts.branch
        self._away = False
        """Whether the storage failed once: the others are not tried any more."""

    def run(self, over: Callable[[], bool]) -> int:
        """Save everything that waits, until it is *over*; return how many had to be spooled."""
        spooled = 0
        for file in self._waiting():
            saved = not over() and not self._away and self._save(file)
            if not saved or file.unsaved:
                spooled += self._leave(file)
        return spooled

    def _waiting(self) -> list[File]:
        """Return the files with something to be done, backups first."""
        with self._branch.lock:
            files = [
                file for file in self._branch.tree.root.files() if file.work and not file.orphan
            ]
        waiting = [file for file in files if file.unsaved or work_of(file).aside]
        return sorted(waiting, key=lambda file: work_of(file).aside is None)

    def _save(self, file: File) -> bool:
        transient = file.kind is Kind.TRANSIENT
        try:
            if work_of(file).aside is not None:
                self._parts.grace.commit(file)
            if file.unsaved:
                self._parts.saves.save(file)
        except OSError as error:
            self._away = error.errno in PASSING
            return False
        if transient and file.memory is not None:
            self._branch.counts.promote(file.memory.id)
        return True

    def _leave(self, file: File) -> bool:
        """Spool *file*; False when a run that was not waited for has, or is about to."""
        with self._branch.lock:
            if file in self._parts.left:
                return False
            self._parts.left.add(file)
            work_of(file).stop_retrying()
            work_of(file).stop_grace()
            unsaved = file.unsaved
        if unsaved:
            errno = EROFS if self._branch.refusal else EIO
            self._parts.keeping.leave_unsaved(file, errno)
        return True
