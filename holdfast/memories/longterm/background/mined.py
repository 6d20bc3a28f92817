"""What came of mining, for those who ask: each memory hears what ended since it asked last."""

import threading
from collections.abc import Hashable
from weakref import WeakSet

from holdfast.memories.longterm.records import Remembered


class Results:
    """What came of mining since it was last taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: list[Remembered] = []

    def add(self, results: tuple[Remembered, ...]) -> None:
        """Hear of *results*."""
        with self._lock:
            self._heard += results

    def take(self) -> tuple[Remembered, ...]:
        """Return all that was heard since, oldest first."""
        with self._lock:
            heard, self._heard = tuple(self._heard), []
        return heard


class Mined:
    """Who listens to the mining of which collection, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[Hashable, WeakSet[Results]] = {}

    def listen(self, whose: Hashable) -> Results:
        """Return what hears from now on what came of mining in the collection of *whose*."""
        results = Results()
        with self._lock:
            self._listening.setdefault(whose, WeakSet()).add(results)
        return results

    def tell(self, whose: Hashable, results: tuple[Remembered, ...]) -> None:
        """Let those who listen hear *results*; forget collections to which nobody listens."""
        with self._lock:
            listening = list(self._listening.get(whose, ()))
            for nobody in [each for each, heard in self._listening.items() if not heard]:
                del self._listening[nobody]
        for each in listening:
            each.add(results)
