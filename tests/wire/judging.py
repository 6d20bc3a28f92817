"""Holds JSON to a shape: the keys, their order, their types and what may be null."""

import re
from collections.abc import Iterator
from typing import Any, cast, get_args

import msgspec
from wire.shapes import Shape

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def hold(given: Any, shape: type[msgspec.Struct]) -> None:
    """Raise ValidationError or AssertionError unless *given* is of *shape*, all the way down."""
    msgspec.convert(given, shape)
    _hold_order(given, shape)


def _hold_order(given: Any, hint: Any) -> None:
    for each in cast("list[Any]", given) if isinstance(given, list) else [given]:
        for shape in _shapes(hint):
            if _fits(each, shape):
                fields = msgspec.structs.fields(shape)
                tag = shape.__struct_config__.tag_field
                names = [*([tag] if tag else []), *(field.encode_name for field in fields)]
                assert not issubclass(shape, Shape) or list(each) == names
                for field in fields:
                    _hold_order(each[field.encode_name], field.type)


def _shapes(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in get_args(hint):
        yield from _shapes(part)


def _fits(given: Any, shape: type[msgspec.Struct]) -> bool:
    try:
        msgspec.convert(given, shape)
    except msgspec.ValidationError:
        return False
    return True


def as_read(given: Any) -> Any:
    """Return the JSON *given* with a mark on each instant, as the SDK reads them."""
    if isinstance(given, dict):
        return {key: as_read(each) for key, each in cast("dict[str, Any]", given).items()}
    if isinstance(given, list):
        return [as_read(each) for each in cast("list[Any]", given)]
    if isinstance(given, str) and INSTANT.fullmatch(given):
        return {"instant": f"{given[:-1]}+00:00"}
    return given
