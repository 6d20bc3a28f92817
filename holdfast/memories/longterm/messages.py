"""Messages of a conversation, as clients send them, read as turns.

What memory itself put into a prompt is cut out, so that it is never learnt again as if the user
had said it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.block import without_blocks
from holdfast.memories.longterm.records import Turn
from holdfast.memories.longterm.validation import checked_turn

SAID_BY: Final = frozenset(("user", "assistant"))
NOT_SAID: Final = frozenset(("system", "developer", "tool", "function"))
"""Roles whose messages nobody said; they reach neither the store nor a model."""


def read_messages(given: object) -> list[Turn | None]:
    """Return the turns of *given*'s messages, None where nobody said what is in one.

    Each is a Turn, or an object with `role`, `content`, and perhaps `name` and `at`; a content
    is text, or parts of which those of the type `text` are joined. InvalidInput names the index
    of the first that is neither.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput("messages", "must be a list of messages")
    turns: list[Turn | None] = []
    for index, each in enumerate(cast("Iterable[object]", given)):
        try:
            turns.append(_read(each))
        except InvalidInput as error:
            raise InvalidInput(
                f"messages[{index}].{error.field}",
                error.reason,
                limit=error.limit,
                given=error.given,
                index=index,
            ) from None
    return turns


def _read(given: object) -> Turn | None:
    if isinstance(given, Turn):
        turn = checked_turn(given)
    elif isinstance(given, Mapping):
        told = cast("Mapping[str, object]", given)
        role = told.get("role")
        if role in NOT_SAID:
            return None
        if role not in SAID_BY:
            reason = f"must be one of {', '.join(sorted(SAID_BY | NOT_SAID))}"
            raise InvalidInput("role", reason, given=role)
        turn = checked_turn(
            {
                "role": role,
                "text": _text_of(told.get("content")),
                "speaker": told.get("name"),
                "at": told.get("at"),
            }
        )
    else:
        raise InvalidInput("message", "must be a Turn, or an object with role and content")
    text = without_blocks(turn.text)
    return turn if text == turn.text else replace(turn, text=text)


def _text_of(content: object) -> str:
    """Return the text of a message's *content*; "" for one that is a tool call alone."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidInput("content", "must be text, or a list of parts")
    texts: list[str] = []
    for part in cast("list[object]", content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise InvalidInput("content", "must be text, or a list of parts")
        told = cast("Mapping[str, object]", part)
        if told.get("type") == "text":
            text = told.get("text")
            if not isinstance(text, str):
                raise InvalidInput("content", "has a part of text without a text")
            texts.append(text)
    return "\n".join(texts)
