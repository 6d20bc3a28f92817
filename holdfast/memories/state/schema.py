"""The types that some keys of a state have: the fields of a TypedDict, dataclass or Struct."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import (
    Any,
    NotRequired,
    Required,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from holdfast.ground.errors import InvalidInput


class Schema:
    """What each typed key must hold; a key it does not know may hold anything."""

    def __init__(self, given: object) -> None:
        self.given = given
        self._types = {key: _bare(each) for key, each in _hints(given).items()}
        try:
            self._decoders = {key: msgspec.json.Decoder(each) for key, each in self._types.items()}
        except TypeError as error:
            raise InvalidInput("schema", f"has a type that is not JSON: {error}") from error

    def check(self, key: str, data: bytes) -> None:
        """InvalidInput if *data*, the JSON of a value, is not of the type that *key* has."""
        decoder = self._decoders.get(key)
        if decoder is None:
            return
        try:
            decoder.decode(data)
        except msgspec.ValidationError as error:
            told = _told(self._types[key])
            raise InvalidInput("value", f'kv["{key}"] must be {told}: {error}') from None


def schema_of(given: object) -> Schema | None:
    """Return the schema that *given*, a class with typed fields, stands for; None for None."""
    return None if given is None else Schema(given)


def _hints(given: object) -> Mapping[str, Any]:
    if isinstance(given, type):
        kind = cast("type[object]", given)
        if issubclass(kind, msgspec.Struct):
            return {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
        if is_dataclass(kind):
            hints = get_type_hints(kind, include_extras=True)
            return {each.name: hints[each.name] for each in fields(kind)}
        if is_typeddict(kind):
            return get_type_hints(kind, include_extras=True)
    raise InvalidInput("schema", "must be a TypedDict, a dataclass or a msgspec.Struct")


def _bare(hint: Any) -> Any:
    """Return *hint* without what says whether a TypedDict's key must be there."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _told(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
