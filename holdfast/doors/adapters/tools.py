"""What several adapters share: handles, threads, and our tools for a host."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any, Final, TypeVar

import msgspec

from holdfast.ground.errors import HoldfastError, InvalidInput, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import Tool, lay_out

T = TypeVar("T")

_encode: Final = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


def plain_handle(hf: Holdfast) -> Holdfast:
    """Return *hf*, for synchronous methods; InvalidInput for an async handle."""
    if isinstance(hf, AsyncHoldfast):
        raise InvalidInput(
            "hf",
            "must be a plain handle: this contract has synchronous methods",
            next="Open it with holdfast.open().",
        )
    return hf


def blocking_handle(hf: "Holdfast | AsyncHoldfast") -> Holdfast:
    """Return the handle whose calls block, of a plain or an async one."""
    # An adapter crosses to a thread once for a call of its host, not for each call of ours.
    return hf._of if isinstance(hf, AsyncHoldfast) else hf  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def finished(work: Callable[[], T]) -> T:
    """Return *work*(), run on a thread; cancelling waits for its end first."""
    # As `asyncio.to_thread`, without a task around it.
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def _ended(running: asyncio.Future[Any]) -> None:
    """Wait for the end of *running*, also when cancelled again; log how it failed."""
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:  # the first cancellation goes on at the end
            continue
    if not running.cancelled() and (error := running.exception()) is not None:
        _log.warning("a call that was cancelled has failed: %s", type(error).__name__)


def chosen_user(user: Any, context: Any) -> str:
    """Return the user that *user*, a name or a function of *context*, gives.

    Raise InvalidInput for none: nothing is read or written then.
    """
    return required("user", user(context) if callable(user) else user)


def required(field: str, given: object) -> str:
    """Return *given* if it is a name; none is refused before anything is read."""
    if not isinstance(given, str) or not given:
        raise InvalidInput(field, "must be named", given=given, next="Name whose memory it is.")
    return given


def offered(tools: Iterable[Iterable[Tool]]) -> list[Tool]:
    """Return the tools of several sets; ToolNameTaken if a name repeats."""
    return list(lay_out(*tools).values())


def result_of(tool: Tool, arguments: object) -> str:
    """Return the result of a call of *tool* as text, JSON unless it is text already.

    Raise ToolRefused, with a text for the model, for its mistakes and for whatever else we refuse.
    """
    try:
        answer = tool.call(arguments)
        text = answer if isinstance(answer, str) else _encode(answer).decode()
    except ToolRefused:
        raise
    except HoldfastError as error:
        raise ToolRefused(str(error)) from error
    except (UnicodeError, RecursionError) as error:
        raise ToolRefused("Send arguments of whole characters, not nested too deep.") from error
    if tool.refused is not None and tool.refused(answer):
        raise ToolRefused(text)
    return text
