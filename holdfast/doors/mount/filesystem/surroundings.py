"""What a mount is handed once and uses everywhere: its settings, the time, and who listens."""

from collections.abc import Callable
from threading import Lock

from msgspec import Struct, field

from holdfast.doors.mount.fuse.kernel import Kernel
from holdfast.doors.mount.names import MIB, MountOptions
from holdfast.doors.mount.storage.later import Later
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids

ROOM = 64 * MIB
"""Bytes of unsaved files, and again of scratch files, in RAM at once."""


class BufferBudget:
    """How many bytes of one sort may be in memory; threads share it."""

    def __init__(self, limit: int = ROOM) -> None:
        self._left, self._lock = limit, Lock()

    def take(self, size: int) -> bool:
        """Take room for *size* more bytes; False, and none is taken, if there is not that much."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def claim(self, size: int) -> None:
        """Take room for *size* more bytes, whether there is that much or not."""
        with self._lock:
            self._left -= size

    def give(self, size: int) -> None:
        """Give back the room of *size* bytes."""
        with self._lock:
            self._left += size


class Surroundings(Struct, kw_only=True):
    """What all stores of a mount share. The binding may put its kernel in before the start.

    `hurried`: there is no time left to save what is unsaved, so that it is spooled.
    """

    options: MountOptions
    spool: Spool
    later: Later
    clock: Clock
    ids: Ids
    publish: Callable[[Event], None]
    kernel: Kernel
    unsaved: BufferBudget = field(default_factory=BufferBudget)
    scratch: BufferBudget = field(default_factory=BufferBudget)
    stopping: bool = False
    hurried: bool = False

    def new_edit_id(self) -> str:
        """Return the id of a new edit."""
        return self.ids.new("edit", to_microseconds(self.clock.now()))
