"""The limits in force: an agent's own over its workspace's over the defaults; and their change."""

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.limits import RANGES, DurableLimits


class LimitsRow(Struct, frozen=True, kw_only=True):
    """Limits as they are stored: None where one is not set."""

    cap: int | None
    workspace_cap: int | None
    run_cap: int | None
    content_bytes: int | None
    budget: int | None
    daily_hours: int | None


def limits_in_force(caller: Caller, reader: Reader) -> DurableLimits:
    """Return the limits in force for the caller's agent."""
    sql = caller.engine.queries("holdfast.memories.durable")
    rows = reader.all(LimitsRow, sql.limits_of_agent)
    return merged(*rows)


def merged(*rows: LimitsRow) -> DurableLimits:
    """Return the defaults with *rows* laid over them, the later over the earlier."""
    given: dict[str, int] = {}
    for row in rows:
        for name in RANGES:
            value: int | None = getattr(row, name)
            if value is not None:
                given[name] = value
    return DurableLimits(**given)


def checked_limits(given: dict[str, int]) -> dict[str, int]:
    """Return *given* if each is a limit within its range; else InvalidInput."""
    for name, value in given.items():
        if name not in RANGES:
            raise InvalidInput(name, f"is not a limit; the limits are {', '.join(RANGES)}")
        least, most = RANGES[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidInput(name, f"must be {least:,} to {most:,}", limit=most, given=value)
    return given
