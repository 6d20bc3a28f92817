"""Whose records of runs, and by what means: what every act on them needs to know."""

from collections.abc import Callable

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, to_microseconds


class RunsContext(Struct, frozen=True, kw_only=True):
    """A workspace, and the engine and clock to act on it with; `engine` is scoped to it.

    `demand` raises NotPermitted when who acts has not the right that it is given.
    """

    engine: Engine
    workspace: str
    clock: Clock
    demand: Callable[[str], None]

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())
