"""Check arguments against limits; `InvalidInput` names the field."""

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeGuard, TypeVar, cast

import msgspec

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput, LimitExceeded
from holdfast.ground.text import encoded

LARGEST: Final = 2**63 - 1
"""The largest integer of a table."""

CHAIN: Final = 100
"""Largest number of writes that trigger each other through listeners."""

T = TypeVar("T")


def is_whole(given: object, least: int = 0, most: float = math.inf) -> TypeGuard[int]:
    """Return whether *given* is an integer within bounds; True and False are none."""
    return isinstance(given, int) and not isinstance(given, bool) and least <= given <= most


def is_number(given: object) -> TypeGuard[int | float]:
    """Return whether *given* is a number; True and False are none."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def listed(names: Iterable[T]) -> tuple[T, ...]:
    """Return *names*; one text is that name alone."""
    return (cast("T", names),) if isinstance(names, str) else tuple(names)


def is_list(given: object) -> TypeGuard[Iterable[object]]:
    """Return whether *given* is iterable, and neither text nor an object."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)


def check_whole(
    field: str,
    given: object,
    reason: str = "must be a whole number of at least 0",
    *,
    least: int = 0,
    most: float = math.inf,
    limit: int | None = None,
) -> int:
    """Return *given* if it is an integer from *least* to *most*."""
    if not is_whole(given, least, most):
        raise InvalidInput(field, reason, limit=limit, given=given)
    return given


def check_limit(given: object, *, most: int = 100, default: int = 20) -> int:
    """Return *given*, or *default* for None; InvalidInput outside 1 to *most*."""
    if given is None:
        return default
    return check_whole("limit", given, f"must be 1 to {most}", least=1, most=most, limit=most)


def check_one_of(
    field: str,
    given: T,
    values: Collection[object],
    reason: str = "",
    *,
    index: int | None = None,
    next: str = "",
) -> T:
    """Return *given* if it is one of *values*."""
    if given not in values:
        reason = reason or f"must be one of {', '.join(map(str, values))}"
        raise InvalidInput(field, reason, given=given, index=index, next=next)
    return given


def check_text(field: str, given: object, *, most: int, least: int = 0, part: str = "") -> str:
    """Return *given* if it is text of *least* to *most* code points, without U+0000.

    *part* names the part of the field for the message, such as "a key ".
    """
    if not isinstance(given, str):
        raise InvalidInput(field, f"{part}must be a string", given=repr(given))
    if not least <= len(given) <= most:
        allowed = f"{least} to {most:,}" if least else f"at most {most:,}"
        reason = f"{part}must have {allowed} characters, has {len(given):,}"
        raise InvalidInput(field, reason, limit=most)
    encoded(field, given)
    return check_no_nul(field, given, part=part)


def check_bytes(field: str, given: object, *, most: int) -> str:
    """Return *given* if it is text of at most *most* bytes of UTF-8, without U+0000."""
    size = len(encoded(field, given))
    text = check_no_nul(field, str(given))
    if size > most:
        reason = f"must have at most {most:,} bytes, has {size:,}"
        raise InvalidInput(field, reason, limit=most)
    return text


def check_no_nul(field: str, text: str, *, part: str = "") -> str:
    """Return *text* if it holds no U+0000, which no text column can."""
    if "\0" in text:
        raise InvalidInput(field, f"{part}must not hold the character U+0000")
    return text


def nested(error: InvalidInput, field: str = "", *, index: int | None = None) -> InvalidInput:
    """Return *error* as the error of a member of *field*, the *index*-th of a list."""
    path = f"{field}.{error.field}" if field else error.field
    return InvalidInput(
        path, error.reason, limit=error.limit, given=error.given, index=index, next=error.next
    )


def place_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what *error* says, and the path of the value that it is about."""
    reason, _, path = str(error).partition(" - at `$")
    return reason, path.rstrip("`").removeprefix(".")


def check_chain(length: int) -> int:
    """Return *length*, that of a chain of writes with the next one.

    Raise LimitExceeded past 100.
    """
    if length > CHAIN:
        raise LimitExceeded(
            "chain of writes",
            allowed=CHAIN,
            actual=length,
            next="Let this listener stop writing what makes it write again.",
        )
    return length


def checked_moment(field: str, given: object, *, now: int) -> int:
    """Return *given*, an aware datetime or RFC 3339, in microseconds since 1970.

    InvalidInput if it has no zone, or is later than *now*.
    """
    moment = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given.upper())
        except ValueError:
            raise InvalidInput(field, "must be an RFC 3339 time", given=given) from None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidInput(field, "must be a time with its zone", given=given)
    microseconds = to_microseconds(moment)
    if microseconds > now:
        raise InvalidInput(field, "is in the future", given=given)
    return microseconds
