"""The metadata that stores, sessions, agents and environments carry: pairs of short texts."""

from collections.abc import Mapping
from typing import cast

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import within
from holdfast.memories.stores.records import Metadata

MOST_PAIRS = 16
MOST_KEY, MOST_VALUE = 64, 512
"""Code points."""


def checked_metadata(given: object) -> Metadata:
    """Return *given* if it is metadata; InvalidInput beyond 16 pairs, or for a null value."""
    pairs = {
        _checked_key(key): _checked_value(key, value) for key, value in _mapping(given).items()
    }
    return _counted(pairs)


def patched_metadata(present: Metadata, patch: object) -> Metadata:
    """Return *present* with *patch* laid over it: a string sets, None removes.

    InvalidInput when what results has more than 16 pairs.
    """
    result = dict(present)
    for key, value in _mapping(patch).items():
        if value is None:
            result.pop(_checked_key(key), None)
        else:
            result[_checked_key(key)] = _checked_value(key, value)
    return _counted(result)


def _mapping(given: object) -> Mapping[object, object]:
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata", "must be an object of strings", given=given)
    return cast("Mapping[object, object]", given)


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidInput("metadata", "must have strings as keys", given=key)
    return within("metadata", key, least=1, most=MOST_KEY, part="a key ")


def _checked_value(key: object, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"metadata.{key}", "must be a string", given=repr(value))
    return within(f"metadata.{key}", value, most=MOST_VALUE)


def _counted(pairs: Metadata) -> Metadata:
    if len(pairs) > MOST_PAIRS:
        raise InvalidInput(
            "metadata", f"may hold at most {MOST_PAIRS} pairs, holds {len(pairs)}", limit=MOST_PAIRS
        )
    return pairs
