"""What is kept of a run of a network, or of one agent: when it began, and how it ended."""

from datetime import datetime
from typing import Any, Final, Literal, Self, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message
from holdfast.memories.state.frozen import kept
from holdfast.memories.state.message import from_text, to_milliseconds, to_text
from holdfast.memories.state.result import NO_USAGE, Usage
from holdfast.memories.state.thread import checked_id, checked_id_or_none

RunStatus = Literal["running", "completed", "failed", "cancelled"]

STATUSES: Final[tuple[str, ...]] = get_args(RunStatus)
MOST_NAME: Final = 512
"""Bytes of a network's or an agent's name."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """A run: `running` from its start on, and as it ended once it has.

    `network` is None for an agent that runs alone. `extras` is whatever else the run tells of
    itself, as JSON; it goes with the run's thread.
    """

    id: str
    network: str | None = None
    thread_id: str | None = None
    status: RunStatus = "running"
    stop_reason: str | None = None
    stop_detail: str | None = None
    error: dict[str, JSON] | None = None
    usage: Usage = NO_USAGE
    calls: int = 0
    started_at: datetime
    ended_at: datetime | None = None
    extras: dict[str, JSON] = message.NO_EXTRAS

    def __post_init__(self) -> None:
        """Check every field; InvalidInput names the one that is wrong."""
        checked_id("id", self.id)
        checked_name_or_none("network", self.network)
        checked_id_or_none("thread_id", self.thread_id)
        message.one_of("status", self.status, STATUSES)
        message.text_or_none("stop_reason", self.stop_reason)
        message.text_or_none("stop_detail", self.stop_detail)
        message.whole("calls", self.calls)
        force_setattr(self, "error", _error(self.error))
        force_setattr(self, "started_at", to_milliseconds("started_at", self.started_at))
        if (self.status == "running") != (self.ended_at is None):
            raise InvalidInput("ended_at", "must be given when the run has ended, and only then")
        if self.ended_at is not None:
            force_setattr(self, "ended_at", to_milliseconds("ended_at", self.ended_at))
        force_setattr(self, "extras", message.extra_members(self.extras, _FIELDS))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.status != "running"

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Return the record that *given* tells of; members it does not know go to `extras`."""
        with message.whole_is("record"):
            told = message.gathered(message.members(given), _FIELDS)
        for name in ("started_at", "ended_at"):
            if isinstance(told.get(name), str):
                told[name] = from_text(name, told[name])
        if "usage" in told and not isinstance(told["usage"], Usage):
            with message.inside("usage"):
                told["usage"] = Usage.from_dict(told["usage"])
        return message.made(cls, told, ("id", "started_at"))

    def export(self) -> dict[str, Any]:
        """Return it as JSON has it, each of `extras` beside the rest."""
        return {
            "id": self.id,
            "network": self.network,
            "thread_id": self.thread_id,
            "status": self.status,
            "stop_reason": self.stop_reason,
            "stop_detail": self.stop_detail,
            "error": self.error,
            "usage": self.usage.export(),
            "calls": self.calls,
            "started_at": to_text(self.started_at),
            "ended_at": None if self.ended_at is None else to_text(self.ended_at),
            **self.extras,
        }


_FIELDS: Final = frozenset(RunRecord.__struct_fields__) - {"extras"}


def _error(given: object) -> dict[str, JSON] | None:
    """Return *given*, the name and the message of an error, read-only; else InvalidInput."""
    if given is None:
        return None
    found = kept(given, "error")
    if not isinstance(found, dict) or found.keys() != {"name", "message"}:
        raise InvalidInput("error", "must hold name and message, and nothing else")
    for name, told in found.items():
        message.text(f"error.{name}", told)
    return found


def checked_name_or_none(field: str, given: object) -> str | None:
    """Return *given* if it is None or names a network or an agent; else InvalidInput."""
    return None if given is None else checked_name(field, given)


def checked_name(field: str, given: object) -> str:
    """Return *given* if it names a network or an agent: 1 to 512 bytes; else InvalidInput."""
    name = message.text(field, given, least=1)
    if len(name.encode()) > MOST_NAME or "\0" in name:
        reason = f"must be at most {MOST_NAME} bytes, without U+0000"
        raise InvalidInput(field, reason, limit=MOST_NAME, given=name)
    return name
