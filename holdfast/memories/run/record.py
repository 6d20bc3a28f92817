"""A record of a run: what is told of it, and the bounds of what may be told."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, cast, get_args

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import within

Ending = Literal["completed", "failed", "cancelled"]
"""How a run ends."""

RunState = Literal["running", "completed", "failed", "cancelled", "lost"]
"""How a run is: `lost` gave no sign of life for long, and did not say that it ended."""

LOST_AFTER: Final = 60_000_000
"""Microseconds without a sign of life after which a run counts as lost."""

NAME_MOST: Final = 256
"""Characters of a run's or an agent's name."""

METADATA_MOST: Final = 16
"""Pairs of metadata; as those of a store they have at most 64 and 512 characters."""

_metadata = msgspec.json.Decoder(dict[str, str])


class WatchedRun(Struct, frozen=True, kw_only=True):
    """A run as others see it; `entries` and `bytes` are what its memory holds."""

    id: str
    name: str
    agent: str | None
    state: RunState
    entries: int
    bytes: int
    started_at: datetime
    ended_at: datetime | None
    metadata: dict[str, str]


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as it is stored."""

    id: str
    name: str
    agent: str | None
    metadata: str
    state: str
    holder: str
    place: str
    batch: int
    seq: int
    entries: int
    bytes: int
    started_at: int
    seen_at: int
    ended_at: int | None

    def state_at(self, now: int) -> RunState:
        """Return how the run is at *now*, in microseconds since 1970."""
        lost = self.state == "running" and self.seen_at < now - LOST_AFTER
        return "lost" if lost else cast("RunState", self.state)

    def record(self, now: int) -> WatchedRun:
        """Return what is told of it at *now*."""
        return WatchedRun(
            id=self.id,
            name=self.name,
            agent=self.agent,
            state=self.state_at(now),
            entries=self.entries,
            bytes=self.bytes,
            started_at=from_microseconds(self.started_at),
            ended_at=from_microseconds_or_none(self.ended_at),
            metadata=_metadata.decode(self.metadata),
        )


def checked_ending(given: object) -> Ending:
    """Return *given* if it is how a run ends; else InvalidInput."""
    if given not in get_args(Ending):
        raise InvalidInput("state", f"must be {' or '.join(get_args(Ending))}", given=given)
    return cast("Ending", given)


def checked_state(given: object) -> RunState | None:
    """Return *given* if it is how a run is, or None; else InvalidInput."""
    if given is not None and given not in get_args(RunState):
        raise InvalidInput("state", f"must be {' or '.join(get_args(RunState))}", given=given)
    return cast("RunState | None", given)


def checked_name_of(field: str, given: object) -> str:
    """Return *given* if it can name a run or its agent; else InvalidInput."""
    return within(field, given, least=1, most=NAME_MOST)


def checked_metadata(given: object) -> dict[str, str]:
    """Return *given* if it is metadata of a run: at most 16 short pairs of text."""
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata", "must be an object of strings", given=given)
    pairs = cast("Mapping[object, object]", given)
    if len(pairs) > METADATA_MOST:
        reason = f"must have at most {METADATA_MOST} pairs, has {len(pairs)}"
        raise InvalidInput("metadata", reason, limit=METADATA_MOST)
    return {
        within("metadata", key, least=1, most=64, part="a key "): within(
            "metadata", value, most=512, part="a value "
        )
        for key, value in pairs.items()
    }
