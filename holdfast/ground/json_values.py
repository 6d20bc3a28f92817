"""JSON values as a memory keeps them: checked, and held as bytes.

Bytes cannot be changed from outside, their length is the value's size, and each reading of them
is a copy of its own. What is no JSON is refused with the place where it stands, never guessed at.
"""

from collections.abc import Callable, Iterable
from json import dumps
from math import isfinite
from re import compile
from typing import Any, Final, TypeAlias, cast

import msgspec

from holdfast.ground.errors import SHOWN, InvalidInput, shortened

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"

LEAST_INT: Final = -(2**63)
MOST_INT: Final = 2**64 - 1
PLACE: Final = 200
"""Characters of a place that a message tells; a longer one loses its middle."""

_LISTS: Final = frozenset({list, tuple})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_WORD: Final = compile(r"[^\W\d]\w*")
_INSTEAD: Final = {
    "set": "a list",
    "frozenset": "a list",
    "bytes": "text",
    "bytearray": "text",
    "datetime": ".isoformat()",
    "date": ".isoformat()",
    "time": ".isoformat()",
    "Decimal": "str() of it",
    "UUID": "str() of it",
}
"""What to store for a value of a type that is met often."""

_type: Final = cast("Callable[[object], Any]", type)
_encode: Final = msgspec.json.Encoder().encode
decode: Final = cast("Callable[[bytes], JSON]", msgspec.json.Decoder().decode)
"""Return a fresh copy of the value that `encode` gave these bytes for."""


def encode(
    value: object, *, root: str, depth: int, field: str, largest_int: int = MOST_INT
) -> bytes:
    """Return *value* as compact JSON in UTF-8, object members in their order.

    JSON values are None, bool, int from -2^63 to *largest_int*, finite float, str without lone
    surrogates, list, tuple (kept as a list) and dict with str keys, nested at most *depth* deep;
    a subclass of one is kept as its base. For anything else InvalidInput about *field* names the
    place, a path below *root* such as `$.rows[3].at`, and the type found there.
    """
    return encode_plain(value, depth, largest_int) or _encode(
        _Careful(root, depth, field, largest_int).taken(value, (), ())
    )


def encode_plain(value: object, depth: int, largest_int: int = MOST_INT) -> bytes | None:
    """Return what `encode` does for most values, and None for those that it must look at."""
    kind = type(value)
    if kind is str or (kind in _CONTAINERS and _is_plain(value, depth, largest_int)):
        try:
            return _encode(value)
        except UnicodeEncodeError:
            pass
    return None


def _is_plain(container: Any, deeper: int, largest_int: int) -> bool:  # noqa: C901 - a type a branch
    """Tell whether *container*, nested at most *deeper*, is surely JSON but for lone surrogates.

    This is most of what a write costs, so it asks no more than it must, calls nothing but itself
    and keeps no place.
    """
    if deeper < 1:
        return False
    members: Any = container
    if _type(members) not in _LISTS:
        for name in members:
            if _type(name) is not str:
                return False
        members = members.values()
    for each in members:
        kind = _type(each)
        if kind is str or each is None or kind is bool:
            continue
        if kind is int:
            if not LEAST_INT <= each <= largest_int:
                return False
        elif kind in _CONTAINERS:
            if not _is_plain(each, deeper - 1, largest_int):
                return False
        elif kind is not float or not isfinite(each):
            return False
    return True


Step: TypeAlias = "str | int"


class _Careful:
    """Goes through a value that is not surely JSON, and says where it is not."""

    def __init__(self, root: str, depth: int, field: str, largest_int: int) -> None:
        self._root, self._depth, self._field = root, depth, field
        self._largest_int = largest_int

    def taken(self, value: object, at: tuple[Step, ...], above: tuple[int, ...]) -> JSON:
        """Return *value*, which stands at *at* within the containers *above*, in plain types."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str.__str__(value), at)
        if isinstance(value, int):
            return self._whole(int.__index__(value), at)
        if isinstance(value, float):
            return self._fraction(float.__float__(value), at)
        if isinstance(value, dict | list | tuple):
            return self._container(cast("dict[object, object] | list[object]", value), at, above)
        raise self._refused(at, *_told(type(value).__name__))

    def _text(self, text: str, at: tuple[Step, ...]) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self._refused(
                at, "str with a lone surrogate is not JSON", "text of whole characters"
            ) from None
        return text

    def _whole(self, number: int, at: tuple[Step, ...]) -> int:
        if LEAST_INT <= number <= self._largest_int:
            return number
        most = self._largest_int.bit_length()
        raise self._refused(at, f"int outside -2^63 to 2^{most} - 1 is not JSON", "str() of it")

    def _fraction(self, number: float, at: tuple[Step, ...]) -> float:
        if isfinite(number):
            return number
        raise self._refused(at, f"float {number} is not JSON", "None or text")

    def _container(
        self,
        container: dict[object, object] | list[object],
        at: tuple[Step, ...],
        above: tuple[int, ...],
    ) -> JSON:
        if id(container) in above:
            raise self._refused(
                at, f"{type(container).__name__} that holds itself is not JSON", "a copy"
            )
        if len(above) == self._depth:
            raise self._refused(
                at, f"{type(container).__name__} is nested over {self._depth} deep", "it flatter"
            )
        within = (*above, id(container))
        if not isinstance(container, dict):
            return [self.taken(each, (*at, i), within) for i, each in enumerate(container)]
        plain: dict[str, JSON] = {}
        for name, each in container.items():
            told = self._name(name, at)
            plain[told] = self.taken(each, (*at, told), within)
        return plain

    def _name(self, name: object, at: tuple[Step, ...]) -> str:
        if isinstance(name, str):
            return self._text(str.__str__(name), at)
        found = f"{type(name).__name__} key {shortened(name)} is not JSON"
        raise self._refused(at, found, "str() of it")

    def _refused(self, at: tuple[Step, ...], found: str, instead: str) -> InvalidInput:
        return InvalidInput(
            self._field,
            f"{place(self._root, at)}: {found}; store {instead}",
            next="Correct that value, then write it again.",
        )


def _told(kind: str) -> tuple[str, str]:
    return f"{kind} is not JSON", _INSTEAD.get(kind, "text, a list or a dict")


def place(root: str, at: Iterable[Step]) -> str:
    """Return how a person writes the place *at* below *root*: `$.rows[3]["a b"]`."""
    told = root + "".join(_step(each) for each in at)
    if len(told) <= PLACE:
        return told
    half = PLACE // 2
    return f"{told[:half]}…{told[1 - half :]}"


def _step(each: Step) -> str:
    if isinstance(each, int):
        return f"[{each}]"
    return f".{each}" if _WORD.fullmatch(each) and len(each) <= SHOWN else f"[{_quoted(each)}]"


def _quoted(name: str) -> str:
    return dumps(shortened(name), ensure_ascii=False)
