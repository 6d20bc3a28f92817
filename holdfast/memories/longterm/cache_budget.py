"""A byte budget that several caches share."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

CACHE_BYTES: Final = 268_435_456
"""Approximate byte limit of all caches together."""

POSTINGS, VECTORS = CACHES = ("postings", "vectors")
"""The caches there are."""


class Tenant(NamedTuple):
    """An entry of a cache: the cache, and the name of the entry there."""

    cache: str
    name: Hashable


class ByteBudget:
    """LRU byte budget of several caches.

    No cache is called with the lock held, so each may hold its own.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._tenants: OrderedDict[Tenant, tuple[int, Callable[[], None]]] = OrderedDict()
        self._bytes: Counter[str] = Counter(dict.fromkeys(CACHES, 0))

    def take(self, tenant: Tenant, size_bytes: int, leave: Callable[[], None]) -> None:
        """Record the size of *tenant*, and evict others until it fits; it is not evicted.

        *leave* is called when *tenant* is evicted. That may happen after it was recorded again: it
        must drop its entry then too.
        """
        leaving: list[Callable[[], None]] = []
        with self._lock:
            self._remove(tenant)
            self._tenants[tenant] = size_bytes, leave
            self._bytes[tenant.cache] += size_bytes
            while self._bytes.total() > self._most and len(self._tenants) > 1:
                oldest = next(iter(self._tenants))
                leaving.append(self._tenants[oldest][1])
                self._remove(oldest)
        for each in leaving:
            each()

    def used(self, tenant: Tenant) -> None:
        """Mark *tenant* as the most recently used, if it is stored."""
        with self._lock:
            if tenant in self._tenants:
                self._tenants.move_to_end(tenant)

    def left(self, tenant: Tenant) -> None:
        """Remove *tenant* from the budget."""
        with self._lock:
            self._remove(tenant)

    def sizes(self) -> dict[str, int]:
        """Return the approximate size of each cache in bytes."""
        with self._lock:
            return dict(self._bytes)

    def _remove(self, tenant: Tenant) -> None:
        size, _ = self._tenants.pop(tenant, (0, None))
        self._bytes[tenant.cache] -= size
