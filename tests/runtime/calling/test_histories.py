"""Histories and hooks of an agent that runs alone."""

import asyncio
from typing import Any

import pytest
from runtime.calling.asked import Heard, agent, model_of, of, said

from holdfast.ground.errors import InvalidInput, NoAgentEnabled, RunFailed
from holdfast.memories.state import history
from holdfast.memories.state import history as messages
from holdfast.memories.state.message import StateLimits
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    AgentHooks,
    AgentStart,
    HistoryContext,
    InMemoryHistory,
    RunEvent,
    ToolContext,
    UserMessage,
)
from holdfast.testing.scripted import call

pytestmark = pytest.mark.anyio


class Loud:
    """A history of which only what is given is there; keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        for name, answer in answers.items():
            setattr(self, name, self._method(name, answer))

    def _method(self, name: str, answer: Any) -> Any:
        async def method(_: object, *given: Any) -> Any:
            await asyncio.sleep(0)
            self.asked.append((name, given))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method


async def test_the_users_turn_and_the_result_are_kept() -> None:
    history = InMemoryHistory()
    ada = agent(["Done."], history=history)

    result = await ada.run(UserMessage("Go.", id="msg_1"), thread_id="thread_1")

    user, made = history.turns("thread_1")
    assert (user.id, user.message and user.message.content) == ("msg_1", "Go.")
    assert made.result == result
    assert (made.run_id, user.run_id) == (result.run_id, result.run_id)


async def test_the_next_run_of_a_thread_knows_the_last() -> None:
    ada = agent(["One.", "Two."], history=InMemoryHistory())

    await ada.run("Go.", thread_id="thread_1")
    await ada.run("And?", thread_id="thread_1")

    assert said(model_of(ada).asked[1]) == [
        ("user-prompt", "Go."),
        ("text", "One."),
        ("user-prompt", "And?"),
    ]


async def test_without_a_thread_the_history_makes_one() -> None:
    state, heard = NetworkState(), Heard()

    await agent(["Done."], history=InMemoryHistory()).run("Go.", state=state, on_event=heard)

    assert state.thread_id is not None
    assert state.thread_id.startswith("thread_")
    assert {each.thread_id for each in heard.events} == {state.thread_id}


async def test_a_history_that_makes_no_threads_gets_one_all_the_same() -> None:
    state = NetworkState()

    await agent(["Done."], history=Loud(append_results=None)).run("Go.", state=state)

    assert str(state.thread_id).startswith("thread_")


async def test_a_state_that_holds_something_is_not_loaded_into() -> None:
    history = Loud(get=[], append_results=None)
    state = NetworkState(messages=[messages.user("Hello.")])

    await agent(["Done."], history=history).run("Go.", state=state, thread_id="thread_1")

    assert [name for name, _ in history.asked] == ["append_results"]


async def test_nothing_said_is_not_stored() -> None:
    history = Loud(append_user_message=None, append_results=None)

    await agent(["Done."], history=history).run("", thread_id="thread_1")

    assert [name for name, _ in history.asked] == ["append_results"]


async def test_a_run_is_loaded_begun_kept_and_ended_in_that_order() -> None:
    history = Loud(
        get=[], start_run=None, append_user_message=None, append_results=None, end_run=None
    )

    await agent(["Done."], history=history).run("Go.", thread_id="thread_1")

    assert [name for name, _ in history.asked] == [
        "get",
        "start_run",
        "append_user_message",
        "append_results",
        "end_run",
    ]
    ended = history.asked[-1][1][0]
    assert (ended.status, ended.reason, ended.extras["calls"]) == ("completed", "done", 1)


async def test_a_run_that_is_in_its_thread_is_not_run_again() -> None:
    history = InMemoryHistory()
    ada = agent(["One."], history=history)

    first = await ada.run("Go.", thread_id="thread_1", run_id="run_1")
    again = await ada.run("Go.", thread_id="thread_1", run_id="run_1")

    assert again == first
    assert len(history.turns("thread_1")) == 2


async def test_a_history_that_fails_before_anything_runs_ends_it() -> None:
    heard = Heard()
    ada = agent([], history=Loud(get=OSError("no disk")))

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", thread_id="thread_1", on_event=heard)

    assert raised.value.stop_reason == "history"
    assert isinstance(raised.value.__cause__, OSError)
    assert model_of(ada).asked == []
    assert heard.types == ["run.failed"]


async def test_a_history_that_fails_later_leaves_the_result_in_the_state() -> None:
    state = NetworkState()
    ada = agent(["Done."], history=Loud(append_results=OSError("no disk")))

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state)

    assert raised.value.stop_reason == "history"
    assert [each.id for each in state.results] == [of(raised.value).id]


@pytest.mark.parametrize(
    "history", [Loud(create_thread=7), Loud(create_thread=""), Loud(create_thread=None)]
)
async def test_a_thread_without_an_id_is_no_thread(history: Loud) -> None:
    with pytest.raises(RunFailed) as raised:
        await agent([], history=history).run("Go.")

    cause = raised.value.__cause__
    assert isinstance(cause, InvalidInput)
    assert cause.field == "create_thread"


async def test_what_a_history_gives_may_be_dicts() -> None:
    earlier = InferenceResult(agent="ada", input="Hi.", output=[messages.assistant("Hello.")])
    ada = agent(["Done."], history=Loud(get=[earlier.export()]))

    await ada.run("Go.", thread_id="thread_1")

    assert ("text", "Hello.") in said(model_of(ada).asked[0])


async def test_a_state_of_another_thread_is_refused() -> None:
    with pytest.raises(InvalidInput, match="thread_2"):
        await agent([]).run("Go.", state=NetworkState(thread_id="thread_2"), thread_id="thread_1")


@pytest.mark.parametrize("form", ["text", "dict"])
async def test_a_state_may_be_given_as_json(form: str) -> None:
    state = NetworkState(messages=[messages.user("Hello.")])
    ada = agent(["Done."])

    await ada.run("Go.", state=state.to_json() if form == "text" else state.to_dict())

    assert said(model_of(ada).asked[0])[0] == ("user-prompt", "Hello.")


@pytest.mark.parametrize("given", [7, ["state"]])
async def test_anything_else_is_no_state(given: Any) -> None:
    with pytest.raises(InvalidInput, match="state"):
        await agent([]).run("Go.", state=given)


@pytest.mark.parametrize("given", [7, None, UserMessage(7)])  # pyright: ignore[reportArgumentType]
async def test_what_is_said_is_text(given: Any) -> None:
    with pytest.raises(InvalidInput, match="input"):
        await agent([]).run(given)


def look(ctx: ToolContext) -> str:
    ctx.state.kv.update("looks", lambda old: old + 1, 0)
    return "seen"


def answer(value: object) -> Any:
    """Return a hook that answers *value*."""

    def hook(*_: object) -> object:
        return value

    return hook


def alone(_: object, run: object) -> bool:
    return run is None


async def test_before_each_request_the_hook_sees_what_is_sent() -> None:
    starts: list[AgentStart] = []
    ada = agent([call("look"), "Done."], tools=[look], hooks=AgentHooks(on_start=starts.append))

    result = await ada.run("Go.")

    assert [each.step for each in starts] == [1, 2]
    assert [history.text(each) for each in starts[1].prompt] == ["Be brief.", "Go."]
    assert (starts[0].agent, starts[0].run, starts[0].input) == (ada, None, "Go.")
    assert result.text == "Done."


async def test_a_changed_prompt_is_sent_with_that_request_alone() -> None:
    async def start(start: AgentStart) -> dict[str, Any] | None:
        changed = [history.system("Be long."), history.user("Go on.")]
        return {"prompt": changed} if start.step == 1 else None

    ada = agent([call("look"), "Done."], tools=[look], hooks=AgentHooks(on_start=start))

    result = await ada.run("Go.")

    first, second = model_of(ada).asked
    assert (first.instructions, said(first)) == ("Be long.", [("user-prompt", "Go on.")])
    assert second.instructions == "Be brief."
    assert said(second)[0] == ("user-prompt", "Go.")
    assert [history.text(each) for each in result.prompt] == ["Be long.", "Go on."]


async def test_a_changed_history_keeps_what_the_agents_own_loop_said() -> None:
    short = answer({"history": [{"type": "text", "role": "user", "content": "In short."}]})
    long = InferenceResult(agent="bob", output=[history.assistant("Long.")])
    state = NetworkState(results=[long])
    ada = agent([call("look"), "Done."], tools=[look], hooks=AgentHooks(on_start=short))

    await ada.run("Go.", state=state)

    assert said(model_of(ada).asked[1]) == [
        ("user-prompt", "In short."),
        ("user-prompt", "Go."),
        ("tool-call", "look"),
        ("tool-return", "seen"),
    ]


async def test_a_hook_may_stop_before_the_first_request() -> None:
    finished: list[InferenceResult] = []
    state = NetworkState()
    hooks = AgentHooks(on_start=lambda _: {"stop": True}, on_finish=lambda r, _: finished.append(r))
    ada = agent([], hooks=hooks)

    result = await ada.run("Go.", state=state)

    assert (result.stop_reason, result.output, result.raw) == ("hook_stop", [], "")
    assert [each.id for each in state.results] == [result.id]
    assert len(finished) == 1


async def test_a_hook_may_stop_later_with_what_there_is() -> None:
    hooks = AgentHooks(on_start=lambda start: {"stop": start.step == 2})
    ada = agent([["One.", call("look")]], tools=[look], hooks=hooks)

    result = await ada.run("Go.")

    assert (result.stop_reason, result.text) == ("hook_stop", "One.")
    assert [each.content for each in result.tool_calls] == [{"data": "seen"}]
    assert "seen" in result.raw


async def test_what_a_hook_makes_of_a_reply_stands_in_its_place() -> None:
    asked: list[str] = []

    def response(result: InferenceResult, run: object) -> InferenceResult:
        assert run is None
        asked.append(result.text)
        return result.replace(output=[*result.output[:-1], history.assistant("It is a secret.")])

    ada = agent(["The code is 7."], hooks=AgentHooks(on_response=response))

    result = await ada.run("Go.")

    assert asked == ["The code is 7."]
    assert result.text == "It is a secret."
    assert "code is 7" not in result.raw


async def test_a_hook_sees_a_reply_before_its_tools_work() -> None:
    state = NetworkState()
    looks: list[object] = []

    async def response(result: InferenceResult, _: object) -> None:
        looks.append((state.kv.get("looks"), len(result.tool_calls)))

    ada = agent(
        [["One.", call("look")], "Done."], tools=[look], hooks=AgentHooks(on_response=response)
    )

    await ada.run("Go.", state=state)

    assert looks == [(None, 0), (1, 1)]


async def test_a_hook_may_give_a_text_to_a_reply_of_calls_alone() -> None:
    def response(result: InferenceResult, _: object) -> InferenceResult | None:
        if result.output:
            return None
        return result.replace(output=[history.assistant("Looking.")])

    ada = agent([call("look"), "Done."], tools=[look], hooks=AgentHooks(on_response=response))

    result = await ada.run("Go.")

    assert result.text == "Looking.\n\nDone."
    assert [each.step for each in result.output] == [1, 2]


async def test_at_the_end_a_hook_may_change_all_but_whose_it_is() -> None:
    def finish(result: InferenceResult, _: object) -> InferenceResult:
        return result.replace(
            agent="bob", id="res_x", run_id="x", index=9, output=[history.assistant("Changed.")]
        )

    state = NetworkState()
    ada = agent(["Done."], hooks=AgentHooks(on_finish=finish))

    result = await ada.run("Go.", state=state, run_id="run_1")

    assert (result.agent, result.run_id, result.index) == ("ada", "run_1", 0)
    assert result.id != "res_x"
    assert [each.text for each in state.results] == ["Changed."]


@pytest.mark.parametrize("enabled", [False, answer(False)])
async def test_an_agent_that_is_switched_off_is_not_called(enabled: Any) -> None:
    ada = agent([], hooks=AgentHooks(enabled=enabled))

    with pytest.raises(NoAgentEnabled, match="ada"):
        await ada.run("Go.")


@pytest.mark.parametrize("enabled", [None, True, alone])
async def test_an_agent_that_is_not_switched_off_is_called(enabled: Any) -> None:
    result = await agent(["Done."], hooks=AgentHooks(enabled=enabled)).run("Go.")

    assert result.text == "Done."


def fail(*_: object) -> Any:
    raise OSError("hook broke")


WRONG: list[tuple[str, Any]] = [
    ("on_start", answer(7)),
    ("on_start", answer({"promt": []})),
    ("on_start", answer({"prompt": ["text"]})),
    ("on_start", answer({"stop": 1})),
    ("on_response", answer("text")),
    ("on_finish", answer({"output": []})),
    ("enabled", answer(None)),
]


@pytest.mark.parametrize(("name", "hook"), WRONG)
async def test_a_wrong_answer_of_a_hook_names_it(name: str, hook: Any) -> None:
    with pytest.raises(RunFailed) as raised:
        await agent(["Done."], hooks=AgentHooks(**{name: hook})).run("Go.")

    cause = raised.value.__cause__
    assert raised.value.stop_reason == "hook"
    assert isinstance(cause, InvalidInput)
    assert cause.field == name


@pytest.mark.parametrize("name", ["on_start", "on_response", "on_finish", "enabled"])
async def test_a_hook_that_raises_ends_the_call_with_its_error(name: str) -> None:
    with pytest.raises(RunFailed) as raised:
        await agent(["Done."], hooks=AgentHooks(**{name: fail})).run("Go.")

    assert raised.value.stop_reason == "hook"
    assert isinstance(raised.value.__cause__, OSError)
    assert of(raised.value).error == {"name": "OSError", "message": "hook broke"}


async def test_what_there_was_before_a_hook_raised_is_kept() -> None:
    state = NetworkState()
    ada = agent(["Done."], hooks=AgentHooks(on_finish=fail))

    with pytest.raises(RunFailed):
        await ada.run("Go.", state=state)

    assert [(each.text, each.stop_reason) for each in state.results] == [("Done.", "hook")]


async def test_a_run_cancelled_while_its_start_is_told_is_stored_as_cancelled() -> None:
    inside = asyncio.Event()

    async def stall(event: RunEvent) -> None:
        if event.type == "run.started":
            inside.set()
            await asyncio.Event().wait()

    history = InMemoryHistory()
    task = asyncio.create_task(
        agent(["Done."], history=history).run("Go.", run_id="run_1", on_event=stall)
    )
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    record = history.get_run(HistoryContext(run_id="run_1"))
    assert record is not None
    assert record.status == "cancelled"


async def test_what_nothing_foresaw_ends_an_agents_run_as_internal_too() -> None:
    history, state = InMemoryHistory(), NetworkState(limits=StateLimits(result_bytes=100))
    heard = Heard()

    result = await agent(["Done."], history=history).run(
        "Go.", state=state, on_event=heard, raises=False, run_id="run_1"
    )

    assert (result.stop_reason, result.text, heard.types[-1]) == ("internal", "Done.", "run.failed")
    record = history.get_run(HistoryContext(run_id="run_1"))
    assert record is not None
    assert (record.status, record.reason) == ("failed", "internal")
    assert (record.detail or "").startswith("LimitExceeded: ")


async def test_an_agents_run_that_ends_as_internal_raises_unless_told_otherwise() -> None:
    state = NetworkState(limits=StateLimits(result_bytes=100))

    with pytest.raises(RunFailed) as raised:
        await agent(["Done."]).run("Go.", state=state)

    assert raised.value.stop_reason == "internal"
