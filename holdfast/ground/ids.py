"""Generate time-ordered, monotonic ids with a prefix for their kind.

An id is `<prefix>_` and 24 characters of `[0-9A-Za-z]`.

The first nine characters are microseconds since 1970 (enough until 2398), the next four count
within one microsecond, the last eleven are 65 random bits, so that ids made later
sort later byte by byte and two processes never make the same one.
"""

import os
import secrets
from threading import Lock

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
}
"""The kind of object behind each prefix, in words for a message."""


def base62(number: int, width: int) -> str:
    """Encode *number* in *width* characters that sort in numeric order."""
    digits: list[str] = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


class Ids:
    """Generator of rising ids, also when the clock steps back."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = Lock()
        self._last, self._count, self._time = 0, 0, ""

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
        tail = base62(count, COUNT) + base62(secrets.randbits(65), RANDOM)
        return f"{prefix}_{head}{tail}"
