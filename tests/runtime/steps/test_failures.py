"""Failures of steps: their reasons and causes, retries, and limits."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.usage import RequestUsage
from stepping import NUMBER, Stepping, names

from holdfast.ground.errors import InvalidInput, NoModel, StepFailed
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    Step,
    StepError,
    StepExecutor,
    Task,
    TaskUpdate,
)
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


OVERLOADED = ModelHTTPError(529, "gpt-sail", {"error": {"message": "Overloaded, come back"}})


async def waits_for_ever(_: object) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_a_failure_is_told_with_its_cause_and_then_as_a_result() -> None:
    stepping = Stepping([OSError("no route")])

    events = await stepping.events()

    assert names(events) == [
        "started",
        "step_started",
        "memory_update",
        "step_failed",
        "step_result",
        "failed",
    ]
    failed, result, ended = events[-3:]
    assert getattr(failed, "cause", None) == "model_error: OSError: no route"
    assert getattr(result, "result", 0) is None
    assert getattr(result, "error", None) == stepping.executor.error
    assert getattr(ended, "reason", None) == "model_error: OSError: no route"


async def test_run_raises_what_the_step_failed_with() -> None:
    stepping = Stepping([OSError("no route")])

    with pytest.raises(StepFailed) as raised:
        await stepping.executor.run()

    assert raised.value.step_id == "count"
    assert raised.value.error == stepping.executor.error
    assert stepping.step.failed


async def test_a_providers_own_message_and_status_are_told() -> None:
    stepping = Stepping([OVERLOADED])

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "model_error"
    assert error.message == "gpt-sail answered 529: Overloaded, come back"


async def test_each_of_several_models_that_failed_is_told() -> None:
    models = [ScriptedModel([OVERLOADED]), ScriptedModel([ModelHTTPError(401, "sail-2", "no key")])]
    stepping = Stepping(model=FallbackModel(*models))

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert "529: Overloaded, come back; sail-2 answered 401: no key" in error.message


async def test_a_reply_that_was_cut_off_is_no_answer() -> None:
    cut = ModelResponse([ThinkingPart("Hm")], finish_reason="length")
    stepping = Stepping([cut])

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "no_answer"
    assert "token limit" in error.message


async def test_a_step_that_takes_too_long_is_stopped() -> None:
    stepping = Stepping(waits_for_ever, step={"timeout": 0.01})

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "timeout"
    assert "0.01 s" in error.message


async def test_a_step_is_tried_again_after_rising_waits_and_each_try_is_told() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    context = Context(clock=FrozenClock(), sleep=sleep)
    turns = [OVERLOADED] * 7 + ["Three."]
    stepping = Stepping(turns, context=context, step={"retries": 7})

    told = [each for each in await stepping.told(TaskUpdate) if each.event == "step_retried"]

    assert stepping.executor.result == "Three."
    assert waited == [1, 2, 4, 8, 16, 30, 30]
    assert len(told) == 7
    assert "529" in told[0].cause


async def test_when_the_tries_are_used_up_the_last_cause_is_told() -> None:
    async def sleep(seconds: float) -> None:
        pass

    context = Context(clock=FrozenClock(), sleep=sleep)
    stepping = Stepping([OVERLOADED, OSError("no route")], context=context, step={"retries": 1})

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.message == "OSError: no route"
    assert stepping.executor.iterations == 2


async def test_only_what_may_pass_is_tried_again() -> None:
    stepping = Stepping(lambda _: "", step={"retries": 3, "max_iterations": 2})

    await stepping.events()

    assert stepping.executor.iterations == 2


async def test_an_agent_that_is_off_is_not_run() -> None:
    def enabled(agent: Agent, run: object) -> bool:
        return (agent.name, run) != ("pilot", stepping.context)

    agent = Agent("pilot", instructions="", hooks=AgentHooks(enabled=enabled))
    stepping = Stepping([], agent=agent)

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "disabled"
    assert stepping.model.asked == []


@pytest.mark.parametrize("hook", ["enabled", "on_start", "on_response", "on_finish"])
async def test_a_hook_that_raises_fails_the_step_and_is_named(hook: str) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("sunk")

    hooks: dict[str, Any] = {hook: broken}
    agent = Agent("pilot", instructions="", hooks=AgentHooks(**hooks))
    stepping = Stepping(["Three."], agent=agent)

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "hook"
    assert error.message == f"the hook {hook} raised ValueError: sunk"


async def test_a_bug_in_what_the_caller_gave_is_raised_and_the_run_told_as_failed() -> None:
    def broken(_: object) -> str:
        raise ZeroDivisionError

    stepping = Stepping(["Three."], accept_result=broken)
    seen: list[str] = []

    async def look_on() -> None:
        async for event in stepping.executor.execute():
            seen.extend(names([event]))

    with pytest.raises(ZeroDivisionError):
        await look_on()

    assert seen[-3:] == ["step_failed", "step_result", "failed"]
    assert stepping.step.error == StepError("internal", "ZeroDivisionError")


def test_without_a_model_the_constructor_says_where_one_may_be_named() -> None:
    step = Step(id="count", instructions="Count.")
    task = Task(id="harbour", title="The harbour", steps=[step])

    with pytest.raises(NoModel, match="its task, its agent, its executor, or the context"):
        StepExecutor(task=task, step=step, context=Context())


@pytest.mark.parametrize("given", [{"agent"}, {"agent", "model"}, {"model"}, {"context"}])
async def test_the_agents_model_comes_first_then_the_executors_then_the_contexts(
    given: set[str],
) -> None:
    models = {name: ScriptedModel([name]) for name in ("agent", "model", "context")}
    context = Context(model=models["context"], clock=FrozenClock())
    agent = Agent("pilot", instructions="", model=models["agent"] if "agent" in given else None)
    model = models["model"] if "model" in given else None
    stepping = Stepping(context=context, agent=agent, model=model)

    assert await stepping.executor.run() == min(given)


async def test_run_sync_is_for_those_without_an_event_loop() -> None:
    stepping = Stepping([call("memory_list"), "Three."])

    result = await asyncio.to_thread(stepping.executor.run_sync)

    assert result == "Three."


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
