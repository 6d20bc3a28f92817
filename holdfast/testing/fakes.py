"""Fakes for tests of programs that use Holdfast."""

from datetime import UTC, datetime, timedelta


class FrozenClock:
    """A clock that only moves by `tick`."""

    def __init__(self, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = at

    def now(self) -> datetime:
        """Return the current instant."""
        return self._now

    def tick(self, seconds: float = 1) -> datetime:
        """Advance by *seconds* and return the new instant."""
        self._now += timedelta(seconds=seconds)
        return self._now
