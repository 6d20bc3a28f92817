"""The tasks of an agent's loop: none goes on once whoever ran the loop has gone.

pydantic-ai surrounds a loop with hooks in a task of their own, and streams a reply in another.
Cancelled just as one of them hands over, it leaves that task waiting for ever; so both are noted,
and ended with the loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    WrapModelRequestHandler,
    WrapRunHandler,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

Tasks: TypeAlias = set[asyncio.Task[Any]]

PATIENCE: Final = 5.0
"""Seconds in which what was cancelled is to end."""

_noted: ContextVar[Tasks | None] = ContextVar("_noted", default=None)
"""The tasks of the loop that runs here."""


class Noting(AbstractCapability[Any]):
    """Notes in which tasks a loop's hooks surround it, and its requests are made."""

    async def wrap_run(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        handler: WrapRunHandler,
    ) -> AgentRunResult[Any]:
        """Let the loop run."""
        _note()
        return await handler()

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Let the request be made."""
        _note()
        return await handler(request_context)


def _note() -> None:
    tasks, here = _noted.get(), asyncio.current_task()
    if tasks is not None and here is not None:
        tasks.add(here)


NOTING: Final = Noting()


@asynccontextmanager
async def none_left() -> AsyncGenerator[None]:
    """End what is left of the loop within this when it is over."""
    tasks: Tasks = set()
    token = _noted.set(tasks)
    try:
        yield
    finally:
        _noted.reset(token)
        left = {each for each in tasks if not each.done()} - {asyncio.current_task()}
        if left:
            await _ended(left)


async def _ended(left: Tasks) -> None:
    """Cancel those *left* and wait for them, also where the one who waits is cancelled again."""
    for each in left:
        each.cancel()
    try:
        await asyncio.wait(left, timeout=PATIENCE)
    except asyncio.CancelledError:
        await asyncio.wait(left, timeout=PATIENCE)
        raise
