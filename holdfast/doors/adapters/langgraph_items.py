"""Items of LangGraph as files: paths of their names, JSON of their values, and filters on them."""

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final, cast
from urllib.parse import quote, unquote

import msgspec

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput

VALUE_DEPTH: Final = 64
ENDING: Final = ".json"
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/%.")

_type: Final = cast("Callable[[object], Any]", type)
_sorted: Final = msgspec.json.Encoder(order="sorted").encode
Namespace = tuple[str, ...]


# Names and values.


def directory_of(labels: Namespace) -> str:
    """Return the directory of the items of a namespace, and of those below it."""
    return "/" + "".join(f"{segment_of(label)}/" for label in labels)


def segment_of(text: str) -> str:
    """Return *text* as a segment of a path; two texts never have the same one."""
    return quote(text.encode("utf-8", "surrogatepass"), safe=_SAFE).replace(".", "%2E")


def names_of(path: str) -> tuple[Namespace, str] | None:
    """Return the labels and the key of *path*; None for a path that no item has."""
    *labels, name = path[1:].split("/")
    try:
        key = unquote(name.removesuffix(ENDING), errors="surrogatepass")
        namespace = tuple(unquote(label, errors="surrogatepass") for label in labels)
    except UnicodeDecodeError:
        return None
    if not all(namespace) or f"{directory_of(namespace)}{segment_of(key)}{ENDING}" != path:
        return None
    return namespace, key


def encoded(value: Mapping[str, Any]) -> str:
    """Return *value* as canonical JSON, indented; TypeError for what is not JSON."""
    try:
        raw = json_values.encode(dict(value), root="$", depth=VALUE_DEPTH, field="value")
    except InvalidInput as error:
        raise TypeError(str(error)) from error
    return msgspec.json.format(_sorted(json_values.decode(raw)), indent=2).decode()


def decoded(content: str | None) -> dict[str, Any] | None:
    """Return the value that is *content*; None if it is no JSON of a mapping."""
    try:
        value = msgspec.json.decode(content or "")
    except (msgspec.DecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


# Filters.

_ORDERS: Final = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_KNOWN: Final = ("$eq", "$ne", *_ORDERS)
Condition = Callable[[Any], bool]


def members_filter(wanted: Mapping[str, Any]) -> Condition:
    """Return whether a mapping has the members of a filter; only those count.

    Raise ValueError for an operator that is not known, wherever it stands.
    """
    conditions = {str(name): _condition(each) for name, each in wanted.items()}
    if unknown := next((name for name in conditions if name.startswith("$")), None):
        raise ValueError(f"{unknown} is not known as a filter; filters are by the name of a field")
    tests = tuple(conditions.items())

    def fits(given: Any) -> bool:
        if _type(given) is not dict:
            return False
        for name, test in tests:  # noqa: SIM110 - a generator for each value costs more than the tests
            if not test(given.get(name)):
                return False
        return True

    return fits


def _condition(wanted: Any) -> Condition:
    if isinstance(wanted, Mapping):
        members = cast("Mapping[str, Any]", wanted)
        if not any(str(each).startswith("$") for each in members):
            return members_filter(members)
        tests = [_operator(str(name), against) for name, against in members.items()]
        return lambda given: all(test(given) for test in tests)
    if isinstance(wanted, list | tuple):
        elements = [_condition(each) for each in cast("Sequence[Any]", wanted)]
        return lambda given: (
            isinstance(given, list)
            and len(cast("list[Any]", given)) == len(elements)
            and all(
                fits(each) for fits, each in zip(elements, cast("list[Any]", given), strict=True)
            )
        )
    if isinstance(wanted, bool):
        return lambda given: given is wanted
    return lambda given: not isinstance(given, bool) and given == wanted


def _operator(operator: str, against: Any) -> Condition:
    if operator not in _KNOWN:
        raise ValueError(f"{operator} is not known as an operator; there are {', '.join(_KNOWN)}")
    compare = _ORDERS.get(operator)
    if compare is None:
        equal = _condition(against)
        return equal if operator == "$eq" else lambda given: not equal(given)
    kind = _kind(against)
    return lambda given: kind is not None and _kind(given) is kind and compare(given, against)


def _kind(value: object) -> type | None:
    """Return the kind of *value* that has an order, float for any number; None for others."""
    if isinstance(value, bool):
        return None
    return float if isinstance(value, int | float) else str if isinstance(value, str) else None
