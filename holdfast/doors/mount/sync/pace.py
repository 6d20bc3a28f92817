"""How soon things are done: the seconds that a synced directory promises."""

from msgspec import Struct


class Pace(Struct, frozen=True, kw_only=True):
    """Times in seconds; tests have shorter ones."""

    quiet: float = 0.05
    """For so long nothing may happen to a file before it is read."""
    begun: float = 0.25
    """The same for a file that is empty: most are, between being opened and being written."""
    patience: float = 30.0
    """A file to which something always happens is read after that."""
    rename: float = 1.0
    """Within this, a deletion and a new file of equal content are a renaming."""
    scan: float = 30.0
    """Between one look at everything and the next, as events can be lost."""
    confirm: float = 5.0
    """Between the two looks that find a file missing whose deletion nobody saw."""
    again: float = 1.0
    """Between one try to have a memory's content and the next."""
    pauses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
    """Between one try of a save that failed and the next; the last again and again."""

    def pause(self, tries: int) -> float:
        """Return how long to wait after so many tries."""
        return self.pauses[min(tries, len(self.pauses)) - 1]
