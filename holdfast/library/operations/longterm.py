"""Operations of long-term memory: recall, items, turns and conversations."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import NotFound
from holdfast.library.operations.base import (
    MIB,
    Operation,
    OperationTable,
    Param,
    WireForm,
    time_text,
)
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import (
    RECALLED_TIERS,
    Cleared,
    ForgetResult,
    Item,
    LongTermStatus,
    Recalled,
    RecallQuery,
    RecallResult,
    Recorded,
    Remembered,
    Suppressed,
    Turn,
    Weights,
    Wire,
    from_wire,
    to_wire,
)
from holdfast.memories.longterm.remember import ItemUpdate
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.longterm.turns import event_ids, read_messages
from holdfast.memories.longterm.validation import (
    checked_instant,
    checked_kinds,
    checked_tiers,
    checked_turns,
    is_id,
)
from holdfast.memories.longterm.write import ItemRequest

R = TypeVar("R", bound=Struct)

LIMIT: Final = 32 * MIB
USER: Final = "/api/longterm/{user}"
HOMES: Final = {"item": "items", "turn": "turns"}
"""The place of each kind of row below a user."""

_TURN_FIELDS: Final = frozenset(Turn.__struct_fields__)
_SET_BY_US: Final = frozenset(("id", "items", "created_at"))


def form(make: type[R]) -> WireForm[R]:
    """Return the form of a record of long-term memory."""
    return WireForm(to_wire, partial(from_wire, make))


class Weighing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of similarity, recency and importance."""

    similarity: float
    recency: float
    importance: float

    def weights(self) -> Weights:
        """Return the library's weights; raise InvalidInput if they order nothing."""
        return Weights(self.similarity, self.recency, self.importance)


class RecallBody(RecallQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to recall, and how much of it; without `touch` no access is recorded.

    With `noise` turns that are no statement are recalled too; with `explain` the answer says what
    was left out.
    """

    kinds: list[str] | None = None
    tiers: list[str] = field(default_factory=lambda: list[str](RECALLED_TIERS))
    weights: Weighing | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - of the wire
    at: str | None = None
    valid_at: str | None = None


class PostItem(ItemRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sentence about the user; `origin` is `tool` if an agent chose to store it.

    Then it is confirmed if messages of the user in `evidence` state it, and held if it is an `echo`
    of what was recalled in the session.
    """

    turns: list[str] = field(default_factory=list[str])
    origin: Literal["api", "tool"] = "api"
    evidence: list[str] = field(default_factory=list[str])
    echo: bool = False
    valid_from: str | None = None
    valid_to: str | None = None


class PatchItem(ItemUpdate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of an item."""

    valid_from: str | UnsetType = UNSET
    valid_to: str | UnsetType | None = UNSET


class PatchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The collection's own extractor: `provider:model`, `none`, or null without one."""

    extractor: str | UnsetType | None = UNSET


class Remine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which turns to mine that no job has covered."""

    since: str | None = None
    thread_id: str | None = None


class RecordTurns(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns to record, each with at least a role and a text."""

    turns: list[Any]
    thread_id: str | None = None


class PostConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of a conversation, all of them or only the new ones."""

    messages: list[Any]
    thread_id: str | None = None


def kind_of(id: object) -> str | None:
    """Return the kind of row that *id* names, or None."""
    return next((kind for kind in HOMES if is_id(kind, id)), None)


def sorted_kinds(given: object) -> list[str] | None:
    """Return *given* as kinds for a request."""
    kinds = checked_kinds(given)
    return None if kinds is None else sorted(kinds)


def _known_turn(id: str) -> str:
    if not is_id("turn", id):
        raise NotFound("turn", str(id), next="Check the id, or list the turns.")
    return id


def _beside(found: tuple[Turn | None, Turn | None]) -> Wire:
    """Encode the turns before and after another."""
    before, after = (None if each is None else to_wire(each) for each in found)
    return {"before": before, "after": after}


def _both_beside(wire: Any) -> tuple[Turn | None, Turn | None]:
    before, after = (wire[name] and from_wire(Turn, wire[name]) for name in ("before", "after"))
    return before, after


def _weights(given: object) -> object:
    return asdict(given) if isinstance(given, Weights) else given


_TIME: Final = Param(encode=time_text)
_SPAN: Final = {"valid_from": _TIME, "valid_to": _TIME}


def session_of(text: str, evidence: Iterable[str], *, echo: bool) -> SessionTrust | None:
    """Return the session in which an agent remembers *text*, as the request says.

    *evidence* are the user's messages; with *echo* the text only repeats what was recalled. None
    if it says neither.
    """
    said = list(evidence)
    if not said and not echo:
        return None
    session = SessionTrust("")
    session.said = said
    if echo:
        session.add_recalled([(text, "assistant")])
    return session


def _known(id: str) -> str:
    if kind_of(id) is None:
        raise NotFound("item", str(id))
    return id


def _sendable(turn: Turn) -> Wire:
    return {name: value for name, value in to_wire(turn).items() if name not in _SET_BY_US}


def _turns(given: object) -> list[Wire]:
    return [_sendable(each) for each in checked_turns(given)]


def _messages(given: Any) -> list[Wire]:
    """Encode messages; those with a role that is not recorded have no text."""
    whole = isinstance(given, str | bytes | Mapping)
    messages = cast("Any", given if whole else list(given))
    read = read_messages(messages)
    named = event_ids(messages)
    return [
        {"role": cast("Wire", each)["role"]}
        if turn is None
        else _named(turn, named[index])
        if index in named
        else _sendable(turn)
        for index, (each, turn) in enumerate(zip(messages, read, strict=True))
    ]


def _named(turn: Turn, event_id: str) -> Wire:
    """Encode the message that *turn* was read from, with its id."""
    wire = _sendable(turn)
    about = {"name": wire["speaker"], "at": wire["at"], "event_id": event_id}
    return {"role": turn.role, "content": turn.text, **about}


def _decoded_messages(given: list[Any]) -> list[object]:
    return [_message(each) for each in given]


def _message(given: object) -> object:
    """Return *given* as a Turn if it has a turn's fields, else unchanged."""
    if not isinstance(given, dict):
        return given
    message = cast("dict[str, Any]", given)
    if "text" not in message or not message.keys() <= _TURN_FIELDS:
        return message
    fields: dict[str, Any] = {"role": None, **message}
    return Turn(**fields)


def _results(recalled: tuple[RecallResult, str]) -> Wire:
    """Encode the results of a recall, its mode, and what was left out."""
    found, mode = recalled
    return {
        "results": [to_wire(each) for each in found],
        "mode": mode,
        "suppressed": [to_wire(each) for each in found.suppressed],
    }


def _found(wire: Any) -> RecallResult:
    return RecallResult(
        [from_wire(Recalled, each) for each in wire["results"]],
        [from_wire(Suppressed, each) for each in wire["suppressed"]],
    )


def _queued(wire: Any) -> int:
    return msgspec.convert(wire["queued"], int)


def _instant(given: object) -> object:
    at = checked_instant("since", given)
    return None if at is None else to_rfc3339(at)


_post = partial(Operation, method="POST", scope="write", lane="slow")

RECALL: Final = Operation(
    "longterm.recall",
    f"{USER}/recall",
    "Recall what answers a query.",
    WireForm(_results, _found),
    method="POST",
    scope="read",
    params=RecallBody,
    special={
        "kinds": Param(encode=sorted_kinds),
        "tiers": Param(encode=lambda given: sorted(checked_tiers(given))),
        "weights": Param(encode=_weights, decode=lambda given: given and given.weights()),
        "at": _TIME,
        "valid_at": _TIME,
    },
    retry="safe",
    lane="slow",
)
REMEMBER: Final = _post(
    "longterm.remember",
    f"{USER}/items",
    "Remember one sentence.",
    form(Remembered),
    params=PostItem,
    special=_SPAN,
)
_ROW: Final[WireForm[Item | Turn]] = WireForm(
    to_wire, lambda wire: from_wire(Turn if "role" in wire else Item, wire)
)


def _decision(verb: str, summary: str, answer: WireForm[Any]) -> Operation:
    return _post(
        f"longterm_data.{verb}",
        f"{USER}/items/{{id}}/{verb}",
        summary,
        answer,
        special={"id": Param(encode=_known)},
    )


DATA: Final = OperationTable(
    facade=LongTermData,
    limit=LIMIT,
    bound="user",
    operations=(
        Operation(
            "longterm_data.neighbours",
            f"{USER}/turns/{{id}}/neighbours",
            "Retrieve the turns before and after a turn.",
            WireForm(_beside, _both_beside),
            method="GET",
            scope="read",
            special={"id": Param(encode=_known_turn)},
            lane="slow",
        ),
        Operation(
            "longterm_data.configure",
            f"{USER}/settings",
            "Set the collection's own extractor.",
            form(LongTermStatus),
            method="PATCH",
            scope="write",
            params=PatchSettings,
            special={"extractor": Param(encode=lambda given: "none" if given is False else given)},
            retry="safe",
            lane="slow",
        ),
        _decision("accept", "Release a held item or turn.", _ROW),
        _decision("reject", "Forget a held item or turn alone.", form(ForgetResult)),
        Operation(
            "longterm_data.clear",
            USER,
            "Forget the whole collection.",
            form(Cleared),
            method="DELETE",
            scope="admin",
            lane="slow",
        ),
    ),
)
MEMORY: Final = OperationTable(
    facade=LongTermMemory,
    limit=LIMIT,
    bound="user",
    operations=(
        RECALL,
        REMEMBER,
        Operation(
            "longterm.update",
            f"{USER}/items/{{id}}",
            "Change an item.",
            form(Item),
            method="PATCH",
            scope="write",
            params=PatchItem,
            special={"id": Param(encode=_known), **_SPAN},
            retry="safe",
            lane="slow",
        ),
        _post(
            "longterm.record",
            f"{USER}/turns",
            "Record turns.",
            form(Recorded),
            params=RecordTurns,
            special={"turns": Param(encode=_turns)},
        ),
        _post(
            "longterm.remine",
            f"{USER}/remine",
            "Queue turns that no job has covered to be mined.",
            WireForm(lambda queued: {"queued": queued}, _queued),
            params=Remine,
            special={"since": Param(encode=_instant)},
        ),
        _post(
            "longterm.remember_conversation",
            f"{USER}/conversations",
            "Remember what is new of a conversation.",
            form(Recorded),
            params=PostConversation,
            special={"messages": Param(encode=_messages, decode=_decoded_messages)},
            status=202,
        ),
    ),
)
