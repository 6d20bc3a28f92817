"""The four tools of durable memory, as a model would call them."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast, tools
from holdfast.tools.base import Tool

Call = dict[str, Any]


@pytest.fixture
def table(hf: Holdfast) -> dict[str, Tool]:
    return tools.lay_out(tools.durable(hf.durable("agent_7")))


def answer(table: dict[str, Tool], name: str, **arguments: object) -> Call:
    return cast("Call", table[f"memory_{name}"].call(arguments))


def test_what_is_stored_is_recalled(table: dict[str, Tool]) -> None:
    stored = answer(
        table, "store", key="deploy_target", category="core", content="fly.io", tags=["ops"]
    )
    recalled = answer(table, "recall", key="deploy_target")

    assert stored["outcome"] == "created"
    assert set(stored["stored"]) == {"key", "category", "tags", "size_bytes", "seq", "expires_at"}
    assert recalled["entry"]["content"] == "fly.io"
    assert set(recalled["entry"]) == {
        *("key", "category", "content", "tags", "seq", "updated_at", "expires_at", "scope", "by")
    }
    assert recalled["similar_keys"] == []


def test_a_miss_names_keys_that_may_have_been_meant(table: dict[str, Tool]) -> None:
    answer(table, "store", key="deploy_target", category="core", content="fly.io")

    missed = answer(table, "recall", key="deploy_targets")

    assert missed == {"entry": None, "similar_keys": ["deploy_target"]}


def test_what_a_tool_stores_is_by_the_agent() -> None:
    with holdfast.open(":memory:") as hf:
        durable = hf.durable("agent_7")
        answer(tools.lay_out(tools.durable(durable)), "store", key="k", category="x", content="c")

        entry = durable.get("k")

    assert entry is not None
    assert str(entry.updated_by) == "agent:agent_7"


def test_a_list_is_newest_first_and_walks_on(table: dict[str, Tool]) -> None:
    for number in range(3):
        answer(table, "store", key=f"k{number}", category="note", content="text")

    first = answer(table, "list", limit=2)
    second = answer(table, "list", limit=2, page=first["next_page"])

    assert [entry["key"] for entry in first["entries"]] == ["k2", "k1"]
    assert [entry["key"] for entry in second["entries"]] == ["k0"]
    assert second["next_page"] is None


def test_a_page_ends_before_it_is_too_long_and_nothing_is_left_out(table: dict[str, Tool]) -> None:
    for number in range(5):
        answer(table, "store", key=f"k{number}", category="note", content="x" * 15_000)

    keys: list[str] = []
    page: str | None = None
    while True:
        asked = {} if page is None else {"page": page}
        told = answer(table, "list", **asked)
        assert 1 <= len(told["entries"]) <= 2
        keys += [entry["key"] for entry in told["entries"]]
        page = told["next_page"]
        if page is None:
            break

    assert keys == ["k4", "k3", "k2", "k1", "k0"]


def test_forgetting_tells_what_is_still_there(hf: Holdfast) -> None:
    durable = hf.durable("agent_7")
    table = tools.lay_out(tools.durable(durable))
    durable.set("owner", "the team", category="workspace")
    durable.set("owner", "Ada", category="core")

    told = answer(table, "forget", key="owner")
    again = answer(table, "forget", key="owne")

    assert (told["forgotten"], told["still_visible"]) == (True, "workspace")
    assert again["forgotten"] is False


@pytest.mark.parametrize(
    ("name", "arguments", "code", "field"),
    [
        ("store", {"key": "k", "content": "c"}, "HF-MEM-004", "arguments"),
        ("store", {"key": "", "content": "c", "category": "x"}, "HF-MEM-004", "key"),
        ("store", {"key": "k", "content": " ", "category": "x"}, "HF-MEM-004", "content"),
        ("store", {"key": "k", "content": "c", "category": "conversation"}, "HF-MEM-008", None),
        ("recall", {"key": 5}, "HF-MEM-004", "key"),
        ("recall", {"key": "k", "fuzzy": True}, "HF-MEM-004", "arguments"),
        ("list", {"limit": 101}, "HF-MEM-004", "limit"),
        ("list", {"filter": {"since": "yesterday"}}, "HF-MEM-004", "since"),
        ("list", {"filter": {"tag": "x"}}, "HF-MEM-004", "filter"),
        ("list", {"page": "page_1"}, "HF-MEM-004", "page"),
    ],
)
def test_a_mistake_is_an_answer(
    table: dict[str, Tool], name: str, arguments: Call, code: str, field: str | None
) -> None:
    told = answer(table, name, **arguments)["error"]

    assert set(told) == {"code", "type", "message", "next", "field"}
    assert (told["code"], told["field"]) == (code, field)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["key", "content", "tags", "filter", "limit"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_arguments_make_a_tool_raise(arguments: object) -> None:
    with holdfast.open(":memory:") as hf:
        for tool in tools.durable(hf.durable("agent_7")):
            assert isinstance(tool.call(arguments), dict)


def test_the_descriptions_are_short_enough_to_go_with_every_prompt() -> None:
    with holdfast.open(":memory:") as hf:
        described = [tool.description for tool in tools.durable(hf.durable("agent_7"))]

    assert sum(map(len, described)) <= 1_200
    assert all(described)
