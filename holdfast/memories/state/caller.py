"""In whose threads, and with which engine and clock: what every act on them needs to know."""

from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, to_microseconds

QUERIES: Final = "holdfast.memories.state"
"""Where the statements are."""
MILLISECOND: Final = 1_000
"""In microseconds."""


class ThreadsContext(Struct, frozen=True, kw_only=True):
    """Whose threads, with which engine and clock; `engine` is scoped to `workspace`.

    `demand` raises NotPermitted for a right, `read` or `write`, that the caller does not have.
    """

    engine: Engine
    workspace: str
    clock: Clock
    demand: Callable[[str], None]

    def now(self) -> int:
        """Return the present instant in microseconds since 1970, cut to a whole millisecond."""
        return cut(self.clock.now())


def cut(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970, cut to a whole millisecond."""
    microseconds = to_microseconds(instant)
    return microseconds - microseconds % MILLISECOND


def queries_of(caller: ThreadsContext) -> SimpleNamespace:
    """Return the statements of threads, as *caller*'s engine spells them."""
    return caller.engine.queries(QUERIES)
