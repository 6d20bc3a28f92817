"""How much of its budget a step's next request will take."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

CHARACTERS: Final = 4
"""Characters that are taken for one token where no provider has counted."""


class Sizes:
    """The size of a growing conversation. Each message and definition is measured once."""

    def __init__(self, instructions: str) -> None:
        self._instructions = len(instructions)
        self._messages: list[int] = []
        self._tools: dict[str, int] = {}

    def tokens(self, messages: Sequence[ModelMessage], tools: Iterable[ToolDefinition]) -> int:
        """Return the larger of what was last reported and a quarter of the characters there are."""
        # The last one measured may have grown, by what was put before its request.
        del self._messages[-1:]
        self._messages += [_characters(each) for each in messages[len(self._messages) :]]
        characters = self._instructions + sum(self._messages) + sum(map(self._schema, tools))
        return max(_reported(messages), -(-characters // CHARACTERS))

    def _schema(self, tool: ToolDefinition) -> int:
        if tool.name not in self._tools:
            schema = msgspec.json.encode(tool.parameters_json_schema)
            self._tools[tool.name] = len(tool.name) + len(tool.description or "") + len(schema)
        return self._tools[tool.name]


def _reported(messages: Sequence[ModelMessage]) -> int:
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return message.usage.input_tokens + message.usage.output_tokens
    return 0


def _characters(message: ModelMessage) -> int:
    return sum(map(_of_part, message.parts))


def _of_part(part: ModelRequestPart | ModelResponsePart) -> int:
    if isinstance(part, ToolCallPart):
        return len(part.tool_name) + len(part.args_as_json_str())
    if isinstance(part, ToolReturnPart):
        return len(part.model_response_str())
    if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
        return sum(len(each) for each in part.content if isinstance(each, str))
    content: Any = getattr(part, "content", None)
    return len(content) if isinstance(content, str) else 0
