"""What a mount says of itself: counts of what was saved, refused and kept, never content."""

import logging
from errno import errorcode

from msgspec import Struct

from holdfast.doors.mount.filesystem.tree import Surroundings
from holdfast.ground.events import Event, Fact

_log = logging.getLogger(__name__)


class StoreStatus(Struct, frozen=True, kw_only=True):
    """One mounted store: what it is, what is under way, and what was counted since the start.

    `unsaved` and `retrying` count files, `spooled` entries, `hidden` memories that are not shown.
    """

    id: str
    name: str
    slug: str
    access: str
    archived_at: str | None
    memories: int
    cap: int
    unsaved: int
    retrying: int
    spooled: int
    hidden: int
    saves: int
    refused: dict[str, int]
    failed: dict[str, int]
    promoted: int
    conflicts: int
    retried: int


class MountStatus(Struct, frozen=True, kw_only=True):
    """A mount: `ok`, `degraded`, `unsafe` or `stopping`, and its stores."""

    state: str
    feed_lag_seconds: float
    stores: tuple[StoreStatus, ...]


class StoreDirectoryStatus:
    """What happened to one store since the start: counted, logged and told.

    *ids* are those of the store; events carry them with sizes and errnos.
    """

    def __init__(self, surroundings: Surroundings, *, workspace: str, ids: dict[str, str]) -> None:
        self._surroundings, self._workspace, self._ids = surroundings, workspace, ids
        self.saves = self.promoted = self.conflicts = self.retried = 0
        self.refused: dict[str, int] = {}
        self.failed: dict[str, int] = {}

    def refuse(self, errno: int, *, size: int = 0) -> None:
        """Count what was refused with *errno* before it was begun."""
        name = _add(self.refused, errno)
        self.tell("refused", errno=name, size_bytes=size)

    def fail(self, errno: int, *, memory_id: str | None = None, size: int = 0) -> None:
        """Count what failed with *errno*."""
        name = _add(self.failed, errno)
        self.tell("failed", memory_id, errno=name, size_bytes=size)

    def conflict(self, errno: int, *, memory_id: str | None = None) -> None:
        """Count what lost to what was done elsewhere."""
        self.conflicts += 1
        self.tell("conflict", memory_id, errno=errorcode.get(errno, "EIO"))

    def promote(self, memory_id: str) -> None:
        """Count a temporary file that became a memory."""
        self.promoted += 1
        _log.info("promoted: %s of %s", memory_id, self._ids["store_id"])

    def tell(self, what: str, memory_id: str | None = None, **data: Fact) -> None:
        """Log and publish `mount.<what>`."""
        ids = self._ids if memory_id is None else {**self._ids, "memory_id": memory_id}
        _log.warning("%s: %s %s", what, ids, data)
        self._surroundings.publish(
            Event(
                type=f"mount.{what}",
                at=self._surroundings.clock.now(),
                workspace=self._workspace,
                ids=ids,
                data=data,
            )
        )


def _add(counts: dict[str, int], errno: int) -> str:
    name = errorcode.get(errno, "EIO")
    counts[name] = counts.get(name, 0) + 1
    return name
