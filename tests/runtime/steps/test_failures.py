"""How steps fail: for which reason, with which true cause, and what is tried again."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, ThinkingPart
from pydantic_ai.models.fallback import FallbackModel
from stepping import Stepping, names

from holdfast.ground.errors import NoModel, StepFailed
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    LogUpdate,
    Step,
    StepError,
    StepExecutor,
    Task,
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
    stepping = Stepping(waits_for_ever, step={"timeout_s": 0.01})

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

    told = await stepping.told(LogUpdate)

    assert stepping.executor.result == "Three."
    assert waited == [1, 2, 4, 8, 16, 30, 30]
    assert [each.severity for each in told] == ["warning"] * 7
    assert "529" in told[0].content


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
    assert stepping.step.error == StepError("internal", "ZeroDivisionError: ")


def test_without_a_model_the_constructor_says_where_one_may_be_named() -> None:
    step = Step(id="count", instructions="Count.")
    task = Task(id="harbour", title="The harbour", steps=[step])

    with pytest.raises(NoModel, match="its agent, for its executor, or for the context"):
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
