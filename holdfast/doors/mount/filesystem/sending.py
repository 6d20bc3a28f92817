"""Edits of one store other than saves: sent once, and told apart when no answer came."""

import logging
from collections.abc import Callable, Sequence

from holdfast.doors.mount.errors import errno_of, failure, passing
from holdfast.doors.mount.filesystem.nodes import EditAttempt, File, work_of
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.ground.errors import EngineFault, HoldfastError, IdempotencyMismatch, Unavailable
from holdfast.memories.stores.edits import Edit, Remove
from holdfast.memories.stores.records import Applied

_NOTHING = (Remove(memory_id="mem_" + "0" * 24),)
"""An edit that changes nothing: there is no such memory."""

_log = logging.getLogger(__name__)


def in_doubt(error: BaseException) -> bool:
    """Tell whether what failed with *error* may have been done all the same."""
    if isinstance(error, Unavailable):
        return error.written is None
    return isinstance(error, EngineFault) or not isinstance(error, HoldfastError | OSError)


class StoreWriter:
    """Sends renames and removals. Who calls holds the files' turns."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch

    def send(
        self,
        files: Sequence[File],
        edits: tuple[Edit, ...],
        commit: Callable[[list[Applied]], None],
        edit_id: str = "",
    ) -> None:
        """Send *edits* of *files*; OSError if they fail, and nothing changed."""
        branch = self._branch
        edit_id = edit_id or branch.surroundings.new_edit_id()
        try:
            branch.apply(edits, edit_id, commit)
        except Exception as error:
            number = errno_of(error)
            branch.noted(error)
            if not isinstance(error, HoldfastError | OSError):
                _log.error("an edit failed", exc_info=error)
            if in_doubt(error):
                for file in files:
                    work_of(file).unsure = EditAttempt(edits, edit_id, branch.absorb)
            branch.counts.fail(number)
            raise failure(number) from error

    def answer(self, file: File) -> None:
        """See what became of what was sent of *file* here; OSError if nobody can tell.

        Its program was told that it failed. So its id is used for what does nothing: was it not
        done yet, it never will be; if it was, the answer to it is what it was then.
        """
        unsure = work_of(file).unsure
        if unsure is None:
            return
        try:
            try:
                self._branch.apply(_NOTHING, unsure.edit_id, lambda _: None)
            except IdempotencyMismatch:
                self._branch.apply(unsure.edits, unsure.edit_id, unsure.commit)
        except HoldfastError as error:
            if passing(error):
                raise failure(errno_of(error)) from error
            _log.info("the result of an edit is unknown: %s", type(error).__name__)
        work_of(file).unsure = None
