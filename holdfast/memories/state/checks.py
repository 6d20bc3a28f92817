"""What the fields of messages and results must be, told by the field's place when they are not."""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.ground.text import encoded
from holdfast.memories.state.frozen import ReadOnlyDict, ReadOnlyList, kept

T = TypeVar("T")

HERE: Final = "$"
"""The field of an error about the whole value that is being read."""

NO_ITEMS: Final[list[Any]] = ReadOnlyList()
"""An empty list, once for all."""

NO_EXTRAS: Final[dict[str, JSON]] = ReadOnlyDict()
"""The extras of nearly every message, once for all of them."""


def within(place: str, error: InvalidInput) -> InvalidInput:
    """Return *error* as it is told one level up, where the value is the member *place*.

    One that knows more than a place, such as a ChecksumMismatch, stays what it is.
    """
    if type(error) is not InvalidInput:
        return error
    field = place if error.field == HERE else f"{place}.{error.field}"
    told = InvalidInput(field, error.reason, limit=error.limit, given=error.given, next=error.next)
    return told.with_traceback(error.__traceback__)


def read_as(place: str, read: Callable[[object], T], value: object) -> T:
    """Return what *read* makes of *value*; it finds wrong what is in the member *place*."""
    try:
        return read(value)
    except InvalidInput as error:
        raise within(place, error) from error.__cause__


@contextmanager
def inside(place: str) -> Generator[None]:
    """Tell what the block finds wrong of the member *place*."""
    try:
        yield
    except InvalidInput as error:
        raise within(place, error) from error.__cause__


@contextmanager
def whole_is(name: str) -> Generator[None]:
    """Tell what the block finds wrong of the whole value as of *name*."""
    try:
        yield
    except InvalidInput as error:
        if error.field != HERE:
            raise
        raise within(name, error) from error.__cause__


def text(field: str, value: object, *, least: int = 0) -> str:
    """Return *value* if it is text of *least* characters or more; else InvalidInput."""
    if not isinstance(value, str) or len(value) < least:
        wanted = "a string that is not empty" if least else "a string"
        raise InvalidInput(field, f"must be {wanted}", given=value)
    if not value.isascii():
        encoded(field, value)
    return value


def text_or_none(field: str, value: object) -> str | None:
    """Return *value* if it is None or text; else InvalidInput."""
    return None if value is None else text(field, value)


def whole_or_none(field: str, value: object) -> int | None:
    """Return *value* if it is None or a whole number of 0 or more; else InvalidInput."""
    return None if value is None else whole(field, value)


def whole(field: str, value: object) -> int:
    """Return *value* if it is a whole number from 0 to 2^63 - 1; else InvalidInput."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise InvalidInput(field, "must be a whole number from 0 to 2^63 - 1", given=value)
    return value


def one_of(field: str, value: object, allowed: Collection[object]) -> None:
    """InvalidInput unless *value* is one of *allowed*."""
    if not isinstance(value, str | None) or value not in allowed:
        told = ", ".join(map(repr, allowed))
        raise InvalidInput(field, f"must be {'one of ' * (len(allowed) > 1)}{told}", given=value)


def members(value: object) -> dict[str, Any]:
    """Return *value* if it is a dict whose keys are text; else InvalidInput."""
    if not isinstance(value, dict):
        raise InvalidInput(HERE, "must be an object", given=value)
    found = cast("dict[object, Any]", value)
    for name in found:
        if not isinstance(name, str):
            raise InvalidInput(HERE, "must have strings as keys", given=name)
    return cast("dict[str, Any]", found)


def items(field: str, value: object, read: Callable[[object], T]) -> list[T]:
    """Return a read-only list of what *read* makes of each item of *value*."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(field, "must be a list", given=value)
    found = cast("Sequence[object]", value)
    if not found:
        return NO_ITEMS
    made: list[T] = []
    try:
        for each in found:
            made.append(read(each))  # noqa: PERF401 - its length is the place of an error
    except InvalidInput as error:
        raise within(f"{field}[{len(made)}]", error) from error.__cause__
    return ReadOnlyList(made)


def extra_members(value: object, fields: Collection[str]) -> dict[str, JSON]:
    """Return the members *value* that are none of *fields*, read-only; else InvalidInput."""
    if value is NO_EXTRAS:
        return NO_EXTRAS
    if not isinstance(value, dict):
        raise InvalidInput("extras", "must be a dict", given=value)
    found = cast("dict[str, JSON]", kept(cast("object", value), "extras"))
    for name in found:
        if name in fields or name == "extras":
            raise InvalidInput("extras", "must not hold a member that is a field", given=name)
    return found or NO_EXTRAS


def gathered(given: dict[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    """Return *given*, a member for each argument, with what is none of *fields* in `extras`.

    A member `extras` that is an object counts as more such members.
    """
    if fields.issuperset(given):
        return given
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, each in given.items():
        if name in fields:
            known[name] = each
        elif name == "extras" and isinstance(each, dict):
            others |= cast("dict[str, Any]", each)
        else:
            others[name] = each
    return {**known, "extras": others}


def made(kind: Callable[..., T], given: dict[str, Any], required: Iterable[str]) -> T:
    """Return *kind*(**given*); InvalidInput if one of *required* is missing."""
    for name in required:
        if name not in given:
            raise InvalidInput(name, "is missing")
    return kind(**given)
