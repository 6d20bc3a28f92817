"""Contents of memories in RAM, by hash, so that what was read once is read again without storage.

One cache serves all stores of a mount: equal contents are kept once, whoever has them.
"""

from collections import OrderedDict
from threading import Lock

ENTRY_BYTES = 256
"""What one content costs beyond its own bytes: its hash, and its place in the cache."""


class Contents:
    """At most *limit* bytes, of the contents that were used last; one too large is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """How much is kept, of at most *limit*."""
        return self._size

    def get(self, sha256: str) -> bytes | None:
        """Return the content whose hash is *sha256*, or None."""
        with self._lock:
            content = self._kept.get(sha256)
            if content is not None:
                self._kept.move_to_end(sha256)
            return content

    def put(self, sha256: str, content: bytes) -> None:
        """Keep *content*, whose hash is *sha256*, in place of what was used longest ago."""
        if _cost(content) > self._limit:
            return
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return
            self._kept[sha256] = content
            self._size += _cost(content)
            while self._size > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self._size -= _cost(oldest)


def _cost(content: bytes) -> int:
    return len(content) + ENTRY_BYTES
