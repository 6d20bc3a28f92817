"""What an agent of a team said and heard in its turns, as far as it is sent again."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

TOKENS: Final = 60_000
"""Tokens of turns after which the oldest go."""
CHARACTERS: Final = 4
"""Characters that are taken for one token."""


class TurnHistory:
    """The turns of one agent, of at most *tokens*; the newest is always there, whole."""

    def __init__(self, tokens: int = TOKENS) -> None:
        self._most = tokens * CHARACTERS
        self._turns: list[tuple[int, list[ModelMessage]]] = []
        self.left_out = 0
        """How many turns went."""

    def add(self, turn: Sequence[ModelMessage]) -> int:
        """Keep the messages of one more *turn*; return how many old turns went for it."""
        kept = _answered(turn)
        if kept:
            self._turns.append((sum(map(_characters, kept)), kept))
        gone = 0
        while len(self._turns) > 1 and sum(size for size, _ in self._turns) > self._most:
            del self._turns[0]
            gone += 1
        self.left_out += gone
        return gone

    def messages(self) -> list[ModelMessage]:
        """Return what is sent before the next turn, with a note of what is no longer there."""
        said = [message for _, turn in self._turns for message in turn]
        if not self.left_out:
            return said
        note = (
            f"[{self.left_out} earlier turns of yours are left out here for their length. "
            "What you published in memory and did on the board is still there.]"
        )
        return [ModelRequest([UserPromptPart(note)]), *said]


def _answered(turn: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return *turn* as it can be sent again, each call answered; nothing if it got no reply."""
    if not any(isinstance(message, ModelResponse) for message in turn):
        return []
    return repair_messages(turn)


def _characters(message: ModelMessage) -> int:
    return sum(map(_of_part, message.parts))


def _of_part(part: ModelRequestPart | ModelResponsePart) -> int:
    if isinstance(part, ToolCallPart):
        return len(part.tool_name) + len(part.args_as_json_str())
    if isinstance(part, ToolReturnPart):
        return len(part.model_response_str())
    content: Any = getattr(part, "content", None)
    return len(content) if isinstance(content, str) else 0
