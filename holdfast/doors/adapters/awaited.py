"""Adapter that calls an async handle from a worker thread as a synchronous one."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from holdfast.ground.errors import MissingExtra

try:
    from anyio import from_thread
except ImportError as error:
    raise MissingExtra("anthropic") from error


class AsyncHandle(Protocol):
    """An async Holdfast handle."""

    @property
    def memory_stores(self) -> Any:  # the mirror of a plain handle's, each call awaitable
        """The memory stores."""
        ...


class AwaitedHandle:
    """Run each call on memories in the event loop and wait for its result.

    Only for worker threads that the event loop itself started.
    """

    def __init__(self, hf: AsyncHandle) -> None:
        self.memory_stores = self
        self.memories = _AwaitedMemories(hf)


class _AwaitedMemories:
    def __init__(self, hf: AsyncHandle) -> None:
        self._memories = hf.memory_stores.memories

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = cast("Callable[..., Awaitable[object]]", getattr(self._memories, name))

        def call(*args: object, **named: object) -> object:
            async def awaited() -> object:
                return await method(*args, **named)

            return from_thread.run(awaited)

        return call
