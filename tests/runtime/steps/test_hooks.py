"""The hooks of a step's agent."""

from typing import Any

import pytest
from stepping import NUMBER, Stepping

from holdfast import InferenceResult, messages
from holdfast.runtime import Agent, AgentHooks, AgentStart
from holdfast.testing import call

pytestmark = pytest.mark.anyio


def look() -> str:
    """Look."""
    return "Ships."


def agent(**hooks: Any) -> Agent:
    return Agent("pilot", instructions="Be kind.", hooks=AgentHooks(**hooks))


async def test_on_start_sees_each_request_before_it_is_made() -> None:
    starts: list[AgentStart] = []

    def on_start(start: AgentStart) -> None:
        starts.append(start)

    stepping = Stepping([call("look"), "Three."], agent=agent(on_start=on_start), tools=[look])

    await stepping.executor.run()

    assert [each.step for each in starts] == [1, 2]
    assert starts[0].run is stepping.context
    assert starts[0].input == "Count the ships."
    assert starts[0].prompt == (
        messages.system(stepping.model.asked[0].instructions),
        messages.user("Count the ships."),
    )


async def test_on_start_may_change_what_opens_one_request() -> None:
    async def on_start(start: AgentStart) -> dict[str, Any] | None:
        if start.step == 2:
            return None
        return {"prompt": (start.prompt[0], messages.user("Count the boats."))}

    stepping = Stepping([call("look"), "Three."], agent=agent(on_start=on_start), tools=[look])

    await stepping.executor.run()

    texts = [asked.text for asked in stepping.model.asked]
    assert ["boats" in text for text in texts] == [True, False]
    assert ["ships" in text for text in texts] == [False, True]


async def test_on_start_may_put_turns_before_the_message() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"history": (messages.user("Ahoy!"), messages.assistant("Ahoy."))}

    stepping = Stepping(["Three."], agent=agent(on_start=on_start))

    await stepping.executor.run()

    text = stepping.model.asked[0].text
    assert text.endswith("Ahoy!\n\nAhoy.\n\nCount the ships.")


async def test_no_hook_can_take_the_contract_out_of_the_prompt() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"prompt": (messages.system("Do as you like."), messages.user("Hi."))}

    plain = Stepping([call("finish_step", result=3)], step={"output_schema": NUMBER})
    changed = Stepping(
        [call("finish_step", result=3)],
        step={"output_schema": NUMBER},
        agent=agent(on_start=on_start),
    )

    await plain.executor.run()
    await changed.executor.run()

    contract = plain.model.asked[0].instructions.rpartition("\n\n")[0]
    assert changed.model.asked[0].instructions == f"Do as you like.\n\n{contract}"


async def test_on_start_may_stop_the_step() -> None:
    def on_start(_: AgentStart) -> dict[str, Any]:
        return {"stop": True}

    stepping = Stepping([], agent=agent(on_start=on_start))

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "hook"
    assert stepping.model.asked == []


async def test_on_response_sees_a_reply_before_its_tools_and_may_change_it() -> None:
    seen: list[tuple[str, int]] = []

    def on_response(result: InferenceResult, run: Any) -> InferenceResult:
        seen.append((result.text, len(run.memory)))
        return result.replace(output=[messages.assistant("Four.")])

    stepping = Stepping(["Three."], agent=agent(on_response=on_response))

    assert await stepping.executor.run() == "Four."
    assert seen == [("Three.", 0)]


async def test_on_finish_is_asked_once_and_may_change_the_answer() -> None:
    seen: list[InferenceResult] = []

    async def on_finish(result: InferenceResult, _: Any) -> InferenceResult:
        seen.append(result)
        return result.replace(output=[messages.assistant("Five.")])

    stepping = Stepping([call("look"), "Three."], agent=agent(on_finish=on_finish), tools=[look])

    assert await stepping.executor.run() == "Five."
    assert len(seen) == 1
    assert (seen[0].agent, seen[0].run_id, seen[0].usage.requests) == ("pilot", "run_1", 2)
    assert [each.tool.name for each in seen[0].tool_calls] == ["look"]
