"""What a user says to agents."""

from datetime import datetime

from msgspec import Struct

from holdfast.ground.errors import InvalidInput


class UserMessage(Struct, frozen=True):
    """What a user says: *content*, its *id* and when, both made where they are not given.

    *system_prompt* is added to the system text of every agent of the run it begins.
    """

    content: str
    id: str | None = None
    at: datetime | None = None
    system_prompt: str | None = None


def user_message(given: object) -> UserMessage:
    """Return *given*, text or a message, as a message; else InvalidInput."""
    if isinstance(given, str):
        return UserMessage(given)
    if not isinstance(given, UserMessage):
        raise InvalidInput("input", "must be text or a UserMessage", given=given)
    for name, text in (("content", given.content), ("system_prompt", given.system_prompt or "")):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            raise InvalidInput(f"input.{name}", "must be text", given=text)
    return given
