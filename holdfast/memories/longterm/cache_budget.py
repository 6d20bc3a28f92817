"""A byte budget that several caches share."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

CACHE_BYTES: Final = 268_435_456
"""About how much memory all that is kept may take together."""

POSTINGS, VECTORS = CACHES = ("postings", "vectors")
"""The caches there are."""


class Tenant(NamedTuple):
    """Something that a cache keeps: which cache, and by what name it is known there."""

    cache: str
    name: Hashable


class ByteBudget:
    """So many bytes. No cache is called with the lock held, so each may hold its own."""

    def __init__(self, most_bytes: int = CACHE_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._tenants: OrderedDict[Tenant, tuple[int, Callable[[], None]]] = OrderedDict()
        self._bytes: Counter[str] = Counter(dict.fromkeys(CACHES, 0))

    def take(self, tenant: Tenant, size_bytes: int, leave: Callable[[], None]) -> None:
        """Note how much *tenant* takes, and have others leave until it fits; it stays itself.

        *leave* is called once it is to go, and may come after it was noted anew: whoever is called
        lets go then too.
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
        """Note that *tenant* was of use, if it is there."""
        with self._lock:
            if tenant in self._tenants:
                self._tenants.move_to_end(tenant)

    def left(self, tenant: Tenant) -> None:
        """Note that *tenant* takes nothing any more."""
        with self._lock:
            self._remove(tenant)

    def sizes(self) -> dict[str, int]:
        """Return about how many bytes each cache takes."""
        with self._lock:
            return dict(self._bytes)

    def _remove(self, tenant: Tenant) -> None:
        size, _ = self._tenants.pop(tenant, (0, None))
        self._bytes[tenant.cache] -= size
