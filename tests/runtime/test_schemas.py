"""Schemas of tools: which are of use, and what they forbid."""

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelRetry

from holdfast.runtime.mcp import BySchema, unusable

NUMBERS = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in "abcdefg"},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        NUMBERS,
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
    ],
)
def test_a_schema_of_an_object_is_of_use(schema: Any) -> None:
    assert unusable(schema) is None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no object"),
        ([], "no object"),
        ({}, "not one of an object"),
        ({"type": "array"}, "not one of an object"),
        ({"type": "object", "properties": {"x": {"type": "wrong"}}}, r"\$.properties.x"),
        ({"type": "object", "properties": {"x": {"$ref": "https://x.org/y"}}}, "https://x.org/y"),
        ({"type": "object", "allOf": [{"$ref": "other.json"}]}, "other.json"),
    ],
)
def test_others_are_not_and_it_is_said_why(schema: Any, why: str) -> None:
    told = unusable(schema)

    assert told is not None
    assert why.replace("\\", "") in told


def test_so_many_problems_are_told_at_once() -> None:
    wrong = dict.fromkeys("abcdefg", "x")

    with pytest.raises(ModelRetry) as raised:
        BySchema(NUMBERS).validate_python(wrong)

    assert raised.value.message.count("is not of type 'integer'") == 5


def test_what_is_allowed_passes_as_it_is() -> None:
    assert BySchema(NUMBERS).validate_json('{"a": 1}') == {"a": 1}
