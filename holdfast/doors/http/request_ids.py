"""Ids of requests, made for every one of them and so without asking the system for randomness.

They rise as other ids do. What tells two processes apart is drawn once; within a process the
count does.
"""

import secrets

from holdfast.ground.ids import ALPHABET, COUNT, RANDOM, TIME, base62

_TICK = 1_000
"""Microseconds for which the time is spelled once."""

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_MOST = len(_PAIRS) ** (COUNT // 2)


class RequestIds:
    """Makes `req_…` ids, for one thread."""

    def __init__(self) -> None:
        self._tail = base62(secrets.randbits(65), RANDOM)
        self._tick, self._count, self._head = -1, 0, ""

    def new(self, at: int) -> str:
        """Return a new id, made at *at* microseconds since 1970."""
        tick = at // _TICK
        self._count += 1
        if tick > self._tick or self._count == _MOST:
            self._tick, self._count = max(tick, self._tick + 1), 0
            self._head = base62(self._tick * _TICK, TIME)
        high, low = divmod(self._count, len(_PAIRS))
        return f"req_{self._head}{_PAIRS[high]}{_PAIRS[low]}{self._tail}"
