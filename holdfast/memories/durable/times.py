"""Instants of durable memory: whole milliseconds, in tables as whole microseconds."""

from datetime import datetime

from holdfast.ground.clock import to_microseconds

MILLISECOND = 1_000
"""In microseconds."""
HOUR = 3_600_000_000
"""In microseconds."""
DAY = 24 * HOUR
"""In microseconds."""


def to_milliseconds(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970, cut to a whole millisecond."""
    microseconds = to_microseconds(instant)
    return microseconds - microseconds % MILLISECOND


def to_milliseconds_text(instant: datetime) -> str:
    """Return *instant*, which is in UTC, as RFC 3339 with three fraction digits and `Z`."""
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"
