"""The tools of a step: each call ends in an answer, whatever happens, and the step goes on.

A tool that raises, arguments its schema does not allow, a call after the result was accepted: the
model is told, nothing is raised. Results too long for a prompt come in parts.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replaced
from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ToolReturn, is_multi_modal_content
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from holdfast.ground.errors import HoldfastError, ToolNameTaken
from holdfast.runtime.inference.messages import json_form
from holdfast.runtime.mcp import PROBLEMS, seen_to
from holdfast.runtime.steps.paging import ResultPages
from holdfast.runtime.tools import OURS
from holdfast.tools.base import JSON, Tool

FINISH: Final = "finish_step"
NOT_RUN: Final = "Not run: the step is finished."
NOTHING: Final = "The tool returned nothing."
GRACE: Final = 5.0
"""Seconds that a tool in a thread is waited for when the run is cancelled."""

Partial: TypeAlias = bool | Literal["off", "on", "trailing-strings"]

_log = logging.getLogger(__name__)
_TEXT, _VALUE = "text", "value"


class ToolCallOutcome(Struct, frozen=True, kw_only=True):
    """How a call went: *characters* of what the tool returned, and whether a part was given."""

    ok: bool
    characters: int
    paged: bool = False


class Unchecked:
    """Lets every argument pass: a step's tools check theirs when they are called."""

    def validate_json(
        self,
        input: str | bytes | bytearray,
        *,
        allow_partial: Partial = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the text *input* as it is."""
        return {_TEXT: input}

    def validate_python(
        self,
        input: Any,
        *,
        allow_partial: Partial = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the value *input* as it is."""
        return {_VALUE: input}


_unchecked: Final = Unchecked()


class Box(Protocol):
    """Who lays the tools out: what is offered, what came of each call, what a cancelled one does.

    `threaded` are those that run in threads; `answers` goes by the ids of calls.
    """

    answers: dict[str, ToolCallOutcome]
    offered: Mapping[str, ToolsetTool[Any]]
    threaded: set[str]

    @property
    def finished(self) -> bool:
        """Whether nothing is run any more."""
        ...

    async def offer(
        self, tools: Mapping[str, ToolsetTool[Any]], messages: Sequence[ModelMessage]
    ) -> Mapping[str, ToolsetTool[Any]]:
        """Return those of *tools* that may be called in the request that sends *messages*."""
        ...

    def pages_of(self, name: str) -> ResultPages | None:
        """Return where a long result of *name* is kept; None for tools that page themselves."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait, by the run's own measure of time."""
        ...

    async def left_behind(self, name: str) -> None:
        """Tell that *name*, which would not stop, is left to itself."""
        ...

    async def reach(self, toolset: AbstractToolset[Any]) -> None:
        """Connect the servers in *toolset*; tell of those that cannot be reached."""
        ...


@dataclass
class StepTools(WrapperToolset[Any]):
    """The tools of one try of a step, as far as they are offered now."""

    toolbox: Box

    async def __aenter__(self) -> Self:
        """Connect what is to be connected, once a run where that does not help."""
        await self.toolbox.reach(self.wrapped)
        token = seen_to.set(True)
        try:
            await super().__aenter__()
        finally:
            seen_to.reset(token)
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return those that may be called in the next request."""
        tools = await super().get_tools(ctx)
        if FINISH in tools:
            raise ToolNameTaken(FINISH, "step.finish", tools[FINISH].toolset.label)
        offered = await self.toolbox.offer(tools, ctx.messages)
        return {name: _shown(tool) for name, tool in offered.items()}

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],  # noqa: ARG002 - the one it stands for is called
    ) -> Any:
        """Return what the model is given for the call."""
        toolbox, call_id = self.toolbox, ctx.tool_call_id or ""
        if toolbox.finished:
            toolbox.answers[call_id] = ToolCallOutcome(ok=False, characters=len(NOT_RUN))
            return NOT_RUN
        real = toolbox.offered[name]
        try:
            arguments = await _checked(tool_args, ctx, real)
            value = await self._called(name, arguments, ctx, real)
            given, answered = _given(value, real, toolbox.pages_of(name))
        except Exception as error:  # noqa: BLE001 - whatever a user's tool raises is its answer
            given, answered = _failed_call(error, name, toolbox.pages_of(name))
        toolbox.answers[call_id] = answered
        return given

    async def _called(
        self, name: str, arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return what the tool returns; when it is cancelled, it has some time to end."""
        if tool.tool_def.kind != "function":
            raise Denied("it needs an approval, and no approver is present")
        work = asyncio.ensure_future(super().call_tool(name, arguments, ctx, tool))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it does is waited for, and then left behind.
            if name in self.toolbox.threaded:
                await self._wait_for(work, name)
                work.cancel()
            else:
                work.cancel()
                await self._wait_for(work, name)
            raise

    async def _wait_for(self, work: "asyncio.Future[Any]", name: str) -> None:
        grace = asyncio.ensure_future(self.toolbox.sleep(GRACE))
        await asyncio.wait([work, grace], return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        if not work.done():
            await self.toolbox.left_behind(name)
        elif not work.cancelled():
            work.exception()


def _shown(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return *tool* as it is offered: nothing of it ends the agent's run in place of an answer."""
    definition = tool.tool_def
    if definition.kind != "function":
        definition = replace(definition, kind="function")
    return replace(tool, tool_def=definition, args_validator=_unchecked, args_validator_func=None)


class Denied(Exception):
    """The tool waits for somebody outside of the run."""


class BadArguments(Exception):
    """The arguments of a call are not what the tool takes."""


async def _checked(
    given: Mapping[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Return the arguments *given*, as *tool* takes them."""
    validator, known = tool.args_validator, ctx.validation_context
    try:
        if _TEXT in given:
            found: dict[str, Any] = validator.validate_json(given[_TEXT] or "{}", context=known)
        else:
            found = validator.validate_python(given[_VALUE] or {}, context=known)
        if tool.args_validator_func is not None:
            checked: object = tool.args_validator_func(ctx, **found)
            if isawaitable(checked):
                await checked
    except ModelRetry as error:
        raise BadArguments(error.message) from error
    except ValidationError as error:
        raise BadArguments("; ".join(map(_problem, error.errors()[:PROBLEMS]))) from error
    return found


def _problem(found: Mapping[str, Any]) -> str:
    where = ".".join(map(str, found["loc"])) or "arguments"
    return f"{where}: {found['msg']}"


def _given(
    value: Any, tool: ToolsetTool[Any], pages: ResultPages | None
) -> tuple[Any, ToolCallOutcome]:
    """Return what the model is given of *value*; a long one is kept in *pages* and given in part.

    Files, images and audio stay what they are and have no characters.
    """
    if value is None:
        return NOTHING, ToolCallOutcome(ok=True, characters=0)
    if isinstance(value, ToolReturn):
        whole = cast("ToolReturn[Any]", value)
        inner, answered = _given(whole.return_value, tool, pages)
        return replace(whole, return_value=inner), answered
    listed: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
    files = [each for each in listed if is_multi_modal_content(each)]
    if files:
        rest = [each for each in listed if not is_multi_modal_content(each)]
        return _with_files(files, rest, value, pages)
    data = json_form(cast("object", value))
    text = _text(data)
    answered = ToolCallOutcome(ok=not _refused(data, tool), characters=len(text))
    if pages is None or len(text) <= pages.most:
        return data, answered
    return pages.keep(text), replaced(answered, paged=True)


def _text(data: JSON) -> str:
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _with_files(
    files: list[Any], rest: list[Any], value: Any, pages: ResultPages | None
) -> tuple[Any, ToolCallOutcome]:
    """Return *value*, whose texts beside *files* are *rest*, those in part if they are long."""
    texts = [each if isinstance(each, str) else _text(json_form(each)) for each in rest]
    answered = ToolCallOutcome(ok=True, characters=sum(map(len, texts)))
    if pages is None or answered.characters <= pages.most:
        return value, answered
    return [*files, pages.keep("\n".join(texts))], replaced(answered, paged=True)


def _refused(data: JSON, tool: ToolsetTool[Any]) -> bool:
    ours = (tool.tool_def.metadata or {}).get(OURS)
    return isinstance(ours, Tool) and ours.refused is not None and ours.refused(data)


def _failed_call(
    error: Exception, name: str, pages: ResultPages | None
) -> tuple[JSON, ToolCallOutcome]:
    """Return what the model is told of *error*, which a call of *name* raised."""
    # No provider takes half a character.
    kind, message = type(error).__name__, str(error).encode(errors="replace").decode()
    if isinstance(error, BadArguments):
        kind = "invalid_input"
    elif isinstance(error, ModelRetry) and isinstance(error.__context__, TimeoutError):
        kind = "timeout"
    elif not isinstance(error, HoldfastError | ModelRetry | Denied):
        _log.info("the tool %s raised", name, exc_info=error)
    told: JSON = {"error": {"type": kind, "message": message}}
    answered = ToolCallOutcome(ok=False, characters=len(message))
    if pages is None or len(text := _text(told)) <= pages.most:
        return told, answered
    return pages.keep(text), replaced(answered, paged=True)
