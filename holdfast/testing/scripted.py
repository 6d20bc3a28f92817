"""Scripted model for tests of agents; it records its requests (extra `agents`)."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from msgspec import Struct
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition

PIECE = 40
"""Characters of text in one piece of a streamed response."""

Part: TypeAlias = str | ModelResponsePart
Said: TypeAlias = "Part | Sequence[Part] | ModelResponse | Exception"
Turn: TypeAlias = "Said | Callable[[Asked], object]"
"""A response, or a function of the request that returns one, perhaps awaitable."""


class Asked(Struct, frozen=True):
    """The content of one request."""

    instructions: str
    messages: list[ModelMessage]
    tools: list[ToolDefinition]
    settings: ModelSettings | None

    @property
    def offered(self) -> list[str]:
        """The names of its tools; output tools, which end the run, come last."""
        return [each.name for each in self.tools]

    @property
    def text(self) -> str:
        """All text of the request in order, instructions first."""
        said = (
            str(getattr(part, "content", None) or getattr(part, "args", ""))
            for message in self.messages
            for part in message.parts
        )
        return "\n\n".join([self.instructions, *said])


def call(tool: str, /, *, call_id: str | None = None, **arguments: object) -> ToolCallPart:
    """Return a call of *tool* with *arguments*."""
    return ToolCallPart(tool, arguments, call_id) if call_id else ToolCallPart(tool, arguments)


def thought(text: str) -> ThinkingPart:
    """Return *text* as a thinking part, which comes before a response."""
    return ThinkingPart(text)


class ScriptedModel(FunctionModel):
    """Model that responds with *turns* in order, streamed or not.

    If *turns* is a function, it responds to every request. `asked` has the requests in order. A
    request past the end of the script fails its test.

    >>> from pydantic_ai import Agent
    >>> model = ScriptedModel(["Hello."])
    >>> Agent(model).run_sync("Hi?").output, len(model.asked)
    ('Hello.', 1)
    """

    def __init__(
        self, turns: Sequence[Turn] | Callable[[Asked], object], *, name: str = "scripted"
    ) -> None:
        super().__init__(self._answer, model_name=name)
        self.asked: list[Asked] = []
        self._turns: Iterator[Turn] | None = None if callable(turns) else iter(turns)
        self._always = turns if callable(turns) else None

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        request = Asked(
            info.instructions or "",
            list(messages),
            [*info.function_tools, *info.output_tools],
            info.model_settings,
        )
        self.asked.append(request)
        said: object = self._next()
        if callable(said):
            said = said(request)
        if isawaitable(said):
            said = await said
        return _response(said)

    def _next(self) -> Turn:
        if self._always is not None:
            return self._always
        for turn in self._turns or ():
            return turn
        raise AssertionError(f"the script has ended: request {len(self.asked)} has no turn")

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[StreamedResponse]:
        """Yield the next response in pieces."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response,
            model_request_parameters=model_request_parameters,
            replay_events=list(_pieces(response)),
        )


def _response(said: object) -> ModelResponse:
    if isinstance(said, Exception):
        raise said
    if isinstance(said, ModelResponse):
        return said
    parts = cast("Sequence[Part]", said if isinstance(said, (list, tuple)) else [said])
    return ModelResponse([TextPart(each) if isinstance(each, str) else each for each in parts])


def _pieces(response: ModelResponse) -> Iterator[ModelResponseStreamEvent]:
    for index, part in enumerate(response.parts):
        if not isinstance(part, TextPart):
            yield PartStartEvent(index=index, part=part)
            continue
        yield PartStartEvent(index=index, part=TextPart(part.content[:PIECE]))
        for start in range(PIECE, len(part.content), PIECE):
            delta = TextPartDelta(part.content[start : start + PIECE])
            yield PartDeltaEvent(index=index, delta=delta)
