"""One way of asking for both colours of the SDK's client, in every release of it.

Needs the SDK and nothing else, so that any interpreter that has one can run what is built on it.
"""

import inspect
from collections.abc import AsyncIterable, Awaitable, Iterable
from typing import TypeVar, cast

from anthropic import Anthropic, AsyncAnthropic

Client = Anthropic | AsyncAnthropic

T = TypeVar("T")


async def answered(given: Awaitable[T] | T) -> T:
    """Return what a call of either client came to."""
    return cast("T", await given if inspect.isawaitable(given) else given)


async def walked(pages: AsyncIterable[T] | Iterable[T]) -> list[T]:
    """Return what is on all *pages*, which the client asks for one after the other."""
    if isinstance(pages, AsyncIterable):
        return [each async for each in pages]
    return list(pages)
