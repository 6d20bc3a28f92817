"""Placeholder."""

from typing import Final

from holdfast.doors.console.views import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
DONE: Final[dict[str, str]] = {}
