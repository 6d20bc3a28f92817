"""How much of its time an operation has left: a request is answered within the deadline.

What an operation asks of the storage, and what it waits for before, share that time. Work that no
program waits for has all the time that one call to the storage may take.
"""

from threading import local
from time import monotonic

from holdfast.ground.errors import Unavailable

SLACK = 0.9
"""Seconds that a request may take beyond the deadline, less what its answer takes."""
_LEAST = 0.05


class _Begun(local):
    at: float | None = None


_begun = _Begun()


def begin() -> None:
    """Note that this thread begins an operation."""
    _begun.at = monotonic()


def end() -> None:
    """Note that the operation is over."""
    _begun.at = None


def seconds_left(deadline: float) -> float | None:
    """Return what one call to the storage may take, None for all it may.

    Unavailable when there is not enough of it.
    """
    if _begun.at is None:
        return None
    left = deadline + SLACK - (monotonic() - _begun.at)
    if left < _LEAST:
        raise Unavailable("The operation took too long already.", reason="timeout")
    return left if left < deadline else None
