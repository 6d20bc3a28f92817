"""Time intervals of a synced directory."""

from msgspec import Struct


class Pace(Struct, frozen=True, kw_only=True):
    """Intervals in seconds; tests use shorter ones."""

    quiet: float = 0.05
    """A file is read after this time without an event."""
    begun: float = 0.25
    """The same for an empty file: most are about to be written."""
    patience: float = 30.0
    """A file that changes all the time is read after this time."""
    rename: float = 1.0
    """A deletion and a new file of equal content within this time are a rename."""
    scan: float = 30.0
    """Between two full scans, as events can be lost."""
    confirm: float = 5.0
    """Between the two scans that must find a file missing without an event."""
    again: float = 1.0
    """Between tries to read a memory's content."""
    pauses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
    """Between retries of a failed save; the last value repeats."""

    def pause(self, tries: int) -> float:
        """Return the seconds to wait after *tries* tries."""
        return self.pauses[min(tries, len(self.pauses)) - 1]
