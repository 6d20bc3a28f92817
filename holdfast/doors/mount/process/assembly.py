"""The parts of one mount, put together: a source for each store, and what they share."""

from collections.abc import Callable
from typing import cast

from msgspec import Struct

from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.setup import MountRequest
from holdfast.doors.mount.storage.deadline import Deadline, Later
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.events import Event, EventBus
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Access


class Assembled(Struct, frozen=True, kw_only=True):
    """What a core, or a synced directory, is made of: slug, source and access of each store."""

    sources: tuple[tuple[str, StoreSource, Access], ...]
    options: MountOptions
    spool: Spool
    later: Later
    clock: Clock
    ids: Ids
    publish: Callable[[Event], None]
    deadlines: tuple[Deadline, ...]

    def close(self) -> None:
        """Begin nothing more; what hangs is left alone."""
        self.later.close()
        for deadline in self.deadlines:
            deadline.close()


def assemble(asked: MountRequest, options: MountOptions) -> Assembled:
    """Return the parts of the mount of what is *asked*, each store with a deadline of its own."""
    clock, contents = SystemClock(), Contents(options.cache_bytes)
    deadlines = tuple(Deadline(options.deadline) for _ in asked.parts)
    return Assembled(
        sources=tuple(
            (
                part.slug,
                StoreSource(asked.hf, part.store, deadline=deadline, contents=contents),
                part.resource.access,
            )
            for part, deadline in zip(asked.parts, deadlines, strict=True)
        ),
        options=options,
        spool=Spool(options.spool, clock=clock),
        later=Later(),
        clock=clock,
        ids=Ids(),
        publish=_publish(asked.hf),
        deadlines=deadlines,
    )


def _publish(hf: Holdfast) -> Callable[[Event], None]:
    """Return who hears of events: this process's listeners; a server takes none from outside."""
    events = cast("object", hf.events)
    return events.publish if isinstance(events, EventBus) else _unheard


def _unheard(event: Event) -> None:
    del event
