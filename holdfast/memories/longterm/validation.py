"""Validate the arguments of long-term memory."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast, get_args

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.text import encoded, is_nfc, to_nfc
from holdfast.ground.validation import (
    check_bytes,
    check_one_of,
    check_whole,
    is_list,
    nested,
)
from holdfast.memories.longterm.records import (
    TURN_TIERS,
    HoldReason,
    Kind,
    Role,
    Tier,
    Turn,
    What,
    checked_share,
)

NAME_BYTES: Final = 256
ITEM_BYTES: Final = 4_096
TURN_BYTES: Final = 1 << 20
CAPTION_BYTES: Final = 1 << 16
MOST_RECALLED: Final = 100
KINDS: Final = get_args(Kind)
TIERS: Final = get_args(Tier)
HOLD_REASONS: Final = get_args(HoldReason)

_ID = re.compile(r"(item|turn)_[0-9A-Za-z]{24}")
_TURN_FIELDS: Final = frozenset(Turn.__struct_fields__)


def checked_name(field: str, given: object) -> str:
    """Validate the name of a user, a namespace or a caller's workspace.

    1 to 256 bytes, in NFC, without control characters.
    """
    length = len(encoded(field, given))
    name = str(given)
    if not 1 <= length <= NAME_BYTES:
        reason = f"must have 1 to {NAME_BYTES} bytes, has {length:,}"
        raise InvalidInput(field, reason, limit=NAME_BYTES, given=name or None)
    if any(unicodedata.category(char) == "Cc" for char in name):
        raise InvalidInput(field, "must not hold control characters", given=name)
    if not is_nfc(name):
        raise InvalidInput(field, "must be in Unicode normal form C", given=name)
    return name


def checked_user(given: object) -> str:
    """Validate the name of a user; `*` is refused because it means all users."""
    user = checked_name("user_id", given)
    if user == EVERYBODY.user:
        raise InvalidInput("user_id", "must not be `*`, which means all users", given=user)
    return user


def checked_item_text(given: object) -> str:
    """Return *given* as stored in an item: NFC, stripped, "" for blank."""
    encoded("text", given)
    return check_bytes("text", to_nfc(str(given)).strip(), most=ITEM_BYTES)


def checked_kind(given: object) -> Kind:
    """Return *given* if it is a kind of item."""
    return cast("Kind", check_one_of("kind", given, KINDS))


def checked_kinds(given: object) -> frozenset[str] | None:
    """Validate a list of kinds; None for None."""
    if given is None:
        return None
    if not is_list(given):
        raise InvalidInput("kinds", "must be a list of kinds", given=given)
    among = f"must be among {', '.join(KINDS)}"
    return frozenset(str(check_one_of("kinds", each, KINDS, among)) for each in given)


def checked_importance(given: object) -> float:
    """Return *given* if it is a number from 0 to 1."""
    return checked_share("importance", given)


def checked_source(given: object) -> str:
    """Return *given* if it is at most 256 bytes of text."""
    return check_bytes("source", given, most=NAME_BYTES)


def checked_turn_ids(given: object) -> tuple[str, ...]:
    """Return *given*'s distinct ids of turns, in their order."""
    if not is_list(given):
        raise InvalidInput("turns", "must be a list of ids of turns", given=given)
    ids = tuple(dict.fromkeys(given))
    for each in ids:
        if not is_id("turn", each):
            raise InvalidInput("turns", "must be ids of turns", given=each)
    return cast("tuple[str, ...]", ids)


def is_id(prefix: str, given: object) -> bool:
    """Check whether *given* has the form of an id of *prefix*, `item` or `turn`."""
    found = _ID.fullmatch(given) if isinstance(given, str) else None
    return found is not None and found[1] == prefix


def checked_query(given: object) -> str:
    """Return *given* if it is text."""
    encoded("query", given)
    return str(given)


def checked_k(given: object) -> int:
    """Return *given* if it is a whole number from 0 to 100."""
    reason = f"must be 0 to {MOST_RECALLED}"
    return check_whole("k", given, reason, most=MOST_RECALLED, limit=MOST_RECALLED)


def checked_what(given: object) -> What:
    """Return *given* if it is `all`, `items` or `turns`."""
    return cast("What", check_one_of("what", given, get_args(What), "must be all, items or turns"))


def checked_turns(given: object) -> list[Turn]:
    """Validate *given*'s turns, each a Turn or a mapping of its fields.

    `InvalidInput` names the index of the first that breaks a rule.
    """
    if not is_list(given):
        raise InvalidInput("turns", "must be a list of turns", given=repr(given))
    turns: list[Turn] = []
    for index, each in enumerate(given):
        try:
            turns.append(checked_turn(each))
        except InvalidInput as error:
            raise nested(error, f"turns[{index}]", index=index) from None
    return turns


def checked_turn(given: object) -> Turn:
    """Validate *given*, a Turn or a mapping of its fields."""
    members = _fields(given)
    return Turn(
        role=_role(members.get("role")),
        text=_said("text", members.get("text"), TURN_BYTES) or "",
        speaker=_said("speaker", members.get("speaker"), NAME_BYTES),
        at=checked_instant("at", members.get("at")),
        session=_said("session", members.get("session"), NAME_BYTES),
        thread_id=checked_thread(members.get("thread_id")),
        caption=_said("caption", members.get("caption"), CAPTION_BYTES),
        tier=_turn_tier(members.get("tier")),
        by=_said("by", members.get("by"), NAME_BYTES),
        origin_ref=_said("origin_ref", members.get("origin_ref"), NAME_BYTES),
        held=checked_hold(members.get("held")),
    )


def _turn_tier(given: object) -> Tier | None:
    return None if given is None else cast("Tier", check_one_of("tier", given, TURN_TIERS))


def checked_hold(given: object) -> HoldReason | None:
    """Return *given* if it is None or a reason to hold a row."""
    return None if given is None else cast("HoldReason", check_one_of("held", given, HOLD_REASONS))


def checked_tiers(given: object) -> frozenset[str]:
    """Validate a list of tiers."""
    if not is_list(given):
        raise InvalidInput("tiers", "must be a list of tiers", given=given)
    among = f"must be among {', '.join(TIERS)}"
    return frozenset([str(check_one_of("tiers", each, TIERS, among)) for each in given])


def checked_thread(given: object) -> str | None:
    """Return *given*, None or the 1 to 256 bytes that name a thread."""
    return None if given is None else checked_name("thread_id", given)


def checked_instant(field: str, given: object) -> datetime | None:
    """Return *given*, an aware datetime or RFC 3339 text, in UTC; None for None."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise InvalidInput(field, "must be an RFC 3339 time", given=given) from None
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidInput(field, "must be a time with its zone", given=given)
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(field, "is beyond the years 1 to 9999", given=given) from None


def microseconds(instant: datetime | None, now: int) -> int:
    """Return *instant* in microseconds since 1970; *now* for None."""
    return now if instant is None else to_microseconds(instant)


def microseconds_or_none(instant: datetime | None) -> int | None:
    """Return *instant* in microseconds since 1970; None for None."""
    return None if instant is None else to_microseconds(instant)


def _fields(given: object) -> Mapping[str, object]:
    if isinstance(given, Turn):
        return {name: getattr(given, name) for name in Turn.__struct_fields__}
    if not isinstance(given, Mapping):
        raise InvalidInput("turn", "must be a Turn, or an object with its fields", given=given)
    members = cast("Mapping[object, object]", given)
    for name in members:
        if name not in _TURN_FIELDS:
            raise InvalidInput(str(name), "is not known")
    return cast("Mapping[str, object]", members)


def _role(given: object) -> Role:
    return cast("Role", check_one_of("role", given, get_args(Role), "must be user or assistant"))


def _said(field: str, given: object, most: int) -> str | None:
    if given is None:
        if field == "text":
            raise InvalidInput(field, "is required")
        return None
    return check_bytes(field, given, most=most) or None
