"""A word to steps at work, and to those that will be."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import UserPromptPart
from stepping import NUMBER, Stepping

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.runtime import Context, LogUpdate
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked

pytestmark = pytest.mark.anyio

FINISH = call("finish_step", result=3)


def said(asked: Asked) -> list[str]:
    """Return what users said in *asked*, in order."""
    parts = [part for message in asked.messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


async def test_what_is_said_goes_before_the_next_request_in_order_and_is_told() -> None:
    def look() -> str:
        """Look."""
        assert stepping.context.steer("Only the big ones.", step="count") == ["count"]
        assert stepping.context.steer("And quick.") == ["count"]
        return "Ships."

    stepping = Stepping([call("look"), "Three."], tools=[look])

    told = await stepping.told(LogUpdate)

    assert said(stepping.model.asked[1])[1:] == ["Only the big ones.", "And quick."]
    assert [(each.severity, each.content) for each in told] == [
        ("info", "Steered: Only the big ones."),
        ("info", "Steered: And quick."),
    ]


@pytest.mark.parametrize(
    ("last", "schema", "result"), [("Two.", None, "Two."), (FINISH, NUMBER, 3)]
)
async def test_a_step_about_to_end_takes_what_was_said_and_goes_on(
    last: Any, schema: Any, result: Any
) -> None:
    def late(_: Asked) -> Any:
        stepping.context.steer("Wait, look again.")
        return "Three." if schema is None else call("finish_step", result=9)

    stepping = Stepping([late, last], step={"output_schema": schema})

    assert await stepping.executor.run() == result
    assert said(stepping.model.asked[1])[-1] == "Wait, look again."


async def test_when_no_request_is_left_the_result_that_was_there_counts() -> None:
    def late(_: Asked) -> Any:
        stepping.context.steer("Wait, look again.")
        return "Three."

    stepping = Stepping([late], max_iterations=1)

    told = await stepping.told(LogUpdate)

    assert stepping.executor.result == "Three."
    assert [each.severity for each in told] == ["info", "warning"]


async def test_what_is_said_to_a_step_that_has_not_started_waits_for_it() -> None:
    stepping = Stepping(["Three."])
    stepping.context.steering.expect(["count"])

    assert stepping.context.steer("Only the big ones.", step="count") == ["count"]
    await stepping.executor.run()

    assert said(stepping.model.asked[0]) == ["Count the ships.", "Only the big ones."]


async def test_a_second_try_hears_it_again() -> None:
    async def sleep(_: float) -> None:
        pass

    def failing(_: Asked) -> Any:
        stepping.context.steer("Only the big ones.")
        raise OSError("no route")

    context = Context(clock=FrozenClock(), sleep=sleep)
    stepping = Stepping([failing, "Three."], context=context, step={"retries": 1})

    await stepping.executor.run()

    assert said(stepping.model.asked[1]) == ["Count the ships.", "Only the big ones."]


async def test_a_step_that_has_ended_or_is_unknown_is_not_found() -> None:
    stepping = Stepping(["Three."])
    await stepping.executor.run()

    with pytest.raises(NotFound):
        stepping.context.steer("Too late.", step="count")
    with pytest.raises(NotFound):
        stepping.context.steer("Who?", step="nobody")


async def test_with_nothing_at_work_nobody_hears_it() -> None:
    assert Context().steer("Hello?") == []


def test_a_blank_word_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Context().steer("  ")


async def test_another_thread_may_speak() -> None:
    async def look() -> str:
        """Look."""
        await asyncio.to_thread(stepping.context.steer, "Only the big ones.")
        return "Ships."

    stepping = Stepping([call("look"), "Three."], tools=[look])

    await stepping.executor.run()

    assert said(stepping.model.asked[1])[-1] == "Only the big ones."


@pytest.mark.parametrize("text", [5, None, "a\ud800"])
def test_only_text_can_be_said(text: Any) -> None:
    with pytest.raises(InvalidInput, match="text"):
        Context().steer(text)
