"""The tools of durable memory, and what they answer to hostile arguments."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast, tools
from holdfast.memories.durable.memory import DurableRun
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


NAMES = ("store", "recall", "list", "forget")
FIELDS = ("key", "content", "category", "tags", "filter", "limit", "page", "since", "query")
NASTY = [
    *("", " ", "\0", "\ud800", "a\udfff", "\x1b[31m", "e\u0301", "\u202e", "\ufeff", "%", "_", "'"),
    *("' or 1=1 --", "x" * 300, "🦀" * 100, "x" * 2_000, "page_1", "7d", "-1d", "9" * 400 + "d"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "conversation", "workspace", "core"),
]
NUMBERS = [-1, 0, 1, 101, 2**63, -(2**63), 10**400, 0.5, float("nan"), float("inf"), True]


class Odd:
    """What no model sends, and a careless adapter may."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


texts = st.sampled_from(NASTY) | st.text(st.characters(), max_size=8)
leaves = st.none() | texts | st.sampled_from(NUMBERS) | st.binary(max_size=3) | st.builds(Odd)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(FIELDS) | texts, inner, max_size=4)
    ),
    max_leaves=8,
)
filters = st.fixed_dictionaries(
    {},
    optional={
        "category": anything,
        "tags": anything,
        "since": anything,
        "key_prefix": anything,
        "query": anything,
    },
)
arguments = anything | st.fixed_dictionaries(
    {},
    optional={
        "key": texts | anything,
        "content": texts | anything,
        "category": texts | anything,
        "tags": st.lists(texts, max_size=40) | anything,
        "filter": filters | anything,
        "limit": st.sampled_from(NUMBERS) | anything,
        "page": texts | anything,
    },
)
hostile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def nested(depth: int) -> object:
    """Return lists within lists, *depth* of them."""
    inner: list[object] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def check(tool: Tool, given: object) -> dict[str, Any]:
    """Call *tool*, and demand an answer that can be sent on."""
    answer = cast("dict[str, Any]", tool.call(given))
    text = json.dumps(answer, allow_nan=False)
    assert text.encode()
    json.dumps(answer, ensure_ascii=False).encode()
    if "error" in answer:
        assert set(answer["error"]) == {"code", "type", "message", "next", "field"}
        assert answer["error"]["code"].startswith("HF-MEM-")
        assert answer["error"]["message"]
        assert len(answer["error"]["message"]) < 2_000
    return answer


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.mark.parametrize("name", NAMES)
@given(arguments)
@hostile
def test_whatever_it_is_given_a_tool_answers(
    memory: Holdfast, name: str, arguments: object
) -> None:
    check(tools.lay_out(tools.durable(memory.durable("agent_7")))[f"memory_{name}"], arguments)


@pytest.mark.parametrize("name", NAMES)
@given(arguments)
@hostile
def test_in_a_run_and_after_it_a_tool_answers(
    memory: Holdfast, name: str, arguments: object
) -> None:
    durable = memory.durable("agent_7")
    run = durable.run()
    check(tools.lay_out(tools.durable(run))[f"memory_{name}"], arguments)
    run.end()

    assert "error" in check(tools.lay_out(tools.durable(run))[f"memory_{name}"], arguments)


@pytest.mark.parametrize("name", NAMES)
@given(arguments)
@hostile
def test_on_every_target_a_tool_answers(hf: Holdfast, name: str, arguments: object) -> None:
    check(tools.lay_out(tools.durable(hf.durable("agent_7")))[f"memory_{name}"], arguments)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("depth", [100, 5_000])
def test_arguments_without_a_bottom_are_an_answer(memory: Holdfast, name: str, depth: int) -> None:
    tool = tools.lay_out(tools.durable(memory.durable("agent_7")))[f"memory_{name}"]
    circle: list[object] = []
    circle.append(circle)

    deep, huge = nested(depth), 10**depth
    for each in (deep, {"key": deep}, {"filter": {"tags": circle}}, circle, huge, {"key": huge}):
        assert "error" in check(tool, each)


def valid(name: str) -> dict[str, object]:
    key: dict[str, object] = {"key": "k"}
    return {"store": {**key, "content": "c", "category": "x"}, "list": {}}.get(name, key)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_run", [True, False])
def test_where_the_memory_cannot_be_reached_a_tool_says_so(
    sqlite_file: Path, name: str, *, in_run: bool
) -> None:
    hf = holdfast.open(sqlite_file)
    durable = hf.durable("agent_7")
    tool = tools.lay_out(tools.durable(durable.run() if in_run else durable))[f"memory_{name}"]
    hf.close()

    answer = check(tool, valid(name))

    assert answer["error"]["code"] == "HF-MEM-003"


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_superseded_hears_so_from_each_tool(memory: Holdfast, name: str) -> None:
    durable = memory.durable("agent_7")
    run: DurableRun = durable.run()
    durable.run()

    answer = check(tools.lay_out(tools.durable(run))[f"memory_{name}"], valid(name))

    assert answer["error"]["code"] == "HF-MEM-006"


@given(arguments)
@hostile
def test_a_refusal_never_repeats_content(memory: Holdfast, arguments: object) -> None:
    tool = tools.lay_out(tools.durable(memory.durable("agent_7")))["memory_store"]
    given = cast("dict[str, object]", arguments if isinstance(arguments, dict) else {})
    for content in ("Zw3xSecret" * 9_000, "Zw3xSecret\0", "Zw3xSecret\ud800", ["Zw3xSecret"]):
        answer = check(tool, {**given, "content": content})
        if "error" in answer:
            assert "Zw3xSecret" not in str(answer)
