"""How much a step may ask, and how it is brought to an end in time."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from stepping import NUMBER, Stepping, names

from holdfast.ground.errors import InvalidInput
from holdfast.runtime import Context, TaskUpdate
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio

FINISH = call("finish_step", result=3)
CONCLUDE = "You have reached the limit of this step."


def look() -> str:
    """Look."""
    return "Ships."


def spending(tokens: int, *parts: Any) -> ModelResponse:
    """Return a reply that cost *tokens*, most of them input."""
    said = [TextPart(each) if isinstance(each, str) else each for each in parts]
    return ModelResponse(said, usage=RequestUsage(input_tokens=tokens - 10, output_tokens=10))


async def test_the_last_request_that_is_allowed_is_there_to_conclude() -> None:
    stepping = Stepping(
        [call("look"), call("look"), FINISH],
        step={"output_schema": NUMBER},
        tools=[look],
        max_iterations=3,
    )

    told = await stepping.told(TaskUpdate)

    assert names(told) == ["step_started", "entered_conclusion_stage", "step_completed"]
    assert [asked.offered[-1:] for asked in stepping.model.asked] == [["finish_step"]] * 3
    assert stepping.model.asked[1].offered[0] == "look"
    assert stepping.model.asked[2].offered == ["finish_step"]
    assert [CONCLUDE in asked.text for asked in stepping.model.asked] == [False, False, True]


async def test_without_a_schema_there_is_no_tool_at_all_at_the_end() -> None:
    stepping = Stepping([call("look"), "Three."], tools=[look], max_iterations=2)

    await stepping.executor.run()

    assert stepping.model.asked[1].offered == []
    assert "answer now in plain text" in stepping.model.asked[1].text


async def test_a_step_of_one_request_starts_in_the_stage() -> None:
    stepping = Stepping([FINISH], step={"output_schema": NUMBER}, max_iterations=1)

    assert await stepping.executor.run() == 3
    assert stepping.model.asked[0].offered == ["finish_step"]
    assert CONCLUDE in stepping.model.asked[0].text


async def test_other_calls_at_the_end_are_answered_and_not_run() -> None:
    ran: list[str] = []

    def mark() -> None:
        """Mark."""
        ran.append("ran")

    stepping = Stepping(
        [[call("mark"), call("memory_list"), FINISH]],
        step={"output_schema": NUMBER},
        tools=[mark],
        max_iterations=1,
    )

    assert await stepping.executor.run() == 3
    assert ran == []
    assert sum("Unknown tool" in str(each) for each in stepping.given) == 2


async def test_no_result_in_the_requests_there_are_fails_the_step_saying_how_many() -> None:
    stepping = Stepping(lambda _: call("look"), tools=[look], max_iterations=4)

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert (error.reason, stepping.executor.iterations) == ("max_iterations", 4)
    assert "4 model requests" in error.message


async def test_a_steps_own_limit_counts_before_the_executors() -> None:
    stepping = Stepping(
        lambda _: call("look"), tools=[look], step={"max_iterations": 2}, max_iterations=9
    )

    await stepping.events()

    assert stepping.executor.iterations == 2


@pytest.mark.parametrize(("tokens", "concludes"), [(900, False), (901, True)])
async def test_past_nine_tenths_of_the_budget_the_step_concludes(
    tokens: int, concludes: bool
) -> None:
    stepping = Stepping(
        [spending(tokens * 10, call("look")), FINISH],
        step={"output_schema": NUMBER},
        tools=[look],
        token_budget=10_000,
    )

    await stepping.executor.run()

    assert (stepping.model.asked[1].offered == ["finish_step"]) is concludes


async def test_without_a_providers_count_four_characters_are_a_token() -> None:
    def log() -> str:
        """Read the log."""
        return "x" * 24_000

    stepping = Stepping(
        [spending(20, call("log")), FINISH],
        step={"output_schema": NUMBER, "token_budget": 6_000},
        tools=[log],
    )

    told = await stepping.told(TaskUpdate)

    assert "entered_conclusion_stage" in names(told)


async def test_a_prompt_past_the_budget_concludes_from_the_first_request() -> None:
    stepping = Stepping([FINISH], step={"output_schema": NUMBER}, token_budget=100)

    await stepping.executor.run()

    assert stepping.model.asked[0].offered == ["finish_step"]


async def test_three_requests_to_conclude_without_a_result_fail_the_step() -> None:
    stepping = Stepping(
        lambda _: spending(9_500, call("look")),
        step={"output_schema": NUMBER},
        tools=[look],
        token_budget=10_000,
    )

    told = await stepping.told(TaskUpdate)

    error = stepping.executor.error
    assert error is not None
    assert (error.reason, stepping.executor.iterations) == ("token_budget", 4)
    assert "10000" in error.message
    assert names(told).count("entered_conclusion_stage") == 1
    assert stepping.model.asked[-1].text.count(CONCLUDE) == 1


async def test_what_models_reported_adds_up_in_the_run() -> None:
    context = Context(clock=FrozenClock())
    stepping = Stepping(
        [spending(100, call("look")), spending(200, "Three.")], context=context, tools=[look]
    )

    await stepping.executor.run()

    usage = context.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (2, 280, 20)
    assert usage.total_tokens == 300


@pytest.mark.parametrize("stream", [True, False])
async def test_a_step_goes_the_same_way_streamed_or_not(stream: bool) -> None:
    context = Context(stream=stream, clock=FrozenClock())
    turns = [["Let me look.", call("look")], FINISH]
    stepping = Stepping(turns, step={"output_schema": NUMBER}, context=context, tools=[look])

    assert await stepping.executor.run() == 3
    assert context.usage.requests == 2


@pytest.mark.parametrize("limit", ["max_iterations", "token_budget", "tool_result_limit"])
def test_a_limit_that_lets_nothing_be_done_is_refused_at_once(limit: str) -> None:
    none: dict[str, Any] = {limit: 0}

    with pytest.raises(InvalidInput, match=f"{limit}: must be at least 1"):
        Stepping([], **none)


async def test_done_again_it_tells_of_the_last_time_alone() -> None:
    stepping = Stepping([call("look"), "Three.", OSError("no route")], tools=[look])
    await stepping.executor.run()

    await stepping.events()

    executor = stepping.executor
    assert (executor.result, executor.iterations, stepping.step.state) == (None, 1, "failed")
