"""Clock interface, and conversions between instants and their encodings."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from time import time_ns
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """Source of the current time."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        return datetime.now(UTC)


def to_microseconds(instant: datetime) -> int:
    """Return whole microseconds from 1970 to *instant*."""
    return (instant - EPOCH) // _MICROSECOND


def nanoseconds_of(clock: Clock) -> Callable[[], int]:
    """Return a function that reads *clock* in nanoseconds since 1970.

    The system clock is read directly: a call through `now` costs a tenth of writing a value.
    """
    if type(clock) is SystemClock:
        return time_ns
    return lambda: to_microseconds(clock.now()) * 1_000


def milliseconds_of(clock: Clock) -> Callable[[], int]:
    """Return a function that reads *clock* in whole milliseconds since 1970."""
    nanoseconds = nanoseconds_of(clock)
    return lambda: nanoseconds() // 1_000_000


def from_microseconds(microseconds: int) -> datetime:
    """Return the instant *microseconds* after 1970, aware, in UTC."""
    return EPOCH + timedelta(0, 0, microseconds)


def from_microseconds_or_none(microseconds: int | None) -> datetime | None:
    """Return the instant, or None for None."""
    return None if microseconds is None else from_microseconds(microseconds)


def to_rfc3339(instant: datetime) -> str:
    """Return *instant*, which is in UTC, as RFC 3339 with six fraction digits and `Z`."""
    return instant.isoformat(timespec="microseconds")[:-6] + "Z"


def milliseconds_text(milliseconds: int) -> str:
    """Return the instant *milliseconds* after 1970 as RFC 3339.

    It has three fraction digits and ends in `Z`.
    """
    seconds, fraction = divmod(milliseconds, 1_000)
    return f"{_second(seconds)}.{fraction:03d}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    # Most instants of one list are of the same few seconds.
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
