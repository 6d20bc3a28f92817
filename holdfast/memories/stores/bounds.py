"""When a list by age begins and ends."""

from datetime import UTC, datetime

from holdfast.ground.clock import to_microseconds

BEGINNING, END = 0, 2**63 - 1
"""Microseconds since 1970 that no instant lies outside of."""


def bounds(
    *,
    gt: datetime | None = None,
    gte: datetime | None = None,
    lt: datetime | None = None,
    lte: datetime | None = None,
) -> tuple[int, int]:
    """Return the first and last microsecond since 1970 within all the bounds given.

    An instant without a zone is UTC.
    """
    since = max(
        BEGINNING if gte is None else _microseconds(gte),
        BEGINNING if gt is None else _microseconds(gt) + 1,
    )
    until = min(
        END if lte is None else _microseconds(lte),
        END if lt is None else _microseconds(lt) - 1,
    )
    return since, until


def _microseconds(instant: datetime) -> int:
    return to_microseconds(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
