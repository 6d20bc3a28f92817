"""Tools that agents call, as pydantic-ai toolsets.

A first parameter annotated `ToolContext` is filled and not shown to the model. A `RunContext` has
the `ToolContext` as its `deps`. A plain function runs in a thread, which a cancelled call abandons.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast, get_type_hints

from anyio.to_thread import run_sync
from msgspec import Struct
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_ai.usage import RunUsage

from holdfast.ground.errors import ToolNameTaken
from holdfast.ground.json_values import hashed
from holdfast.memories.run.history.effects import effects_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyTool, AnyToolset, name_of, named, plain_function
from holdfast.runtime.context import Context
from holdfast.runtime.inference.pages import OURS
from holdfast.runtime.inference.validation import JsonArguments, Validator
from holdfast.runtime.mcp import BySchema, takes_anything
from holdfast.runtime.runs.part_log import PartLog
from holdfast.tools.base import Schema, Tool


class ToolContext(Struct, frozen=True, kw_only=True):
    """The call that a tool is part of.

    A first parameter annotated with it is filled, and not shown to the model. `network` is the
    `NetworkRun`, None outside a network. `context` and `memory` are set in a plan or a team. What
    is written to `state` carries this call as its source. `part` is the part of the run.
    """

    agent: AgentSpec
    state: NetworkState
    run_id: str
    call_id: str
    tool_name: str
    usage: RunUsage
    network: Any = None
    context: Context | None = None
    memory: RunMemory | None = None
    part: str | None = None

    @property
    def idempotency_key(self) -> str:
        """The name of the call, the same when it is made again: run, part and call id."""
        return f"{self.run_id}:{self.part or self.agent.name}:{self.call_id}"


def tool_context(
    ctx: RunContext[Any],
    agent: AgentSpec,
    state: NetworkState,
    *,
    run_id: str,
    network: Any = None,
    context: Context | None = None,
) -> ToolContext:
    """Return the context of the tool call *ctx*, with *state* on its behalf."""
    call_id, name = ctx.tool_call_id or "", ctx.tool_name or ""
    # An agent of pydantic-ai itself has no part of a run.
    loop: Any = getattr(ctx.deps, "scope", None)
    return ToolContext(
        agent=agent,
        state=state.on_behalf(agent=agent.name, run_id=run_id, tool=name, call_id=call_id),
        run_id=run_id,
        call_id=call_id,
        tool_name=name,
        usage=ctx.usage,
        network=network,
        context=context,
        memory=context.memory if context else None,
        part=None if loop is None else loop.kept.part,
    )


ContextOf: TypeAlias = Callable[[RunContext[Any]], ToolContext]

_OBJECT: Final[Schema] = {"type": "object"}


REPEAT: Final = "repeat"
"""The key of a tool's metadata that is False if a call that was cut off is not made again."""


class CutOff(Exception):
    """The call was cut off in an earlier process, and is not to be repeated."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"a process ended while {name} was at work, and it is not known what it did; "
            "check that before you call it again"
        )


def tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    repeat: bool = True,
    requires_approval: bool = False,
) -> ModelTool[Any]:
    """Return *function* as a tool under *name*, its own unless given.

    Without *repeat* a call that an ended process has begun is not made again: it is answered as
    interrupted. With *requires_approval* a person approves each call before it is made.
    """
    made = _of_function(function)
    made.name = name or made.name
    made.requires_approval = requires_approval
    made.metadata = {**(made.metadata or {}), REPEAT: repeat}
    return made


async def begin_call(tool: ToolsetTool[Any], call_id: str, kept: PartLog) -> None:
    """Keep that a call of *tool* begins, if it is not to be repeated.

    Raise CutOff if it was begun and cut off before.
    """
    if (tool.tool_def.metadata or {}).get(REPEAT) is not False:
        return
    if call_id in kept.begun:
        raise CutOff(tool.tool_def.name)
    await kept.keep_begun(call_id)


def in_thread(tool: AnyTool) -> bool:
    """Return whether *tool* works in a thread, which nothing can stop."""
    if isinstance(tool, OfferedTool):
        return tool.threaded
    if isinstance(tool, ModelTool):
        return not _is_async(cast("ModelTool[Any]", tool).function)
    return isinstance(tool, Tool) or not _is_async(tool)


def offered(tools: Sequence[AnyTool]) -> list[ModelTool[Any]]:
    """Return *tools* as pydantic-ai tools, called with a `ToolContext` as `deps`."""
    return [_offered(tool) for tool in tools]


def equipped(
    tools: Sequence[AnyTool], toolsets: Sequence[AnyToolset] = (), *, context_of: ContextOf
) -> AbstractToolset[Any]:
    """Return one toolset of all, with checked names and arguments.

    Tools are called with the `ToolContext` that *context_of* makes from pydantic-ai's context.
    Raise ToolNameTaken on a clash of names.
    """
    named(tools)
    own: list[AnyToolset] = [FunctionToolset(offered(tools))] if tools else []
    every = [*own, *toolsets]
    # A single one cannot clash, and pydantic-ai queries several in tasks of their own.
    return WithContext(every[0] if len(every) == 1 else SideBySide(every), context_of)


@dataclass
class SideBySide(CombinedToolset[Any]):
    """Combines toolsets; ToolNameTaken names two tools of one name."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return all tools by name."""
        try:
            return await super().get_tools(ctx)
        except UserError as error:
            holders: dict[str, str] = {}
            for toolset in self.toolsets:
                for name, tool in (await toolset.get_tools(ctx)).items():
                    if name in holders:
                        raise ToolNameTaken(name, holders[name], tool.toolset.label) from error
                    holders[name] = tool.toolset.label
            raise


@dataclass
class WithContext(WrapperToolset[Any]):
    """Calls tools with a `ToolContext`, and only with arguments their schema allows.

    Our tools that check arguments themselves get any object: their error message is for the model.
    """

    context_of: ContextOf

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools; those that accept anything are validated by their schema."""
        tools = await super().get_tools(ctx)
        return {
            name: replace(tool, args_validator=JsonArguments(_validator(tool)))
            for name, tool in tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the result of the tool; what our own tools write happens once in a run."""
        made = replace(ctx, deps=self.context_of(ctx))
        if not isinstance((tool.tool_def.metadata or {}).get(OURS), Tool):
            return await super().call_tool(name, tool_args, made, tool)
        with effects_of(made.deps.run_id, _key_of(ctx, tool_args)):
            return await super().call_tool(name, tool_args, made, tool)


def _key_of(ctx: RunContext[Any], tool_args: dict[str, Any]) -> str:
    """Return what names a call within its run: part, response, id and arguments.

    A provider may use an id again, in another response.
    """
    scope = getattr(ctx.deps, "scope", None)
    kept: PartLog | None = getattr(scope, "kept", None)
    digest = hashed(tool_args)[:12]
    part, reply = ("", 0) if kept is None else (kept.part, kept.replies)
    return f"{part}:{reply}:{digest}:{ctx.tool_call_id}"


def _validator(tool: ToolsetTool[Any]) -> Validator:
    found = tool.args_validator
    if takes_anything(found):
        return BySchema(_demanded(tool.tool_def))
    return cast("Validator", found)


def _demanded(definition: ToolDefinition) -> Schema:
    """Return the schema for arguments of the tool of *definition*.

    It is checked before the call. A tool that checks its arguments itself accepts any object.
    """
    ours = (definition.metadata or {}).get(OURS)
    if isinstance(ours, Tool) and ours.checks:
        return _OBJECT
    return definition.parameters_json_schema


def _offered(tool: AnyTool) -> ModelTool[Any]:
    if isinstance(tool, Tool):
        return _ours(tool)
    if isinstance(tool, ModelTool):
        made = copy(cast("ModelTool[Any]", tool))
        if not isinstance(made, OfferedTool):
            _run_by(made, _called(made.function))
        return made
    return _of_function(tool)


class OfferedTool(ModelTool[Any]):
    """A function as a tool that is called with a `ToolContext` already."""

    threaded = True


def _of_function(tool: Callable[..., Any]) -> OfferedTool:
    first = next(iter(_parameters(tool)), None)
    wants = first is not None and _hints(tool).get(first.name) is ToolContext
    made = OfferedTool(_face(tool, with_context=wants))
    made.threaded = not _is_async(tool)
    _run_by(made, _called(tool, with_context=wants))
    return made


def _ours(tool: Tool) -> ModelTool[Any]:
    async def work(**arguments: Any) -> Any:
        return await run_sync(tool.call, arguments, abandon_on_cancel=True)

    made = ModelTool[Any].from_schema(
        work,
        tool.name,
        tool.description,
        tool.parameters,
        # What is read must see what was written just before, in a run's memory and on a board.
        sequential=tool.id.startswith(("run.", "team.")),
    )
    made.metadata = {OURS: tool}
    return made


def _run_by(tool: ModelTool[Any], function: Callable[..., Any]) -> None:
    tool.function_schema = replace(tool.function_schema, function=function, is_async=True)


def _called(
    function: Callable[..., Any], *, with_context: bool = False
) -> Callable[..., Awaitable[Any]]:
    awaitable = _is_async(function)

    async def call(*args: Any, **kwargs: Any) -> Any:
        if with_context:
            args = (args[0].deps, *args[1:])
        if awaitable:
            return await function(*args, **kwargs)
        answer = await run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)
        return await answer if inspect.isawaitable(answer) else answer

    return call


def _face(function: Callable[..., Any], *, with_context: bool) -> Callable[..., Any]:
    """Return the function from which pydantic-ai makes the schema of *function*.

    It works for methods and partials. With *with_context* its first parameter is not shown.
    """
    parameters, hints = _parameters(function), _hints(function)
    if with_context:
        hints[parameters[0].name] = RunContext[ToolContext]

    def face(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    annotated = [
        each.replace(annotation=hints.get(each.name, each.annotation)) for each in parameters
    ]
    plain = plain_function(function)
    face.__name__ = name_of(function)
    face.__qualname__ = getattr(plain, "__qualname__", face.__name__)
    face.__module__ = getattr(plain, "__module__", __name__)
    face.__doc__ = inspect.getdoc(plain)
    face.__annotations__ = hints
    cast("Any", face).__signature__ = inspect.Signature(annotated)
    return face


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        # A builtin without a signature.
        return []


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    plain = plain_function(function)
    with suppress(NameError):
        return get_type_hints(plain, include_extras=True)
    # A name only a type checker can see: pydantic-ai names it when it makes the schema.
    return {}


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(plain_function(function))
