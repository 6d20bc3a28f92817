"""What a model and its tools do in a step, told as events while they do it."""

import json
from collections.abc import AsyncIterable
from typing import Any, Final

import msgspec
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponseStreamEvent,
    OutputToolCallEvent,
    OutputToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)

from holdfast.runtime.context import Context
from holdfast.runtime.events import Chunk, ToolCallUpdate, ToolResultUpdate
from holdfast.runtime.steps.tools import ToolCallOutcome

LINE: Final = 120
"""Characters of the line that tells a person of a call."""


class StepEvents:
    """Tells of one try of *step*; *answers* knows more of a tool's answer than its model."""

    def __init__(
        self,
        context: Context,
        answers: dict[str, ToolCallOutcome],
        *,
        step: str,
        task: str | None = None,
    ) -> None:
        self._answers, self._step, self._task = answers, step, task
        self._tell = context.tell

    async def chunks(self, stream: AsyncIterable[Any]) -> None:
        """Tell of a response piece by piece, to its end."""
        step, said = self._step, False
        async for event in stream:
            content, thinking = _piece(event)
            if content:
                said = True
                await self._tell(Chunk(step_id=step, content=content, thinking=thinking))
        if said:
            await self._tell(Chunk(step_id=step, done=True))

    async def calls(self, stream: AsyncIterable[AgentStreamEvent]) -> None:
        """Tell of the calls of tools and of what they came to, to the last."""
        async for event in stream:
            if isinstance(event, FunctionToolCallEvent | OutputToolCallEvent):
                await self._called(event.part)
            elif isinstance(event, FunctionToolResultEvent | OutputToolResultEvent):
                await self._answered(event.part)

    async def _called(self, call: ToolCallPart) -> None:
        arguments = _arguments(call)
        await self._tell(
            ToolCallUpdate(
                task_id=self._task,
                step_id=self._step,
                tool_call_id=call.tool_call_id,
                name=call.tool_name,
                args=arguments,
                message=_line(call.tool_name, arguments),
            )
        )

    async def _answered(self, part: ToolReturnPart) -> None:
        known = self._answers.get(part.tool_call_id)
        if known is None:
            # Answered by the framework: `finish_step`, or a tool that is not offered.
            size = len(part.model_response_str())
            known = ToolCallOutcome(ok=part.outcome == "success", characters=size)
        await self._tell(
            ToolResultUpdate(
                task_id=self._task,
                step_id=self._step,
                tool_call_id=part.tool_call_id,
                name=part.tool_name,
                ok=known.ok,
                characters=known.characters,
                paged=known.paged,
            )
        )


def _piece(event: ModelResponseStreamEvent) -> tuple[str, bool]:
    """Return the text that *event* adds, and whether it is a thought."""
    if isinstance(event, PartStartEvent):
        if isinstance(event.part, TextPart | ThinkingPart):
            return event.part.content, isinstance(event.part, ThinkingPart)
    elif isinstance(event, PartDeltaEvent) and isinstance(
        event.delta, TextPartDelta | ThinkingPartDelta
    ):
        return event.delta.content_delta or "", isinstance(event.delta, ThinkingPartDelta)
    return "", False


def _arguments(call: ToolCallPart) -> Any:
    """Return what *call* was sent; its text where that is no JSON."""
    given: Any = call.args
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        return msgspec.json.decode(given or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return given


def _line(name: str, arguments: Any) -> str:
    told = json.dumps(arguments, ensure_ascii=False, default=str)
    line = f"{name} {told}".replace("\n", " ")
    return line if len(line) <= LINE else line[: LINE - 1] + "…"
