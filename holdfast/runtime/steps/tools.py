"""Tools of a step: `finish_step`, memory, paging.

The model gets an error result, and nothing is raised, for a tool that raises, arguments its schema
does not allow, and a call after the result was accepted. Results too long for a prompt are paged.
"""

import asyncio
import json
import logging
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from inspect import isawaitable
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec
from msgspec import Struct
from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    OutputToolCallEvent,
    OutputToolResultEvent,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from holdfast.ground.errors import HoldfastError, ToolNameTaken
from holdfast.ground.json_values import is_nested_over
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyTool, AnyToolset, name_of
from holdfast.runtime.concurrency import Suspended, apart, class_of, described
from holdfast.runtime.context import Context
from holdfast.runtime.events import (
    Chunk,
    EventFacts,
    LogUpdate,
    ToolCallUpdate,
    ToolResultUpdate,
    shortened,
)
from holdfast.runtime.inference.agent_loop import settings_of
from holdfast.runtime.inference.pages import (
    READ_RESULT,
    ResultPages,
    ToolAnswer,
    answer,
    paged,
)
from holdfast.runtime.inference.request import Delta
from holdfast.runtime.inference.validation import DEPTH, NotJSON, Partial
from holdfast.runtime.mcp import PROBLEMS, kept, reach, seen_to
from holdfast.runtime.runs.part_log import KeptAnswer, PartLog
from holdfast.runtime.runs.suspension import WAITS, AnswerTimeout, Consent, Denied, PartCall, asking
from holdfast.runtime.tools import (
    CutOff,
    ToolContext,
    begin_call,
    equipped,
    in_thread,
    tool_context,
)
from holdfast.tools.base import JSON, Tool

FINISH: Final = "finish_step"
NOT_RUN: Final = "Not run: the step is finished."
NOTHING: Final = "The tool returned nothing."
GRACE: Final = 5.0
"""Seconds for a tool to end when the run is cancelled."""

_KINDS: Final = frozenset({"bad_arguments", "interrupted", "not_json", "timeout"})
"""Types of errors that are not the tool's own."""

_log = logging.getLogger(__name__)
_TEXT, _VALUE = "text", "value"


class ToolCallOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a call: *characters* of the result, and whether it was paged.

    *kind* is that of its error, if it failed.
    """

    ok: bool
    characters: int = 0
    paged: bool = False
    kind: str | None = None


class Unchecked:
    """Accepts all arguments: a step's tools check theirs when they are called."""

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


Severity: TypeAlias = Literal["info", "warning", "error"]
Concludes: TypeAlias = Callable[[RunContext[Any], Sequence[ToolDefinition]], Awaitable[bool]]
"""Returns whether the request with these tools concludes the loop, so that none is offered."""


@dataclass(eq=False)
class Toolbox:
    """The tools of one loop of *agent*: those offered now, and outcomes by call id.

    *own* are ours, which page their results themselves; those of the others are paged beyond
    *limit* characters, and only *allowed* ones are offered, if given. *log* makes a log event.
    """

    agent: AgentSpec
    context: Context
    _: KW_ONLY
    own: Sequence[Tool]
    tools: Sequence[AnyTool]
    toolsets: Sequence[AnyToolset]
    limit: int
    log: Callable[[Severity, str], LogUpdate]
    allowed: Collection[str] | None = None
    answers: dict[str, ToolCallOutcome] = field(
        default_factory=dict[str, ToolCallOutcome], init=False
    )
    offered: Mapping[str, ToolsetTool[Any]] = field(
        default_factory=dict[str, ToolsetTool[Any]], init=False
    )

    def __post_init__(self) -> None:
        self.pages = ResultPages(self.limit)
        self.threaded = {name_of(tool) for tool in self.tools if in_thread(tool)}
        self._own = {READ_RESULT, *[tool.name for tool in self.own]}

    def toolset(
        self, concludes: Concludes | None = None, finished: Callable[[], bool] = lambda: False
    ) -> "StepTools":
        """Return all tools as one toolset.

        None is offered in a request that *concludes*, and none runs once the loop is *finished*.
        """
        tools = [*self.tools, *self.own, self.pages.tool()]
        toolsets = [kept(each) for each in self.toolsets]
        equipment = equipped(tools, toolsets, context_of=self._context_of)
        return StepTools(equipment, self, concludes, finished)

    @cached_property
    def _state(self) -> NetworkState:
        return NetworkState()

    def _context_of(self, ctx: RunContext[Any]) -> ToolContext:
        context = self.context
        return tool_context(
            ctx,
            self.agent,
            self._state,
            run_id=context.run_id,
            context=context,
        )

    def unlisted(self, names: Iterable[str]) -> set[str]:
        """Return those of *names* that are not to be offered now."""
        found = set[str]() if self.allowed is None else set(names) - self._own - {*self.allowed}
        return found if self.pages.results else found | {READ_RESULT}

    def pages_of(self, name: str) -> ResultPages | None:
        """Return the pages for long results of *name*; None if it pages itself."""
        return None if name in self._own else self.pages

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request."""
        return settings_of(self.agent, ctx, self.offered)

    async def unavailable(self, server: str, error: str, message: str) -> None:
        """Emit that the MCP *server* cannot be reached, with a *message* for people."""
        update = self.log("warning", message)
        data = {"server": server, "error": shortened(error)}
        facts = EventFacts(type="mcp.unavailable", part=update.step_id, data=data)
        await self.context.emit(facts, update)

    async def warn(self, message: str) -> None:
        """Emit a warning."""
        await self.context.tell(self.log("warning", message))


@dataclass
class StepTools(WrapperToolset[Any]):
    """The tools of one try of a step, as far as they are offered now."""

    toolbox: Toolbox
    concludes: Concludes | None
    finished: Callable[[], bool]

    async def __aenter__(self) -> Self:
        """Connect the servers; a failed one is not retried in this run.

        Emit a warning for each unreachable one; raise NotRunnable if it is required.
        """
        unreached = await reach([self.wrapped], self.toolbox.context.servers_down)
        for name, error in unreached.items():
            why = f"the MCP server {name} cannot be reached, its tools are not offered: {error}"
            await self.toolbox.unavailable(name, error, why)
        token = seen_to.set(True)
        try:
            await super().__aenter__()
        finally:
            seen_to.reset(token)
        return self

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools to offer in the next request."""
        tools = await super().get_tools(ctx)
        if FINISH in tools:
            raise ToolNameTaken(FINISH, "step.finish", tools[FINISH].toolset.label)
        unlisted = self.toolbox.unlisted(tools)
        offered = {name: tool for name, tool in tools.items() if name not in unlisted}
        if self.concludes is not None:
            definitions = [tool.tool_def for tool in offered.values()]
            offered = {} if await self.concludes(ctx, definitions) else offered
        self.toolbox.offered = offered
        # A call always gives a result and never ends the run.
        return {
            name: replace(
                tool,
                tool_def=replace(tool.tool_def, kind="function"),
                args_validator=_unchecked,
                args_validator_func=None,
            )
            for name, tool in offered.items()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],  # noqa: ARG002 - the one it stands for is called
    ) -> Any:
        """Return the result of the call for the model."""
        toolbox, call_id = self.toolbox, ctx.tool_call_id or ""
        if self.finished():
            toolbox.answers[call_id] = ToolCallOutcome(ok=False, characters=len(NOT_RUN))
            return NOT_RUN
        kept: PartLog = ctx.deps.scope.kept
        if (known := kept.answer_of(call_id)) is not None:
            toolbox.answers[call_id] = msgspec.convert(known.facts, ToolCallOutcome)
            return known.shown
        real = toolbox.offered[name]
        call = PartCall(kept, call_id, name, _shown_arguments(tool_args))
        try:
            value = await asking(call, lambda: self._made(call, tool_args, ctx, real))
            given, answered = _given(value, real, toolbox.pages_of(name))
        except Suspended:
            return WAITS
        except AnswerTimeout:
            raise
        except Exception as error:  # noqa: BLE001 - a user's tool may raise anything
            given, answered = _failed_call(error, name, toolbox.pages_of(name))
        if given.repaired:
            ctx.deps.repaired.append(f"result of {name}")
        toolbox.answers[call_id] = answered
        found = KeptAnswer(shown=given.shown, facts=msgspec.to_builtins(answered))
        await kept.keep_answer(call_id, found, toolbox.pages.results)
        return given.shown

    async def _made(
        self,
        call: PartCall,
        given: Mapping[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> Any:
        """Return the value of *call* with the arguments *given*, if a person consents."""
        name = tool.tool_def.name

        async def make(arguments: dict[str, Any], ctx: RunContext[Any]) -> Any:
            await begin_call(tool, call.call_id, call.log)
            return await self._called(name, arguments, ctx, tool)

        async def check(arguments: dict[str, Any]) -> dict[str, Any]:
            return await _checked({_VALUE: arguments}, ctx, tool)

        return await Consent(call, tool, ctx, check, make).made(await _checked(given, ctx, tool))

    async def _called(
        self, name: str, arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the result of the tool; when cancelled, give it some seconds to end."""

        async def stop(work: asyncio.Task[Any]) -> None:
            # A thread cannot be stopped: it gets its time to end, and is then abandoned.
            if name in self.toolbox.threaded:
                await self._wait_for(work, name)
                work.cancel()
            else:
                work.cancel()
                await self._wait_for(work, name)

        return await apart(super().call_tool(name, arguments, ctx, tool), stop=stop)

    async def _wait_for(self, work: "asyncio.Future[Any]", name: str) -> None:
        grace = asyncio.ensure_future(self.toolbox.context.sleep(GRACE))
        await asyncio.wait([work, grace], return_when=asyncio.FIRST_COMPLETED)
        grace.cancel()
        if not work.done():
            await self.toolbox.warn(f"the tool {name} did not stop with the run and is left behind")


class BadArguments(Exception):
    """The arguments of a call do not fit the tool."""


async def _checked(
    given: Mapping[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Return the arguments *given*, validated by *tool*."""
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
) -> tuple[ToolAnswer, ToolCallOutcome]:
    """Return *value* for the model; a long one is stored in *pages* and sent in parts."""
    if value is None:
        return ToolAnswer(shown=NOTHING, stored=None, characters=0), ToolCallOutcome(ok=True)
    found = answer(value, tool, pages)
    return found, ToolCallOutcome(ok=found.ok, characters=found.characters, paged=found.paged)


def _failed_call(
    error: Exception, name: str, pages: ResultPages | None
) -> tuple[ToolAnswer, ToolCallOutcome]:
    """Return *error*, raised by a call of *name*, for the model."""
    kind, message = class_of(error), described(error)
    if isinstance(error, BadArguments):
        kind = "bad_arguments"
    elif isinstance(error, NotJSON):
        kind = "not_json"
    elif isinstance(error, CutOff):
        kind = "interrupted"
    elif isinstance(error, ModelRetry) and isinstance(error.__context__, TimeoutError):
        kind = "timeout"
    elif not isinstance(error, HoldfastError | ModelRetry | Denied):
        _log.info("the tool %s raised", name, exc_info=error)
    found = paged({"error": {"type": kind, "message": message}}, pages)
    return found, ToolCallOutcome(
        ok=False,
        characters=len(message),
        paged=found.paged,
        kind=kind if kind in _KINDS else "denied" if isinstance(error, Denied) else "raised",
    )


_RESULTS = FunctionToolResultEvent | OutputToolResultEvent
_OF_CALLS = FunctionToolCallEvent | OutputToolCallEvent | _RESULTS

LINE: Final = 120
"""Characters of the one-line message of a call."""


class StepEvents:
    """Emits the events of one try of *step* by *agent* with *toolbox*.

    A call that *kept* has the answer of was emitted before.
    """

    def __init__(
        self,
        context: Context,
        toolbox: Toolbox,
        kept: PartLog,
        *,
        agent: str | None,
        step: str,
        task: str | None = None,
    ) -> None:
        self._answers, self._agent, self._step, self._task = toolbox.answers, agent, step, task
        self._context, self._said = context, False
        self._called_at: dict[str, int] = {}
        self._kept = kept

    async def tell(self, type: str, data: dict[str, Any]) -> None:
        """Emit a request or a response; that ends the pieces of the response."""
        facts = EventFacts(type=type, part=self._part, agent=self._agent, data=data)
        chunk = None
        if self._said and type == "model.responded":
            self._said, chunk = False, Chunk(step_id=self._step, done=True)
        await self._context.emit(facts, chunk)

    @property
    def _part(self) -> str | None:
        """The part of the run; the turn of an agent in a team is none."""
        return None if self._task is None else self._step

    async def chunks(self, pieces: AsyncIterable[Delta]) -> None:
        """Emit a response in *pieces*, to its end."""
        async for kind, content in pieces:
            self._said = True
            thinking = kind == "reasoning.delta"
            chunk = Chunk(step_id=self._step, content=content, thinking=thinking)
            await self._context.tell(chunk, **self._who)

    async def calls(self, stream: AsyncIterable[AgentStreamEvent]) -> None:
        """Emit the calls of tools and their results."""
        async for event in stream:
            id = event.part.tool_call_id if isinstance(event, _OF_CALLS) else ""
            if isinstance(event, FunctionToolCallEvent | OutputToolCallEvent):
                if self._kept.questions_of(id):
                    self._called_at[id] = self._context.now()
                elif self._kept.answer_of(id) is None:
                    await self._called(event.part)
            elif isinstance(event, _RESULTS) and id in self._called_at and not self._waits(id):
                await self._answered(event.part)

    def _waits(self, call_id: str) -> bool:
        return any(each.status == "open" for each in self._kept.questions_of(call_id))

    @property
    def _who(self) -> dict[str, Any]:
        who: dict[str, Any] = {} if self._agent is None else {"agent": self._agent}
        return who if self._task is not None else {**who, "part": None}

    async def _called(self, call: ToolCallPart) -> None:
        arguments = _arguments(call)
        shown = json.dumps(arguments, ensure_ascii=False, default=str)
        line = f"{call.tool_name} {shown}".replace("\n", " ")
        self._called_at[call.tool_call_id] = self._context.now()
        update = ToolCallUpdate(
            task_id=self._task,
            step_id=self._step,
            tool_call_id=call.tool_call_id,
            name=call.tool_name,
            args=arguments,
            message=line if len(line) <= LINE else line[: LINE - 1] + "…",
        )
        await self._context.tell(update, **self._who)

    async def _answered(self, part: ToolReturnPart) -> None:
        known = self._answers.get(part.tool_call_id)
        if known is None:
            # Answered by the framework: `finish_step`, or a tool that is not offered.
            size = len(part.model_response_str())
            known = ToolCallOutcome(ok=part.outcome == "success", characters=size)
        update = ToolResultUpdate(
            task_id=self._task,
            step_id=self._step,
            tool_call_id=part.tool_call_id,
            name=part.tool_name,
            ok=known.ok,
            characters=known.characters,
            paged=known.paged,
        )
        now = self._context.now()
        await self._context.tell(
            update,
            **self._who,
            content=shortened(part.model_response_str()),
            kind=known.kind,
            ms=now - self._called_at.pop(part.tool_call_id),
        )


def _shown_arguments(given: Mapping[str, Any]) -> JSON:
    """Return the arguments *given* as JSON, as text if they are none."""
    return _parsed(given[_TEXT] if _TEXT in given else given[_VALUE])


def _arguments(call: ToolCallPart) -> Any:
    """Return the arguments of *call*, as text if they are no JSON."""
    return _parsed(call.args)


def _parsed(given: Any) -> Any:
    if not isinstance(given, str):
        return {} if given is None else given
    if is_nested_over(given, DEPTH):
        return given
    try:
        return msgspec.json.decode(given or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return given
