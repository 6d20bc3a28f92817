"""Validate JSON values, and encode them to the bytes that memories store.

Bytes are immutable, their length is the value's size, and decoding them returns a fresh copy. A
value that is not JSON is refused with its path; it is never converted by guessing.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import accumulate
from json import dumps
from math import isfinite
from re import compile
from typing import Any, Final, TypeAlias, cast

import msgspec

from holdfast.ground.errors import SHOWN, InvalidInput, shortened

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"

LEAST_INT: Final = -(2**63)
MOST_INT: Final = 2**64 - 1
DEEPEST: Final = 200
"""Greatest nesting of a value that a model, a tool or a person may hand in."""
AROUND: Final = 16
"""Levels of our own around such a value, at most, where a whole state or thread is written."""
PLACE: Final = 200
"""Characters of a path in a message; a longer one loses its middle."""

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
"""What to store instead of a value of a common type that is not JSON."""

_type: Final = cast("Callable[[object], Any]", type)
_encode: Final = msgspec.json.Encoder().encode
decode: Final = cast("Callable[[bytes], JSON]", msgspec.json.Decoder().decode)
"""Return a fresh copy of the value that `encode` gave these bytes for."""

_BRACKETS: Final = b'[]{}"'
_OTHERS: Final = bytes(set(range(256)) - set(_BRACKETS))
_STRING: Final = compile(rb'"[^"]*"?')
_PAIRS: Final = bytes.maketrans(b"[]{}", b"[][]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_LEVELS: Final = 8
"""Levels that are removed as text; most states have fewer (`bench/state.py`)."""


def is_nested_over(text: bytes | str, depth: int = DEEPEST + AROUND) -> bool:
    """Return whether *text*, foreign JSON, is nested over *depth*; nothing is decoded.

    A decoder recurses as deep as its text, so this comes before it. Text that is no JSON may be
    either: the decoder refuses it.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") <= depth:
        return False
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = raw.translate(_PAIRS, _OTHERS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _STRING.sub(b"", brackets)
    for level in range(_LEVELS):
        if brackets.count(b"[") + level <= depth:
            return False
        brackets = brackets.replace(b"[]", b"")
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0) + _LEVELS > depth


def read(text: bytes | str, field: str) -> JSON:
    """Return the value of *text*, foreign JSON.

    Raise `InvalidInput` about *field* if it is not JSON, or nested too deeply to be decoded.
    """
    if is_nested_over(text):
        raise InvalidInput(field, f"is nested over {DEEPEST} deep", limit=DEEPEST)
    try:
        return cast("JSON", msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(field, "is not JSON") from error


def encode(
    value: object, *, root: str, depth: int, field: str, largest_int: int = MOST_INT
) -> bytes:
    """Return *value* as compact JSON in UTF-8, object members in their order.

    JSON values are None, bool, int from -2^63 to *largest_int*, finite float, str without lone
    surrogates, list, tuple (stored as a list) and dict with str keys, nested at most *depth*
    deep; a subclass of one is stored as its base. For anything else InvalidInput about *field*
    names the path below *root*, such as `$.rows[3].at`, and the type found there.
    """
    return encode_plain(value, depth, largest_int) or _encode(
        _Validator(root, depth, field, largest_int).plain_value(value, (), ())
    )


def encode_plain(value: object, depth: int, largest_int: int = MOST_INT) -> bytes | None:
    """Return the bytes of `encode` for plain values, and None for the rest.

    A None value needs `encode`, which checks member by member and converts subclasses.
    """
    kind = type(value)
    if kind is str or (kind in _CONTAINERS and _is_plain(value, depth, largest_int)):
        try:
            return _encode(value)
        except UnicodeEncodeError:
            pass
    return None


def _is_plain(container: Any, deeper: int, largest_int: int) -> bool:  # noqa: C901 - branch per type
    """Return whether *container* is JSON of plain types, nested at most *deeper*.

    Strings are not checked for lone surrogates. This is most of the cost of a write, so it does
    the fewest checks, calls nothing but itself and builds no paths.
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


class _Validator:
    """Validator that walks a value and raises with the path of what is not JSON."""

    def __init__(self, root: str, depth: int, field: str, largest_int: int) -> None:
        self._root, self._depth, self._field = root, depth, field
        self._largest_int = largest_int

    def plain_value(self, value: object, at: tuple[Step, ...], above: tuple[int, ...]) -> JSON:
        """Return *value* in plain types.

        *at* is its path, *above* the ids of the containers around it.
        """
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
        raise self._refused(at, *_advice(type(value).__name__))

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
            return [self.plain_value(each, (*at, i), within) for i, each in enumerate(container)]
        plain: dict[str, JSON] = {}
        for name, each in container.items():
            key = self._name(name, at)
            plain[key] = self.plain_value(each, (*at, key), within)
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


def _advice(kind: str) -> tuple[str, str]:
    return f"{kind} is not JSON", _INSTEAD.get(kind, "text, a list or a dict")


def place(root: str, at: Iterable[Step]) -> str:
    """Render the path *at* below *root* for people: `$.rows[3]["a b"]`."""
    path = root + "".join(_step(each) for each in at)
    if len(path) <= PLACE:
        return path
    half = PLACE // 2
    return f"{path[:half]}…{path[1 - half :]}"


def _step(each: Step) -> str:
    if isinstance(each, int):
        return f"[{each}]"
    return f".{each}" if _WORD.fullmatch(each) and len(each) <= SHOWN else f"[{_quoted(each)}]"


REPR_MOST: Final = 200
"""Characters of a value that the `repr` of an entry shows."""


def repr_with_value(entry: msgspec.Struct, field: str, data: bytes) -> str:
    """Return the `repr` of *entry* with its value as JSON.

    *data*, cut at 200 characters, stands as `value=` in place of *field*.
    """
    text = data[: 4 * REPR_MOST + 4].decode(errors="ignore")
    value = text if len(text) <= REPR_MOST else f"{text[: REPR_MOST - 1]}…"
    members = (
        f"value={value}" if name == field else f"{name}={getattr(entry, name)!r}"
        for name in entry.__struct_fields__
    )
    return f"{type(entry).__name__}({', '.join(members)})"


def _quoted(name: str) -> str:
    return dumps(shortened(name), ensure_ascii=False)


def hashed(value: Any) -> str:
    """Return the SHA-256 of *value* as canonical JSON: members sorted, no white space."""
    encoded = msgspec.json.encode(value, order="deterministic")
    return sha256(encoded).hexdigest()
