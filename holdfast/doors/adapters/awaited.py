"""An awaitable handle, called from a worker thread as if it were a plain one."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from holdfast.ground.errors import MissingExtra

try:
    from anyio import from_thread
except ImportError as error:
    raise MissingExtra("anthropic") from error


class AsyncHandle(Protocol):
    """A Holdfast whose calls are awaited."""

    @property
    def memory_stores(self) -> Any:  # the mirror of a plain handle's, each call awaitable
        """The memory stores."""
        ...


class AwaitedHandle:
    """Takes each call on memories to the event loop and waits for it.

    Only for worker threads that the event loop itself has started.
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
