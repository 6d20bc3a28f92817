"""An engine whose `write` gives back what to await, for a library that ends its writes with it.

A method of the library that writes checks its arguments, and its last act is to return what the
engine's `write` returns. So with this engine it returns the awaitable instead, and an event loop
waits for many writes without a thread for each.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import Engine, Transaction
from holdfast.ground.scope import Scope

T = TypeVar("T")


class AwaitedWrites:
    """*engine*, but for `write`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def scoped(self, scope: Scope) -> "AwaitedWrites":
        """Return the like of it for another owner."""
        return AwaitedWrites(self._engine.scoped(scope))

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> object:
        """Return an awaitable of what *work*(transaction) returns, once it is durable."""
        return awaited(self._engine, work, timeout=timeout)


def awaited_writes(engine: Engine) -> Engine:
    """Return *engine* with awaitable writes; what a write is declared to return, it then awaits."""
    return cast("Engine", AwaitedWrites(engine))
