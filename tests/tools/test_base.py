"""Tools are called, counted, and laid side by side."""

import pytest

from holdfast.ground.errors import ToolNameTaken, ToolRefused, Unavailable
from holdfast.tools import Tool, lay_out
from holdfast.tools.base import CALLS, JSON


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
