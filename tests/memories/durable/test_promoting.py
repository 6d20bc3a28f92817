"""A value that outlives its run: under which key, as which text, and where it came from."""

import pytest
from msgspec import Struct

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.write import promote, promotion


class Value(Struct, frozen=True, kw_only=True):
    """A value as the memories of a run and of a network give it."""

    value: object
    kind: str = "shared"
    source: str | None = "researcher"


class Values(dict[str, Value]):
    """A memory that values can be promoted from."""


def test_a_value_becomes_an_entry_that_says_where_it_came_from(durable: DurableMemory) -> None:
    what = promotion(Values({"shared:owner": Value(value="Ada")}), "shared:owner")

    entry = promote(durable.context, what, category="core", tags=["team"])

    assert (entry.key, entry.content, entry.category, entry.tags) == (
        "owner",
        "Ada",
        "core",
        ("team",),
    )
    assert entry.outcome == "created"
    assert durable.history("owner").data[0].cause == {
        "promoted_from": "shared:owner",
        "source": "researcher",
    }


@pytest.mark.parametrize(
    ("key", "as_key", "name"),
    [
        ("shared:owner", None, "owner"),
        ("step:a:b", None, "a:b"),
        ("owner", None, "owner"),
        ("https://x", None, "https://x"),
        ("shared:owner", "boss", "boss"),
    ],
)
def test_the_key_loses_its_namespace_unless_another_is_given(
    key: str, as_key: str | None, name: str
) -> None:
    assert promotion(Values({key: Value(value="x")}), key, as_key).key == name


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (" Ada\n", " Ada\n"),
        ({"b": [1, 1.5, None, True], "a": "ü"}, '{"a":"ü","b":[1,1.5,null,true]}'),
        ((1, 2), "[1,2]"),
        (None, "null"),
        (0, "0"),
    ],
)
def test_text_stays_and_anything_else_is_canonical_json(value: object, content: str) -> None:
    assert promotion(Values({"k": Value(value=value)}), "k").content == content


def test_the_same_value_again_is_the_same_entry_renewed(durable: DurableMemory) -> None:
    for names in ("ab", "ba"):
        what = promotion(Values({"k": Value(value=dict.fromkeys(names, 1))}), "k")
        entry = promote(durable.context, what, category="core")

    assert entry.outcome == "refreshed"


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound) as missing:
        promotion(Values(), "shared:owner")

    assert missing.value.code == "HF-MEM-002"


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", {"a": object()}, {1: 1, "a": 2}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        promotion(Values({"k": Value(value=value)}), "k")

    assert refused.value.code == "HF-MEM-004"


def test_a_value_that_breaks_a_rule_of_entries_is_refused(durable: DurableMemory) -> None:
    what = promotion(Values({"k": Value(value="")}), "k")

    with pytest.raises(InvalidInput) as refused:
        promote(durable.context, what, category="core")

    assert refused.value.field == "content"
