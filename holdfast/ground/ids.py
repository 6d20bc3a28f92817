"""Generate time-ordered, monotonic ids with a prefix for their kind.

An id is `<prefix>_` and 24 characters of `[0-9A-Za-z]`.

The first nine characters are microseconds since 1970 (enough until 2398), the next four count
within one microsecond, the last eleven are 65 random bits, so that ids made later
sort later byte by byte and two processes never make the same one.
"""

import os
from secrets import token_bytes
from threading import Lock
from weakref import WeakSet

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
TIME, COUNT, RANDOM = 9, 4, 11

KINDS = {
    "memstore": "memory store",
    "mem": "memory",
    "memver": "memory version",
    "sesn": "session",
    "sestok": "session token",
    "agent": "agent",
    "env": "environment",
    "apikey": "API key",
    "req": "request",
    "edit": "edit",
    "entry": "durable entry",
    "run": "run",
    "question": "question",
    "coll": "collection",
    "item": "item",
    "turn": "turn",
    "thread": "thread",
    "res": "result",
    "eras": "erasure",
    "cons": "consolidation",
    "drm": "dream",
}
"""The kind of object behind each prefix, in words for a message."""


_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)
_PAIR = len(_PAIRS)
_NONE = ALPHABET[0] * COUNT
_POOL = 4_096
"""Bytes of the system's randomness that are read at a time."""
_BYTES, _SPARE = 9, 7
"""Bytes drawn for an id, and how many of their bits are left over."""


def base62(number: int, width: int) -> str:
    """Encode *number* in *width* characters that sort in numeric order."""
    pairs: list[str] = []
    for _ in range(width // 2):
        number, pair = divmod(number, _PAIR)
        pairs.append(_PAIRS[pair])
    if width % 2:
        pairs.append(ALPHABET[number % len(ALPHABET)])
    pairs.reverse()
    return "".join(pairs)


class Ids:
    """Generator of rising ids, also when the clock steps back."""

    def __init__(self) -> None:
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        self._lock = Lock()
        self._last, self._count, self._time = 0, 0, base62(0, TIME)
        self._pool, self._drawn = b"", 0

    def new(self, prefix: str, at: int) -> str:
        """Return a new id of the kind *prefix*, made at *at* microseconds since 1970."""
        with self._lock:
            if at > self._last:
                self._last, self._count = at, 0
                self._time = base62(at, TIME)
            else:
                self._count += 1
                if self._count == 62**COUNT:
                    self._last, self._count = self._last + 1, 0
                    self._time = base62(self._last, TIME)
            head, count = self._time, self._count
            start = self._drawn
            self._drawn = start + _BYTES
            if self._drawn > len(self._pool):
                self._pool, self._drawn, start = token_bytes(_POOL), _BYTES, 0
            drawn = self._pool[start : start + _BYTES]
        tail = base62(int.from_bytes(drawn) >> _SPARE, RANDOM)
        return f"{prefix}_{head}{base62(count, COUNT) if count else _NONE}{tail}"


def _after_fork() -> None:
    """Throw away what a parent drew: its ids would be made twice."""
    for each in tuple(_alive):
        each._reset()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (of this file)


_alive: WeakSet[Ids] = WeakSet()
os.register_at_fork(after_in_child=_after_fork)
