"""Asking a model for a reply, piece by piece where it can and somebody looks on."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final, Literal, TypeAlias

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

DeltaType: TypeAlias = Literal["text.delta", "reasoning.delta"]
Delta: TypeAlias = tuple[DeltaType, str]

_OF_FUNCTION: Final = "FunctionModel.request_stream"
"""A method by its name: importing its module costs every start 20 ms (`bench/startup.py`)."""


def can_stream(model: Model) -> bool:
    """Tell whether *model* can answer piece by piece."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(can_stream, model.models))
    asked = type(model).request_stream
    if getattr(asked, "__qualname__", None) == _OF_FUNCTION:
        return getattr(model, "stream_function", None) is not None
    return asked is not Model.request_stream


async def deltas(stream: AsyncIterable[Any]) -> AsyncIterator[Delta]:
    """Give the pieces of text and of reasoning in *stream* as they arrive."""
    async for event in stream:
        found: Delta | None = None
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                found = ("text.delta", text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                found = ("reasoning.delta", text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                found = ("text.delta", text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                found = ("reasoning.delta", text)
            case _:
                pass
        if found and found[1]:
            yield found


def whole(response: ModelResponse) -> list[Delta]:
    """Return *response* as one piece of reasoning and one of text, where it has them."""
    thoughts = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    text = "".join(p.content for p in response.parts if isinstance(p, TextPart))
    found: list[Delta] = [("reasoning.delta", thoughts), ("text.delta", text)]
    return [each for each in found if each[1]]
