"""Read-only dicts and lists of JSON.

Values that a state returns by subscript, and values in messages and results, have these types: a
nested write raises instead of being lost.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final, NoReturn, TypeVar, cast

from holdfast.ground import json_values
from holdfast.ground.json_values import JSON

T = TypeVar("T")

KEPT: Final = "messages and results are read-only: replace(...) gives a changed copy"
"""Message of the error for a change of a value within a message or result."""

DEEPEST: Final = json_values.DEEPEST + 4
"""Deepest nesting of a member of a message or result: of a value, and of what is around it."""


def _refuse(self: Any, *_: object, **__: object) -> NoReturn:
    """Raise `TypeError` with the message of *self*, in place of a change."""
    raise TypeError(self.refusal)


class ReadOnlyDict(dict[str, T]):
    """A dict that refuses every change; the message says what to do instead."""

    __slots__ = ()
    refusal = KEPT

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class ReadOnlyList(list[T]):
    """A list that refuses every change; the message says what to do instead."""

    __slots__ = ()
    refusal = KEPT

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> Any:
        return list, (list(self),)


class ShownDict(ReadOnlyDict[JSON]):
    """A dict within a state's value; its message says how to change that value."""

    __slots__ = ("refusal",)

    def __init__(self, members: Mapping[str, JSON], refusal: str) -> None:
        super().__init__(members)
        self.refusal = refusal


class ShownList(ReadOnlyList[JSON]):
    """A list within a state's value; its message says how to change that value."""

    __slots__ = ("refusal",)

    def __init__(self, items: Iterable[JSON], refusal: str) -> None:
        super().__init__(items)
        self.refusal = refusal


_DICTS: Final[frozenset[type]] = frozenset({dict, ReadOnlyDict, ShownDict})
_LISTS: Final[frozenset[type]] = frozenset({list, ReadOnlyList, ShownList})
_set_member: Final = cast("Callable[[object, str, JSON], None]", dict[str, JSON].__setitem__)
_set_item: Final = cast("Callable[[object, int, JSON], None]", list[JSON].__setitem__)
_type: Final = cast("Callable[[object], Any]", type)
_LEAST, _MOST = json_values.LEAST_INT, json_values.MOST_INT


def shown(value: JSON, refusal: str) -> JSON:
    """Return *value*, plain JSON, read-only; *refusal* is the message for changes."""
    if isinstance(value, dict):
        return ShownDict({name: shown(each, refusal) for name, each in value.items()}, refusal)
    if isinstance(value, list):
        return ShownList([shown(each, refusal) for each in value], refusal)
    return value


def kept(value: object, field: str) -> JSON:
    """Return a read-only copy of *value* for a message.

    Raise `InvalidInput` with *field* if it is not JSON.
    """
    try:
        return _plain(value, DEEPEST)
    except (_NotPlain, UnicodeEncodeError):
        encoded = json_values.encode(value, root=field, depth=DEEPEST, field=field)
        return _plain(json_values.decode(encoded), DEEPEST)


class _NotPlain(Exception):
    """The value may not be JSON in plain types, so a full check is needed."""


def _plain(value: Any, deeper: int) -> JSON:
    """Return a read-only copy of *value*, or itself; raise if it may not be JSON.

    A state of a thousand results reads many of these, so it makes no more checks than needed.
    """
    kind = _type(value)
    if kind is str:
        if not value.isascii():
            value.encode()
        return value
    if value is None or kind is bool:
        return value
    if kind in _DICTS:
        return _plain_dict(value, deeper)
    if kind in _LISTS:
        return _plain_list(value, deeper)
    if kind is int and _LEAST <= value <= _MOST:
        return value
    if kind is float and isfinite(value):
        return value
    raise _NotPlain


def _plain_dict(value: dict[Any, Any], deeper: int) -> dict[str, JSON]:
    if not deeper:
        raise _NotPlain
    copied = ReadOnlyDict(value)
    for name, each in value.items():
        if type(name) is not str:
            raise _NotPlain
        if not name.isascii():
            name.encode()
        if type(each) is str and each.isascii():
            continue
        taken = _plain(each, deeper - 1)
        if taken is not each:
            _set_member(copied, name, taken)
    return copied


def _plain_list(value: list[Any], deeper: int) -> list[JSON]:
    if not deeper:
        raise _NotPlain
    copied = ReadOnlyList(value)
    for place, each in enumerate(value):
        if type(each) is str and each.isascii():
            continue
        taken = _plain(each, deeper - 1)
        if taken is not each:
            _set_item(copied, place, taken)
    return copied
