"""What another agent did, as an agent is told of it: one block of data in a user's place."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import msgspec

from holdfast.memories.state.message import Message, TextMessage, ToolCallMessage, ToolResultMessage
from holdfast.memories.state.result import text_of

_encode: Final = msgspec.json.Encoder().encode


def note(agent: str, messages: Sequence[Message]) -> list[Message]:
    """Return *messages* of *agent* with what it said and did in one block, in a user's place.

    What users and the system said stays as it is. In the block nothing can close it or open
    another: it is escaped. Each call of a tool is a line of its own.
    """
    answers = {each.tool.id: each for each in messages if isinstance(each, ToolResultMessage)}
    told: list[Message] = []
    lines: list[str] = []
    for each in messages:
        if isinstance(each, ToolCallMessage):
            lines.extend(_calls(each, answers))
        elif each.role == "assistant":
            lines.append(text_of(each))
        elif isinstance(each, TextMessage):
            told.append(each)
    if any(lines):
        block = escape("\n".join(line for line in lines if line), quote=False)
        name = escape(agent)
        told.append(
            TextMessage(
                role="user", content=f'<agent name="{name}">\n{block}\n</agent>', agent=agent
            )
        )
    return told


def _calls(message: ToolCallMessage, answers: dict[str, ToolResultMessage]) -> Iterable[str]:
    """Give a line for each call of *message*, with what it gave."""
    for call in message.tools:
        line = f"[tool {_encode(call.name).decode()[1:-1]}] {_encode(call.input).decode()}"
        answer = answers.get(call.id)
        yield line if answer is None else f"{line} -> {_encode(answer.content).decode()}"
