"""Putting what a hook made of a reply in the reply's place."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ToolCallPart

from holdfast.memories.state.result import InferenceResult, text_of


def retell(response: ModelResponse, before: InferenceResult, after: InferenceResult) -> None:
    """Put the last text of *after* in the place of what *response*, the last of *before*, says."""
    text = _last(after) if after.output else ""
    if len(after.output) == len(before.output) and text == _last(before):
        return
    if text == said_of(response):
        return
    response.parts = _with(response.parts, text)


def said_of(response: ModelResponse) -> str:
    """Return what *response* says."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _last(result: InferenceResult) -> str:
    return text_of(result.output[-1]) if result.output else ""


def _with(parts: Sequence[ModelResponsePart], text: str) -> list[ModelResponsePart]:
    """Return *parts* with *text* where their own text began, or before the first call."""
    first = next((i for i, each in enumerate(parts) if isinstance(each, TextPart)), None)
    at = first
    if at is None:
        at = next((i for i, each in enumerate(parts) if isinstance(each, ToolCallPart)), len(parts))
    told = parts[at] if first is not None else TextPart("")
    kept: list[ModelResponsePart] = list(parts[:at])
    if text and isinstance(told, TextPart):
        kept.append(replace(told, content=text))
    return [*kept, *(each for each in parts[at:] if not isinstance(each, TextPart))]
