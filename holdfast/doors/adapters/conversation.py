"""Conversations of other frameworks in threads: ordered lists of JSON values."""

import string
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from holdfast.doors.adapters.tools import blocking_handle, required
from holdfast.ground.errors import Conflict, NotFound, ResultDiffers
from holdfast.ground.ids import base62
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast

_PLAIN: Final = frozenset(f"{string.ascii_letters}{string.digits}_-".encode())
_ID_CHARACTERS: Final = 128
_PAGE: Final = 1_000


def thread_id(source: str, session: str, user: str | None = None) -> str:
    """Return the id of the thread of a framework's *session*; different ones differ.

    It is *source* and the parts, joined by colons: in each part a byte other than a letter, a
    digit, `_` and `-` is a period and two hex digits, and an empty part is a period. Of one that
    is too long the hash stands after `.-`, which no part begins with.
    """
    parts = (session,) if user is None else (user, session)
    whole = ":".join([source, *map(_part, parts)])
    return whole if len(whole) <= _ID_CHARACTERS else f"{source}:{_hash(whole)}"


def plain_name(text: str) -> str:
    """Return *text* as a name that each memory accepts; different ones differ.

    Text of letters, digits, `_` and `-` is its own name; else it is written as in `thread_id`.
    """
    whole = _part(text)
    return whole if len(whole) <= _ID_CHARACTERS else _hash(whole)


def _part(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in _PLAIN else f".{byte:02x}" for byte in raw) or "."


def _hash(whole: str) -> str:
    return f".-{base62(int.from_bytes(sha256(whole.encode()).digest()), 43)}"


class HostConversation:
    """One conversation: the values of a thread, oldest first. Its calls block."""

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        source: str,
        session: str,
        user: str | None = None,
    ) -> None:
        required("session_id", session)
        if user is not None:
            required("user", user)
        self._hf, self._source, self._user = blocking_handle(hf), source, user
        self.thread = thread_id(source, session, user)

    def values(self, last: int | None = None) -> list[Any]:
        """Return the values, or the *last* ones; [] for a conversation that has not begun."""
        try:
            page = self._hf.threads.turns(
                self.thread, _PAGE, kind="foreign", last=last, user=self._user
            )
            return [turn.value for turn in page.all()]
        except NotFound:
            return []

    def append(self, values: Sequence[Any]) -> None:
        """Append *values*, all or none, one after another."""
        if values:
            turns = [self._turn(value) for value in values]
            self._hf.threads.append(self.thread, turns, user=self._user)

    def extend(self, values: Sequence[Any]) -> None:
        """Append what is new in *values*, the whole conversation, all or none.

        Twice is once. Raise Conflict if *values* does not begin with what is stored.
        """
        stored = self.values()
        if list(values[: len(stored)]) != stored:
            raise _diverged()
        if len(values) == len(stored):
            return
        # By ids of their places two callers that append at once store the same, or one conflicts.
        # The last stored value is given again, and shows whether the thread was deleted meanwhile.
        first = max(len(stored) - 1, 0)
        turns = [
            self._turn(value) | {"id": f"{self._source}-{place}"}
            for place, value in enumerate(values[first:], first)
        ]
        try:
            appended = self._hf.threads.append(self.thread, turns, user=self._user)
        except ResultDiffers as error:
            raise _diverged() from error
        if stored and turns[0]["id"] in appended.stored:
            self.delete()
            raise _diverged()

    def pop(self) -> Any:
        """Take the last value away and return it; None if there is none."""
        turn = self._hf.threads.pop(self.thread, user=self._user)
        return None if turn is None else turn.value

    def _turn(self, value: Any) -> dict[str, Any]:
        return {"kind": "foreign", "value": value, "source": self._source}

    def delete(self) -> None:
        """Delete the conversation for good; it may begin anew."""
        try:
            self._hf.threads.turns(self.thread, 1, user=self._user)
        except NotFound:
            return
        self._hf.threads.delete(self.thread)


def _diverged() -> Conflict:
    return Conflict(
        "The messages do not begin with those that are stored.",
        reason="diverged",
        next="Load the conversation, and go on from its messages.",
    )
