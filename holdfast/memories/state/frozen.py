"""Dicts and lists that can be read and compared as ever, and never be changed.

What a state hands out by subscript, and what messages and results hold, is of these: a nested
write raises instead of being lost. They are JSON all the way down.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar, cast

from holdfast.ground import json_values
from holdfast.ground.json_values import JSON

T = TypeVar("T")

KEPT: Final = "messages and results are read-only: replace(...) gives a changed copy"
"""What the values within a message or result say to who would change them."""

DEEPEST: Final = 256
"""How deep what a model or a tool said may be nested."""

_LEAST, _MOST = json_values.LEAST_INT, json_values.MOST_INT


def _refuse(self: Any, *_: object, **__: object) -> NoReturn:
    """Say what to do instead, in place of any act that changes *self*."""
    raise TypeError(self.told)


class ReadOnlyDict(dict[str, T]):
    """A dict that refuses every change, saying what to do instead."""

    __slots__ = ("told",)

    def __init__(self, members: Mapping[str, T], told: str) -> None:
        super().__init__(members)
        self.told = told

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class ReadOnlyList(list[T]):
    """A list that refuses every change, saying what to do instead."""

    __slots__ = ("told",)

    def __init__(self, items: Iterable[T], told: str) -> None:
        super().__init__(items)
        self.told = told

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> Any:
        return list, (list(self),)


def frozen(value: JSON, told: str) -> JSON:
    """Return *value*, which is JSON in plain types, with every dict and list read-only."""
    if isinstance(value, dict):
        members = {name: frozen(each, told) for name, each in value.items()}
        return ReadOnlyDict(members, told)
    if isinstance(value, list):
        return ReadOnlyList([frozen(each, told) for each in value], told)
    return value


def kept(value: object, field: str) -> JSON:
    """Return a read-only copy of *value* for a message; InvalidInput about *field* if no JSON."""
    try:
        return _plain(value, DEEPEST)
    except (_NotPlain, UnicodeEncodeError):
        encoded = json_values.encode(value, root=field, depth=DEEPEST, field=field)
        return frozen(json_values.decode(encoded), KEPT)


class _NotPlain(Exception):
    """It is not surely JSON in plain types, so it wants a closer look."""


def _plain(value: Any, deeper: int) -> JSON:
    """Return a read-only copy of *value*; raise if it is not surely JSON."""
    kind = cast("type[object]", type(value))
    if kind is str:
        if not value.isascii():
            value.encode()
        return value
    if value is None or kind is bool:
        return value
    if kind is dict or kind is ReadOnlyDict:
        if not deeper or not all(type(name) is str for name in value):
            raise _NotPlain
        members = {_plain(name, 0): _plain(each, deeper - 1) for name, each in value.items()}
        return ReadOnlyDict(cast("dict[str, JSON]", members), KEPT)
    if kind is list or kind is ReadOnlyList:
        if not deeper:
            raise _NotPlain
        return ReadOnlyList([_plain(each, deeper - 1) for each in value], KEPT)
    if kind is int and _LEAST <= value <= _MOST:
        return value
    # Neither infinity nor NaN leaves nothing when taken from itself.
    if kind is float and value - value == 0:
        return value
    raise _NotPlain
