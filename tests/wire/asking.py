"""One way of asking for both colours of the SDK's client, in every release of it.

Needs the SDK and nothing else, so that any interpreter that has one can run what is built on it.
"""

import inspect
import ssl
from collections.abc import AsyncIterable, Awaitable, Iterable
from typing import Any, TypeVar, cast

from anthropic import Anthropic, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient

Client = Anthropic | AsyncAnthropic

T = TypeVar("T")

# Servers of tests speak no TLS; reading the machine's certificates anew is half of a client's cost.
TLS = ssl.create_default_context()


def client_of(color: str, url: str, **how: Any) -> Client:
    """Return a new client, `sync` or `async`, of the server at *url*."""
    if color == "sync":
        return Anthropic(base_url=url, http_client=DefaultHttpxClient(verify=TLS), **how)
    return AsyncAnthropic(base_url=url, http_client=DefaultAsyncHttpxClient(verify=TLS), **how)


async def answered(given: Awaitable[T] | T) -> T:
    """Return what a call of either client came to."""
    return cast("T", await given if inspect.isawaitable(given) else given)


async def walked(pages: AsyncIterable[T] | Iterable[T]) -> list[T]:
    """Return what is on all *pages*, which the client asks for one after the other."""
    if isinstance(pages, AsyncIterable):
        return [each async for each in pages]
    return list(pages)
