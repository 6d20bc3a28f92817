"""A thread, and what is in it: what users said to agents, and the results that came of it."""

from datetime import datetime
from typing import Any, Final, Literal, Self, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state import message as checks
from holdfast.memories.state.message import from_text, to_milliseconds, to_text
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread_ids import checked_id

TurnKind = Literal["user", "result"]

KINDS: Final[tuple[str, ...]] = get_args(TurnKind)

_MESSAGE: Final = ("id", "content", "role", "at")


class Thread(Struct, frozen=True, kw_only=True):
    """A thread: how many turns it holds, and how many runs are recorded of it."""

    id: str
    created_at: datetime
    updated_at: datetime
    turns: int
    runs: int


class ThreadMessage(Struct, frozen=True, kw_only=True):
    """What a user said to agents, and when; `at` is aware, in whole milliseconds."""

    id: str
    content: str
    role: Literal["user"] = "user"
    at: datetime

    def __post_init__(self) -> None:
        """Check every field; InvalidInput names the one that is wrong."""
        checked_id("id", self.id)
        checks.text("content", self.content)
        checks.one_of("role", self.role, ("user",))
        force_setattr(self, "at", to_milliseconds("at", self.at))

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Return the message that *given*, made by `export`, tells of."""
        told = checks.members(given)
        for name in told:
            if name not in _MESSAGE:
                raise InvalidInput(name, "is not a member of a message of a thread")
        if isinstance(told.get("at"), str):
            told["at"] = from_text("at", told["at"])
        return checks.made(cls, told, ("id", "content", "at"))

    def export(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "id": self.id,
            "content": self.content,
            "role": self.role,
            "at": to_text(self.at),
        }


class ThreadTurn(Struct, frozen=True, kw_only=True):
    """One turn of a thread: a `message` of the user's, or a `result` of an agent's.

    `seq` orders the turns of a thread; it is 0 until the turn is in one.
    """

    seq: int = 0
    kind: TurnKind
    id: str
    run_id: str | None
    at: datetime
    message: ThreadMessage | None = None
    result: InferenceResult | None = None

    @classmethod
    def said(cls, message: ThreadMessage, *, run_id: str | None = None, seq: int = 0) -> Self:
        """Return the turn of what a user said, to the run *run_id*."""
        return cls(
            seq=seq, kind="user", id=message.id, run_id=run_id, at=message.at, message=message
        )

    @classmethod
    def made(cls, result: InferenceResult, *, seq: int = 0) -> Self:
        """Return the turn of what an agent made."""
        return cls(
            seq=seq,
            kind="result",
            id=result.id,
            run_id=result.run_id,
            at=result.created_at,
            result=result,
        )

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Return the turn that *given*, made by `export`, tells of.

        Its id and its time are those of what it holds.
        """
        told = checks.members(given)
        for name in told:
            if name not in cls.__struct_fields__:
                raise InvalidInput(name, "is not a member of a turn")
        checks.one_of("kind", told.get("kind"), KINDS)
        held = "message" if told["kind"] == "user" else "result"
        if held not in told:
            raise InvalidInput(held, "is missing")
        seq = checks.whole("seq", told.get("seq", 0))
        with checks.inside(held):
            if held == "result":
                return cls.made(InferenceResult.from_dict(told[held]), seq=seq)
            message = ThreadMessage.from_dict(told[held])
        return cls.said(message, run_id=checks.text_or_none("run_id", told.get("run_id")), seq=seq)

    def export(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        told: dict[str, Any] = {
            "seq": self.seq,
            "kind": self.kind,
            "id": self.id,
            "run_id": self.run_id,
            "at": to_text(self.at),
        }
        if self.message is not None:
            told["message"] = self.message.export()
        if self.result is not None:
            told["result"] = self.result.export()
        return told


class Appended(Struct, frozen=True, kw_only=True):
    """What became of turns given to a thread, by their ids.

    A duplicate was there before, the same to the byte, and was left as it is.
    """

    stored: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
