"""Requests that are open: none goes on once whoever made it has gone.

pydantic-ai streams a reply in a task of its own. Cancelled just as that task has handed its stream
over, it leaves the task waiting for ever; so those tasks are noted, and ended with their loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

Tasks: TypeAlias = set[asyncio.Task[Any]]

_open: ContextVar[Tasks | None] = ContextVar("_open", default=None)
"""The tasks in which the loop that runs here has requests open."""


class Noting(AbstractCapability[Any]):
    """Notes in which task each request is made."""

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Make the request."""
        tasks, here = _open.get(), asyncio.current_task()
        if tasks is not None and here is not None:
            tasks.add(here)
        return await handler(request_context)


NOTING = Noting()


@asynccontextmanager
async def none_left() -> AsyncGenerator[None]:
    """End what this loop's requests still have running when the loop is left."""
    tasks: Tasks = set()
    token = _open.set(tasks)
    try:
        yield
    finally:
        _open.reset(token)
        left = {each for each in tasks if not each.done()} - {asyncio.current_task()}
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left)
