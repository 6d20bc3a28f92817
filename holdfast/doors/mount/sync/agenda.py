"""Priority queue of the paths to check, each with one due time."""

import heapq


class Agenda:
    """Paths and their due times, in seconds of one clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, path: str) -> bool:
        return path in self._due

    @property
    def next(self) -> float | None:
        """The due time of the first path, or None."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def put(self, path: str, due: float) -> None:
        """Schedule *path* at *due*, replacing its present time."""
        if self._due.get(path) != due:
            self._due[path] = due
            heapq.heappush(self._heap, (due, path))

    def add(self, path: str, due: float) -> None:
        """Schedule *path* at *due*, unless it is already scheduled."""
        if path not in self._due:
            self.put(path, due)

    def take(self, now: float, most: int) -> list[str]:
        """Remove and return at most *most* due paths, the earliest first."""
        taken: list[str] = []
        while len(taken) < most and (due := self.next) is not None and due <= now:
            path = heapq.heappop(self._heap)[1]
            del self._due[path]
            taken.append(path)
        return taken
