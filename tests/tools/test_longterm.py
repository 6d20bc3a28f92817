"""The tools of long-term memory, and calls of tools."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import Holdfast, tools
from holdfast.ground.errors import ToolNameTaken, ToolRefused, Unavailable
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Turn
from holdfast.tools import lay_out
from holdfast.tools.base import CALLS, JSON, Tool
from holdfast.tools.longterm import SCHEMAS

Call = dict[str, Any]


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None
    return ltm


@pytest.fixture
def table(ltm: LongTermMemory) -> dict[str, Tool]:
    return tools.lay_out(tools.longterm(ltm))


def answer(table: dict[str, Tool], name: str, **arguments: object) -> Call:
    return cast("Call", table[f"ltm_{name}"].call(arguments))


def test_where_memory_is_off_there_are_no_tools(hf: Holdfast) -> None:
    assert tools.longterm(hf.longterm("ada", enabled=False)) == []


def test_what_is_remembered_is_recalled(table: dict[str, Tool]) -> None:
    stored = answer(
        table, "remember", text="Prefers tabs over spaces", kind="preference", importance=0.8
    )
    recalled = answer(table, "recall", query="tabs or spaces?")

    assert stored == {"stored": True, "id": stored["id"], "outcome": "stored"}
    (found,) = recalled["results"]
    assert (recalled["count"], recalled["mode"]) == (1, "lexical")
    assert (found["id"], found["type"], found["text"], found["kind"]) == (
        stored["id"],
        "item",
        "Prefers tabs over spaces",
        "preference",
    )
    assert (found["speaker"], found["importance"]) == (None, 0.8)
    assert found["at"].endswith("Z")
    assert found["why"].startswith("matches ")
    assert 0 < found["score"] <= 1


def test_a_turn_says_who_said_it(ltm: LongTermMemory, table: dict[str, Tool]) -> None:
    ltm.record(
        [Turn(role="user", text="We went to the lake", speaker="Ana"), Turn(role="user", text="Hm")]
    )

    found = answer(table, "recall", query="lake")["results"][0]

    assert (found["type"], found["kind"], found["speaker"]) == ("turn", None, "Ana")
    assert set(found) == {
        *("id", "type", "text", "kind", "speaker", "at", "tier", "importance", "score", "why")
    }


def test_nothing_that_fits_is_an_empty_list(table: dict[str, Tool]) -> None:
    assert answer(table, "recall", query="tabs") == {"results": [], "count": 0, "mode": "lexical"}


@pytest.mark.parametrize(("k", "count"), [(-3, 1), (0, 1), (3, 3), (21, 20), (10**12, 20)])
def test_how_many_is_kept_within_bounds(
    ltm: LongTermMemory, table: dict[str, Tool], k: int, count: int
) -> None:
    ltm.record([Turn(role="user", text=f"Tabs number {number}") for number in range(25)])

    assert answer(table, "recall", query="my tabs", k=k)["count"] == count


def test_what_is_known_is_told_with_the_item_that_says_it(table: dict[str, Tool]) -> None:
    first = answer(table, "remember", text="Likes tabs")

    again = answer(table, "remember", text="likes tabs.")

    assert (again["stored"], again["id"], again["outcome"]) == (False, first["id"], "duplicate")
    assert again["message"]


@pytest.mark.parametrize(
    ("text", "outcome", "says"),
    [("My password is hunter22!", "secret", "other words"), (" ", "blank", "no text")],
)
def test_what_is_not_kept_is_told(
    ltm: LongTermMemory, table: dict[str, Tool], text: str, outcome: str, says: str
) -> None:
    told = answer(table, "remember", text=text)

    assert (told["stored"], told["id"], told["outcome"]) == (False, None, outcome)
    assert says in told["message"]
    assert "hunter22" not in str(told)
    assert ltm.list().data == []


def test_what_a_tool_remembers_is_known_to_be_an_agents_choice(
    ltm: LongTermMemory, table: dict[str, Tool]
) -> None:
    answer(table, "remember", text="Likes tabs")
    ltm.remember("Has a dog")

    assert [each.origin for each in ltm.list()] == ["api", "tool"]


def test_forgetting_tells_what_went_and_again_nothing(
    ltm: LongTermMemory, table: dict[str, Tool]
) -> None:
    turn = ltm.record([Turn(role="user", text="I like tabs")]).turns[0]
    item = ltm.remember("Likes tabs", turns=[turn.id]).stored
    assert item is not None

    gone, again = (answer(table, "forget", id=item.id) for _ in range(2))

    assert gone == {"forgotten": True, "items": [item.id], "turns": [turn.id]}
    assert again == {"forgotten": False, "items": [], "turns": []}


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("recall", {}, "arguments"),
        ("recall", {"query": 5}, "query"),
        ("recall", {"query": "x", "k": "many"}, "k"),
        ("recall", {"query": "x", "user": "bob"}, "arguments"),
        ("remember", {"text": "x", "kind": "belief"}, "kind"),
        ("remember", {"text": "x", "importance": 2}, "importance"),
        ("remember", {"text": "x" * 4_097}, "text"),
        ("remember", {"text": "x", "origin": "api"}, "arguments"),
        ("forget", {"id": None}, "id"),
    ],
)
def test_a_mistake_is_an_answer(
    table: dict[str, Tool], name: str, arguments: Call, field: str
) -> None:
    told = answer(table, name, **arguments)["error"]

    assert set(told) == {"type", "message", "next", "field"}
    assert (told["type"], told["field"]) == ("invalid_input", field)


def test_trouble_is_an_answer() -> None:
    with holdfast.open(":memory:") as hf:
        table = tools.lay_out(tools.longterm(hf.longterm("ada", enabled=True)))
        answer(table, "remember", text="Has a dog")

    assert answer(table, "remember", text="Likes tabs")["error"]["type"] == "unavailable"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["query", "k", "text", "kind", "id"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_arguments_make_a_tool_raise(arguments: object) -> None:
    with holdfast.open(":memory:") as hf:
        for tool in tools.longterm(hf.longterm("ada", enabled=True)):
            assert isinstance(tool.call(arguments), dict)


def test_the_descriptions_are_short_enough_to_go_with_every_prompt(table: dict[str, Tool]) -> None:
    assert sum(len(tool.description) for tool in table.values()) <= 1_200
    assert all(tool.description for tool in table.values())


def test_no_more_arguments_are_taken_than_are_told(table: dict[str, Tool]) -> None:
    assert {tool.name: tool.parameters for tool in table.values()} == {
        f"ltm_{name}": schema for name, schema in SCHEMAS.items()
    }
    assert all(schema["additionalProperties"] is False for schema in SCHEMAS.values())


def tool(name: str, *, id: str = "test.tool", commands: tuple[str, ...] = ()) -> Tool:
    def work(arguments: object) -> JSON:
        match arguments:
            case {"fault": "model"}:
                raise ToolRefused("Not like this.")
            case {"fault": "engine"}:
                raise Unavailable("The disk is full.", reason="full")
            case _:
                return {"done": True}

    return Tool(
        id=id,
        name=name,
        description="Does it.",
        parameters={"type": "object"},
        work=work,
        commands=commands,
    )


def test_tools_are_laid_out_by_the_name_a_model_sees() -> None:
    a, b = tool("a"), tool("b")

    assert lay_out([a], [b]) == {"a": a, "b": b}


def test_two_tools_of_one_name_are_a_loud_clash_that_names_both() -> None:
    with pytest.raises(ToolNameTaken) as clash:
        lay_out([tool("a", id="one.a")], [tool("a", id="two.a")])

    assert clash.value.carried() == {"name": "a", "ids": ("one.a", "two.a")}
    assert 'profile="together"' in str(clash.value)


def test_every_call_is_counted_by_how_it_ended() -> None:
    counted = tool("counted_by_outcome")

    assert counted.call({}) == {"done": True}
    with pytest.raises(ToolRefused):
        counted.call({"fault": "model"})
    with pytest.raises(Unavailable):
        counted.call({"fault": "engine"})

    assert {key[1:]: n for key, n in CALLS.numbers().items() if key[0] == counted.name} == {
        ("", "ok"): 1,
        ("", "refused"): 1,
        ("", "error"): 1,
    }


def test_a_call_is_counted_by_its_command_when_that_is_a_known_one() -> None:
    counted = tool("counted_by_command", commands=("view",))

    counted.call({"command": "view"})
    for unknown in ("x" * 99, 7, None):
        counted.call({"command": unknown})
    counted.call("view")

    assert {key[1:]: n for key, n in CALLS.numbers().items() if key[0] == counted.name} == {
        ("view", "ok"): 1,
        ("", "ok"): 4,
    }


def test_a_refusal_is_its_text_to_the_last_blank() -> None:
    assert str(ToolRefused("Path must start with /memories, got: ")).endswith("got: ")
