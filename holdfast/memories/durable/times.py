"""Instants of durable memory: whole milliseconds, in tables as whole microseconds."""

from datetime import datetime
from functools import lru_cache
from typing import Final

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


_TWO: Final = tuple(f"{number:02}" for number in range(60))
_THREE: Final = tuple(f"{number:03}" for number in range(1_000))


def to_milliseconds_text(instant: datetime) -> str:
    """Return *instant*, which is in UTC, as RFC 3339 with three fraction digits and `Z`."""
    # A rendering spends most of its time on these, and `isoformat` takes three times as long.
    day = f"{_year(instant.year)}-{_TWO[instant.month]}-{_TWO[instant.day]}"
    time = f"{_TWO[instant.hour]}:{_TWO[instant.minute]}:{_TWO[instant.second]}"
    return f"{day}T{time}.{_THREE[instant.microsecond // MILLISECOND]}Z"


@lru_cache(maxsize=16)
def _year(year: int) -> str:
    return f"{year:04}"
