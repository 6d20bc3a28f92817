"""The `memory` tool for the anthropic SDK's tool runners, backed by a store.

Both classes replace the SDK's own file-system tool: the same commands, the same results. An
error of the model is raised as the SDK's ToolError.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, cast

from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.ground.trust import WriterTier
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import JSON
from holdfast.tools.files import clear, files
from holdfast.tools.files_arguments import legible

try:
    from anyio import from_thread
except ImportError as error:
    raise MissingExtra("anthropic") from error

try:
    from anthropic.lib.tools import (
        BetaAbstractMemoryTool,
        BetaAsyncAbstractMemoryTool,
        ToolError,
    )
    from anyio import to_thread
except ImportError as error:
    raise MissingExtra("anthropic") from error

if TYPE_CHECKING:
    from anthropic.lib.tools import BetaFunctionToolResultType
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )


class AsyncHandle(Protocol):
    """An async Holdfast handle."""

    @property
    def memory_stores(self) -> Any:  # the mirror of a plain handle's, each call awaitable
        """The memory stores."""
        ...

    async def for_tier(self, tier: WriterTier) -> "AsyncHandle":
        """Return the handle for the writes of *tier*."""
        ...


class AwaitedHandle:
    """Run each call on memories in the event loop and wait for its result.

    Only for worker threads that the event loop itself started.
    """

    def __init__(self, hf: AsyncHandle) -> None:
        self._hf = hf
        self.memory_stores = self
        self.memories = _AwaitedMemories(hf)

    def for_tier(self, tier: WriterTier) -> "AwaitedHandle":
        """Return the handle for the writes of *tier*."""
        return AwaitedHandle(from_thread.run(self._hf.for_tier, tier))


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


class HoldfastMemoryTool(BetaAbstractMemoryTool):
    """The memory tool on the paths below *prefix* in a store, for the SDK's runner.

    Raise InvalidInput if *prefix* does not start and end with a slash.
    """

    def __init__(
        self,
        hf: Holdfast,
        store_id: str,
        *,
        prefix: str = "/",
        read_only: bool = False,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        [self._tool] = files(hf, store_id, prefix=prefix, read_only=read_only)
        self._clear = partial(clear, hf, store_id, prefix, read_only=read_only)

    def call(self, input: object) -> "BetaFunctionToolResultType":
        """Return the result for *input*, the arguments as the model wrote them."""
        # The SDK would coerce arguments that are not legible, or reject the command.
        return super().call(input) if legible(input) else self._answer(input)

    def view(self, command: "BetaMemoryTool20250818ViewCommand") -> str:
        """Show a directory or a file."""
        return self._answer(dict(command))

    def create(self, command: "BetaMemoryTool20250818CreateCommand") -> str:
        """Make a new file."""
        return self._answer(dict(command))

    def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> str:
        """Replace the one occurrence of a text in a file."""
        return self._answer(dict(command))

    def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> str:
        """Add lines to a file."""
        return self._answer(dict(command))

    def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> str:
        """Delete a file or a directory."""
        return self._answer(dict(command))

    def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> str:
        """Give a file or a directory another path."""
        return self._answer(dict(command))

    def clear_all_memory(self) -> str:
        """Delete everything below the prefix, in one transaction."""
        return _run(self._clear)

    def _answer(self, arguments: object) -> str:
        return _run(partial(self._tool.call, arguments))


class AsyncHoldfastMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for the SDK's async tool runner.

    *hf* is an async handle or a synchronous one. Each command runs on a worker thread.
    Raise InvalidInput if *prefix* does not start and end with a slash.
    """

    def __init__(
        self,
        hf: Holdfast | AsyncHandle,
        store_id: str,
        *,
        prefix: str = "/",
        read_only: bool = False,
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        awaits = iscoroutinefunction(hf.memory_stores.memories.at)
        plain = cast("Holdfast", AwaitedHandle(cast("AsyncHandle", hf)) if awaits else hf)
        [self._tool] = files(plain, store_id, prefix=prefix, read_only=read_only)
        self._clear = partial(clear, plain, store_id, prefix, read_only=read_only)

    async def call(self, input: object) -> "BetaFunctionToolResultType":
        """Return the result for *input*, the arguments as the model wrote them."""
        # The SDK would coerce arguments that are not legible, or reject the command.
        return await (super().call(input) if legible(input) else self._answer(input))

    async def view(self, command: "BetaMemoryTool20250818ViewCommand") -> str:
        """Show a directory or a file."""
        return await self._answer(dict(command))

    async def create(self, command: "BetaMemoryTool20250818CreateCommand") -> str:
        """Make a new file."""
        return await self._answer(dict(command))

    async def str_replace(self, command: "BetaMemoryTool20250818StrReplaceCommand") -> str:
        """Replace the one occurrence of a text in a file."""
        return await self._answer(dict(command))

    async def insert(self, command: "BetaMemoryTool20250818InsertCommand") -> str:
        """Add lines to a file."""
        return await self._answer(dict(command))

    async def delete(self, command: "BetaMemoryTool20250818DeleteCommand") -> str:
        """Delete a file or a directory."""
        return await self._answer(dict(command))

    async def rename(self, command: "BetaMemoryTool20250818RenameCommand") -> str:
        """Give a file or a directory another path."""
        return await self._answer(dict(command))

    async def clear_all_memory(self) -> str:
        """Delete everything below the prefix, in one transaction."""
        return await self._hop(self._clear)

    async def _answer(self, arguments: object) -> str:
        return await self._hop(partial(self._tool.call, arguments))

    async def _hop(self, act: Callable[[], JSON]) -> str:
        return await to_thread.run_sync(_run, act)


def _run(act: Callable[[], JSON]) -> str:
    try:
        return str(act())
    except ToolRefused as refusal:
        raise ToolError(str(refusal)) from refusal
