"""The model that answers from a script."""

import pytest
from pydantic_ai import Agent

from holdfast.testing.scripted import Asked, ScriptedModel, call, thought

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


async def test_turns_are_said_in_order_and_tools_are_called() -> None:
    model = ScriptedModel([["Let me see.", call("add", a=1, b=2)], "Three."])

    result = await Agent(model, tools=[add]).run("What is 1 + 2?")

    assert result.output == "Three."
    assert "3" in model.asked[1].text


async def test_what_each_request_contained_is_kept() -> None:
    model = ScriptedModel(["Hello."])

    await Agent(model, tools=[add], instructions="Be kind.").run("Hi?")

    assert model.asked[0].instructions == "Be kind."
    assert model.asked[0].offered == ["add"]
    assert model.asked[0].text.endswith("Hi?")


async def test_a_function_answers_what_was_asked() -> None:
    async def answer(asked: Asked) -> str:
        return f"{len(asked.messages)} messages"

    assert (await Agent(ScriptedModel(answer)).run("Hi?")).output == "1 messages"


async def test_an_exception_in_the_script_is_raised() -> None:
    with pytest.raises(OSError, match="gone"):
        await Agent(ScriptedModel([OSError("gone")])).run("Hi?")


async def test_a_request_past_the_end_of_the_script_fails() -> None:
    with pytest.raises(AssertionError, match="the script has ended"):
        await Agent(ScriptedModel([])).run("Hi?")


async def test_a_streamed_answer_is_the_same_in_pieces() -> None:
    model = ScriptedModel([[thought("Hm."), "x" * 100]])

    async with Agent(model).run_stream("Hi?") as stream:
        text = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]

    assert "".join(text) == "x" * 100
