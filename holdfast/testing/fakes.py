"""Stand-ins for the world, for tests of what is built on Holdfast."""

from datetime import UTC, datetime, timedelta


class FrozenClock:
    """A clock that moves when told to, and only then."""

    def __init__(self, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = at

    def now(self) -> datetime:
        """Return the instant it stands at."""
        return self._now

    def tick(self, seconds: float = 1) -> datetime:
        """Move on by *seconds* and return the new instant."""
        self._now += timedelta(seconds=seconds)
        return self._now
