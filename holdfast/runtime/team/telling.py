"""Telling of a team's work, from its own tasks and from whatever thread changes its board."""

from typing import Any, Literal

from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, TeamMoment, TeamUpdate, feed


class TeamEvents:
    """Tells whoever looked on at the run of *context* when this was made."""

    def __init__(self, context: Context) -> None:
        self._context, self._feed = context, feed.get()

    async def moment(self, moment: TeamMoment, **told: Any) -> None:
        """Tell what became of the team or of one of its agents."""
        await self._context.tell(TeamUpdate(event=moment, **told))

    async def log(self, severity: Literal["info", "warning", "error"], content: str) -> None:
        """Tell something worth a line."""
        await self._context.tell(LogUpdate(severity=severity, content=content))

    def soon(self, event: ExecutionEvent) -> None:
        """Tell of *event* from any thread, waiting for nothing."""
        if self._feed is not None:
            self._feed.tell_soon(lambda: self._context.stamped(event))
