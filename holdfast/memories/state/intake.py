"""What comes into a state: each value as its JSON, each result as large as it may be."""

from holdfast.ground import json_values
from holdfast.memories.state.message import StateLimits, over
from holdfast.memories.state.result import InferenceResult, canonical_of
from holdfast.memories.state.schema import Schema

_MOST_INT = 2**63 - 1


def encoded_value(key: str, value: object, limits: StateLimits, schema: Schema | None) -> bytes:
    """Return *value*, which is to be under *key*, as its JSON.

    InvalidInput if it is none or not what the *schema* says; LimitExceeded if it is too large.
    """
    data = json_values.encode(
        value, root=f'kv["{key}"]', depth=limits.depth, field="value", largest_int=_MOST_INT
    )
    if len(data) > limits.value_bytes:
        raise over("value_bytes", allowed=limits.value_bytes, actual=len(data), key=key)
    if schema is not None:
        schema.check(key, data)
    return data


def check_room(key: str, keys: int, total_bytes: int, limits: StateLimits) -> None:
    """LimitExceeded if with *key* there would be too many *keys*, or too many bytes."""
    if keys > limits.keys:
        raise over("keys", allowed=limits.keys, actual=keys, key=key)
    if total_bytes > limits.total_bytes:
        raise over("total_bytes", allowed=limits.total_bytes, actual=total_bytes, key=key)


def fitting(result: InferenceResult, limits: StateLimits) -> InferenceResult:
    """Return *result* if its JSON is not too large; else LimitExceeded."""
    check_size(result, len(canonical_of(result)), limits)
    return result


def check_size(result: InferenceResult, size: int, limits: StateLimits) -> None:
    """LimitExceeded if *size*, the bytes of the JSON of *result*, is too large."""
    if size > limits.result_bytes:
        raise over("result_bytes", allowed=limits.result_bytes, actual=size, key=result.id)
