"""Calls of an agent: the requests that are sent, the events, and the ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from runtime.calling.asked import (
    Heard,
    agent,
    among,
    came_back,
    contents,
    error_of,
    model_of,
    of,
    said,
)

from holdfast.ground.errors import InvalidInput, NoModel, RunFailed, ToolNameTaken
from holdfast.memories.run.records.event import LIVE
from holdfast.memories.state import history
from holdfast.memories.state.history import View
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, RunEvent, ToolContext, UserMessage
from holdfast.runtime.inference.call import AgentCall
from holdfast.testing.scripted import ScriptedModel, call, thought

pytestmark = pytest.mark.anyio


def told(text: str, *, by: str, asked: str = "", run_id: str | None = None) -> InferenceResult:
    """Return the result of a call of *by* that said *text*."""
    output: list[Message] = [TextMessage(role="assistant", content=text, agent=by, step=1)]
    return InferenceResult(agent=by, input=asked, output=output, run_id=run_id)


async def test_the_system_text_is_sent_and_not_kept_in_the_exchange() -> None:
    ada = agent(["Done."])

    result = await ada.run("Go.")

    assert model_of(ada).asked[0].instructions == "Be brief."
    assert "Be brief." not in result.raw
    assert history.text(result.prompt[0]) == "Be brief."


async def test_a_users_system_prompt_follows_the_agents_own() -> None:
    ada = agent(["Done."])

    await ada.run(UserMessage("Go.", system_prompt="Speak Norwegian."))

    assert model_of(ada).asked[0].instructions == "Be brief.\n\nSpeak Norwegian."


async def _late(run: object) -> str:
    return f"Run: {run}"


def _soon(run: object) -> str:
    return f"Run: {run}"


@pytest.mark.parametrize("instructions", [_soon, _late])
async def test_instructions_may_be_a_function_of_the_run_which_is_none_alone(
    instructions: Callable[[Any], Any],
) -> None:
    ada = agent(["Done."], instructions=instructions)

    await ada.run("Go.")

    assert model_of(ada).asked[0].instructions == "Run: None"


async def test_turns_of_earlier_runs_go_before_the_input_and_those_of_this_run_after() -> None:
    state = NetworkState(
        messages=[history.user("Opening.")],
        results=[
            told("Earlier.", by="ada", asked="Before.", run_id="run_0"),
            told("Found it.", by="bob", asked="Go.", run_id="run_1"),
        ],
    )
    ada = agent(["Done."], assistant="Yes?")

    await AgentCall(ada, among("Go.", state=state, id="run_1"), index=1).made()

    assert said(model_of(ada).asked[0]) == [
        ("text", "Yes?"),
        ("user-prompt", "Opening."),
        ("user-prompt", "Before."),
        ("text", "Earlier."),
        ("user-prompt", "Go."),
        ("user-prompt", '<agent name="bob">\nFound it.\n</agent>'),
    ]


async def test_what_an_agent_said_in_this_run_follows_the_input_and_is_closed() -> None:
    state = NetworkState(results=[told("First.", by="ada", asked="Go.", run_id="run_1")])
    ada = agent(["Done."])

    await AgentCall(ada, among("Go.", state=state, id="run_1"), index=1).made()

    assert said(model_of(ada).asked[0]) == [
        ("user-prompt", "Go."),
        ("text", "First."),
        ("user-prompt", "Continue."),
    ]


async def test_what_a_budget_leaves_out_is_told() -> None:
    results = [told("x" * 100, by="ada", run_id=f"run_{n}") for n in range(3)]
    run = among("Go.", state=NetworkState(results=results), view=View(budget=250))
    ada = agent(["Done."])

    await AgentCall(ada, run).made()

    assert said(model_of(ada).asked[0])[:-1] == [("text", "x" * 100), ("text", "x" * 100)]
    assert [len(each.omitted) for each in run.omitted] == [1]


async def test_a_request_never_ends_with_an_agents_words() -> None:
    ada = agent(["Done."], assistant="Yes?")

    result = await ada.run("")

    assert said(model_of(ada).asked[0]) == [("text", "Yes?"), ("user-prompt", "Continue.")]
    assert "Continue." not in str(result.export())


async def test_nothing_said_is_not_sent() -> None:
    ada = agent(["Done."])

    result = await ada.run("")

    assert said(model_of(ada).asked[0]) == []
    assert result.text == "Done."


async def test_what_the_model_said_before_goes_back_as_it_came() -> None:
    first = ModelResponse([ThinkingPart("Hm.", signature="sealed"), TextPart("One."), call("look")])

    def look() -> str:
        return "seen"

    ada = agent([first, "Two.", "Three."], tools=[look])
    state = NetworkState()

    await ada.run("Go.", state=state)
    await ada.run("And?", state=state)

    sent = model_of(ada).asked[2].messages
    assert isinstance(sent[1], ModelResponse)
    assert sent[1].parts == first.parts
    assert [kind for kind, _ in said(model_of(ada).asked[2])] == [
        "user-prompt",
        "thinking",
        "text",
        "tool-call",
        "tool-return",
        "text",
        "user-prompt",
    ]


async def test_what_a_hook_took_out_of_a_result_does_not_go_back() -> None:
    ada = agent(["The secret is 7.", "Done."])
    state = NetworkState()
    first = await ada.run("Go.")
    state.append_result(first.replace(output=[history.assistant("It is kept.")]))

    await ada.run("And?", state=state)

    assert "secret" not in model_of(ada).asked[1].text
    assert "It is kept." in model_of(ada).asked[1].text


async def test_failed_calls_go_back_as_failed() -> None:
    def broken() -> None:
        raise ValueError("no")

    ada = agent([[thought("Hm."), call("broken")], "Done.", "Again."], tools=[broken])
    state = NetworkState()

    await ada.run("Go.", state=state)
    await ada.run("And?", state=state)

    back = came_back(model_of(ada).asked[2].messages)
    assert [(each.outcome, each.content) for each in back] == [("failed", "ValueError: no")]
    assert "thinking" in [kind for kind, _ in said(model_of(ada).asked[2])]


async def test_another_agents_calls_are_told_in_a_note() -> None:
    state = NetworkState()
    bob = agent([call("look", place="home"), "Seen."], name="bob", tools=[_look])
    ada = agent(["Done."])

    await bob.run("Go.", state=state)
    await ada.run("And?", state=state)

    text = model_of(ada).asked[0].text
    assert '<agent name="bob">' in text
    assert '[tool look] {"place":"home"}' in text


def _look(place: str) -> str:
    return f"nothing at {place}"


_look.__name__ = "look"


async def test_an_opening_with_a_system_message_keeps_it_there() -> None:
    state = NetworkState(messages=[history.system("Rules."), history.user("Hello.")])
    ada = agent(["Done."])

    await ada.run("Go.", state=state)

    request = model_of(ada).asked[0].messages[0]
    assert isinstance(request, ModelRequest)
    assert [type(each) for each in request.parts] == [
        SystemPromptPart,
        UserPromptPart,
        UserPromptPart,
    ]
    assert model_of(ada).asked[0].instructions == "Be brief."


async def test_calls_of_the_opening_go_back_as_calls() -> None:
    state = NetworkState(
        messages=[
            history.user("Hi."),
            history.call("call_1", "look", {"place": "home"}),
            history.result("call_1", "look", {"place": "home"}, data={"seen": 1}),
            history.assistant("Seen."),
        ]
    )
    ada = agent(["Done."])

    await ada.run("Go.", state=state)

    assert said(model_of(ada).asked[0]) == [
        ("user-prompt", "Hi."),
        ("tool-call", "look"),
        ("tool-return", {"seen": 1}),
        ("text", "Seen."),
        ("user-prompt", "Go."),
    ]


async def test_the_result_says_what_was_sent() -> None:
    state = NetworkState(
        messages=[history.user("Hello.")], results=[told("Earlier.", by="ada", asked="Before.")]
    )

    result = await agent(["Done."], assistant="Yes?").run("Go.", state=state)

    assert [history.text(each) for each in result.prompt] == ["Be brief.", "Yes?", "Hello.", "Go."]
    assert [history.text(each) for each in result.history] == ["Before.", "Earlier."]


@pytest.mark.parametrize(
    ("choice", "forced"), [("auto", None), ("any", "required"), ("look", ["look"])]
)
async def test_a_choice_of_tool_is_forced_on_the_first_request_only(
    choice: str, forced: Any
) -> None:
    ada = agent(
        [call("look", place="home"), "Done."],
        tools=[_look],
        tool_choice=choice,
        model_settings={"temperature": 0.5},
    )

    await ada.run("Go.")

    first, second = (each.settings or {} for each in model_of(ada).asked)
    assert first.get("tool_choice") == forced
    assert "tool_choice" not in second
    assert first.get("temperature") == second.get("temperature") == 0.5


async def test_any_tool_is_none_where_there_are_none() -> None:
    ada = agent(["Done."], tool_choice="any")

    result = await ada.run("Go.")

    assert result.text == "Done."


async def test_the_model_given_goes_before_the_agents_own() -> None:
    other = ScriptedModel(["Other."])

    result = await Agent("ada", instructions="", model=ScriptedModel([])).run("Go.", model=other)

    assert (result.text, result.model) == ("Other.", "scripted")


def keep(ctx: ToolContext, word: str) -> str:
    ctx.state.kv.set("word", word)
    return "kept"


TURNS: list[Any] = [[thought("Hm."), "One.", call("keep", word="it", call_id="call_1")], "x" * 100]


async def test_all_that_happens_is_told_in_order() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    assert heard.types == [
        "run.started",
        "agent.started",
        "model.requested",
        "reasoning.delta",
        "text.delta",
        "model.responded",
        "tool.called",
        "value.changed",
        "tool.returned",
        "model.requested",
        "text.delta",
        "text.delta",
        "text.delta",
        "model.responded",
        "agent.finished",
        "run.completed",
    ]
    stored = [each.seq for each in heard.events if each.type not in LIVE]
    assert stored == list(range(1, len(stored) + 1))


async def test_deltas_of_a_step_are_its_text() -> None:
    heard = Heard()

    result = await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    told = {1: "", 2: ""}
    for event in heard.of("text.delta"):
        told[event.data["step"]] += event.data["delta"]
    assert list(told.values()) == contents(result)


async def test_a_model_that_cannot_stream_gives_one_delta() -> None:
    scripted, heard = ScriptedModel(["x" * 100]), Heard()
    assert scripted.function is not None
    model = FunctionModel(scripted.function)

    await agent([], model=model).run("Go.", on_event=heard)

    assert [each.data["delta"] for each in heard.of("text.delta")] == ["x" * 100]


async def test_tools_are_told_of_with_what_they_got_and_gave() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", run_id="run_1", on_event=heard)

    called, returned = heard.of("tool.called")[0], heard.of("tool.returned")[0]
    assert (called.agent, called.call_id, called.run_id) == ("ada", "call_1", "run_1")
    assert called.data == {"name": "keep", "input": {"word": "it"}}
    assert returned.data["content"] == {"data": "kept"}
    assert isinstance(returned.data["ms"], int)


async def test_a_changed_value_is_told_without_the_value() -> None:
    heard = Heard()

    await agent(TURNS, tools=[keep]).run("Go.", on_event=heard)

    changed = heard.of("value.changed")[0]
    assert changed.data == {"key": "word", "version": 1, "agent": "ada"}
    assert (changed.agent, changed.call_id) == ("ada", "call_1")


async def test_the_traceback_of_a_tool_is_told_and_not_kept() -> None:
    def broken() -> None:
        raise KeyError("nothing")

    heard = Heard()

    result = await agent([call("broken"), "Done."], tools=[broken]).run("Go.", on_event=heard)

    assert "in broken" in heard.of("tool.returned")[0].data["traceback"]
    assert "in broken" not in str(result.export())


async def test_calls_that_never_reach_a_tool_are_told_too() -> None:
    heard = Heard()

    await agent([call("jump"), "Done."]).run("Go.", on_event=heard)

    assert heard.of("tool.called")[0].data["name"] == "jump"
    assert heard.of("tool.returned")[0].data["content"]["error"]["kind"] == "unknown_tool"


async def test_the_last_event_tells_how_it_ended() -> None:
    heard = Heard()

    await agent([ValueError("no")]).run("Go.", on_event=heard, raises=False)

    last = heard.events[-1]
    assert (last.type, last.data["reason"]) == ("run.failed", "model_error")
    assert last.data["error"] == {"name": "ValueError", "message": "no"}
    assert sum(each.startswith("run.") for each in heard.types) == 2


async def test_an_event_goes_as_a_dict() -> None:
    heard = Heard()

    await agent(["Done."]).run("Go.", run_id="run_1", thread_id="thread_1", on_event=heard)

    told = heard.events[0].to_dict()
    assert told.pop("at") == heard.events[0].at > 1_600_000_000_000
    assert told == {
        "type": "run.started",
        "seq": 1,
        "run_id": "run_1",
        "thread_id": "thread_1",
        "network": None,
        "part": None,
        "agent": None,
        "call_id": None,
        "data": {"kind": "agent", "name": "ada", "inputs": []},
    }


async def test_a_stream_gives_the_same_events() -> None:
    heard = Heard()
    ada = agent(TURNS, tools=[keep])

    streamed = [each async for each in ada.stream("Go.", on_event=heard)]

    assert streamed == heard.events


async def test_a_stream_raises_after_its_last_event() -> None:
    seen: list[RunEvent] = []

    async def read() -> None:
        async for event in agent([ValueError("no")]).stream("Go."):
            seen.append(event)  # noqa: PERF401 - it raises at the end

    with pytest.raises(RunFailed):
        await read()

    assert seen[-1].type == "run.failed"


async def test_a_stream_that_is_told_not_to_raise_just_ends() -> None:
    ada = agent([ValueError("no")])

    types = [each.type async for each in ada.stream("Go.", raises=False)]

    assert types[-1] == "run.failed"


async def test_leaving_a_stream_early_cancels_the_run_and_keeps_what_is_finished() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    state = NetworkState()
    events = agent([["One.", call("wait")]], tools=[wait]).stream("Go.", state=state)
    async for event in events:
        if event.type == "tool.called":
            break
    await events.aclose()

    assert [(each.text, each.stop_reason) for each in state.results] == [("One.", "cancelled")]


async def test_a_slow_reader_is_waited_for() -> None:
    turns = ["x" * 40 * 2000]
    seen: list[int] = []

    async for event in agent(turns).stream("Go."):
        seen.append(event.seq)
        await asyncio.sleep(0)

    assert seen == sorted(seen)
    assert len(seen) > 2000


async def test_an_onlooker_may_be_awaitable() -> None:
    seen: list[str] = []

    async def look(event: RunEvent) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)

    await agent(["Done."]).run("Go.", on_event=look)

    assert seen[-1] == "run.completed"


async def test_an_onlooker_that_raises_breaks_nothing() -> None:
    def look(event: RunEvent) -> None:
        raise OSError(event.type)

    result = await agent(["Done."]).run("Go.", on_event=look)

    assert isinstance(result, InferenceResult)
    assert result.stop_reason == "done"


async def test_nothing_is_streamed_where_nobody_looks() -> None:
    class Plain(ScriptedModel):
        def request_stream(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nobody looks")

    result = await Agent("ada", instructions="", model=Plain(["Done."])).run("Go.")

    assert result.text == "Done."


def look() -> str:
    return "seen"


async def test_a_reply_without_calls_ends_it() -> None:
    state = NetworkState()

    result = await agent(["Done."]).run("Go.", state=state)

    assert (result.stop_reason, result.text, result.error) == ("done", "Done.", None)
    assert [each.id for each in state.results] == [result.id]


@pytest.mark.parametrize("reply", [ModelResponse([]), "", thought("Hm.")])
async def test_a_reply_without_a_word_ends_it_too(reply: Any) -> None:
    result = await agent([reply]).run("Go.")

    assert (result.stop_reason, result.output, result.usage.requests) == ("done", [], 1)


async def test_one_request_is_made_and_its_tools_work() -> None:
    with pytest.raises(RunFailed) as raised:
        await agent([["One.", call("look")]], tools=[look]).run("Go.", max_iterations=1)

    result = of(raised.value)
    assert (result.stop_reason, result.text) == ("max_iterations", "One.")
    assert [each.content for each in result.tool_calls] == [{"data": "seen"}]
    assert "seen" in result.raw


async def test_one_request_that_asks_for_nothing_is_done() -> None:
    assert (await agent(["Done."]).run("Go.", max_iterations=1)).stop_reason == "done"


async def test_twenty_requests_are_made_unless_told_otherwise() -> None:
    ada = agent([call("look") for _ in range(30)], tools=[look])

    result = await ada.run("Go.", raises=False)

    assert (result.stop_reason, len(model_of(ada).asked)) == ("max_iterations", 20)


@pytest.mark.parametrize("most", [0, -1, 1.5, "3", True])
async def test_a_bound_is_a_whole_number_from_one_or_none(most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_iterations"):
        await agent([]).run("Go.", max_iterations=most)


async def test_a_provider_that_fails_ends_it_with_what_it_said() -> None:
    state = NetworkState()
    ada = agent(
        [[call("look")], ModelHTTPError(529, "scripted", {"error": "overloaded"})], tools=[look]
    )

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state)

    result = state.results[0]
    assert raised.value.stop_reason == result.stop_reason == "model_error"
    assert isinstance(raised.value.__cause__, ModelHTTPError)
    assert result.error is not None
    assert "529" in str(result.error["message"])
    assert [each.content for each in result.tool_calls] == [{"data": "seen"}]


async def test_what_failed_with_nothing_in_it_is_not_kept() -> None:
    state = NetworkState()

    result = await agent([ValueError("no")]).run("Go.", state=state, raises=False)

    assert (result.stop_reason, state.results) == ("model_error", [])


async def test_a_limit_on_usage_ends_it() -> None:
    ada = agent([call("look"), call("look")], tools=[look])

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", usage_limits=UsageLimits(request_limit=1))

    assert raised.value.stop_reason == "budget"
    assert isinstance(raised.value.__cause__, UsageLimitExceeded)
    assert len(of(raised.value).tool_calls) == 1


async def test_there_is_no_limit_on_usage_unless_one_is_given() -> None:
    ada = agent([*(call("look") for _ in range(60)), "Done."], tools=[look])

    assert (await ada.run("Go.", max_iterations=None)).usage.requests == 61


async def test_time_that_runs_out_ends_it_with_what_there_is() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    state = NetworkState()
    ada = agent([["One.", call("look"), call("wait")]], tools=[look, wait])

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state, timeout=2)

    first, second = state.results[0].tool_calls
    assert raised.value.stop_reason == state.results[0].stop_reason == "timeout"
    assert first.content == {"data": "seen"}
    assert error_of(second)["kind"] == "interrupted"


async def test_a_slow_model_is_not_waited_for_either() -> None:
    async def never(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    result = await Agent("ada", instructions="", model=ScriptedModel(never)).run(
        "Go.", timeout=0.02, raises=False
    )

    assert result.stop_reason == "timeout"


async def test_a_cancelled_call_keeps_what_is_finished_and_goes_on_cancelled() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    state, heard = NetworkState(), Heard()
    ada = agent([["One.", call("look"), call("wait")]], tools=[look, wait])
    task = asyncio.create_task(ada.run("Go.", state=state, on_event=heard))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each.text, each.stop_reason) for each in state.results] == [("One.", "cancelled")]
    assert heard.types[-1] == "run.cancelled"


async def test_an_interrupted_result_can_be_gone_on_from() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    state = NetworkState()
    ada = agent([[call("look"), call("wait")], "Done."], tools=[look, wait])
    task = asyncio.create_task(ada.run("Go.", state=state))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])

    result = await ada.run("And?", state=state)

    assert result.text == "Done."
    assert "interrupted" in model_of(ada).asked[1].text


async def test_nobody_to_ask_is_said_before_anything_is_stored() -> None:
    state, heard = NetworkState(), Heard()

    with pytest.raises(NoModel, match="ada") as raised:
        await Agent("ada", instructions="").run("Go.", state=state, on_event=heard)

    assert "default_model" in str(raised.value)
    assert (state.results, heard.events) == ([], [])


async def test_a_tool_that_is_to_be_chosen_and_comes_from_no_toolset_is_refused() -> None:
    ada = agent([], toolsets=[FunctionToolset[Any]([look])], tool_choice="jump")

    with pytest.raises(InvalidInput, match="there are: look"):
        await ada.run("Go.")


async def test_names_that_clash_with_a_toolset_are_refused() -> None:
    ada = agent([], tools=[look], toolsets=[FunctionToolset[Any]([look])])

    with pytest.raises(ToolNameTaken, match="look"):
        await ada.run("Go.")


async def test_a_failed_run_may_be_returned() -> None:
    result = await agent([ValueError("no")]).run("Go.", raises=False)

    assert isinstance(result, InferenceResult)
    assert result.error == {"name": "ValueError", "message": "no"}


async def test_usage_is_of_this_call() -> None:
    ada = agent([call("look"), "Done.", "Again."], tools=[look])

    first, second = await ada.run("Go."), await ada.run("Go.")

    assert (first.usage.requests, first.usage.tool_calls) == (2, 1)
    assert (second.usage.requests, second.usage.tool_calls) == (1, 0)


async def test_many_calls_of_one_agent_do_not_meet() -> None:
    async def answer(asked: Any) -> str:
        await asyncio.sleep(0)
        return asked.text.split()[-1]

    ada = Agent("ada", instructions="", model=ScriptedModel(answer))

    results = await asyncio.gather(*(ada.run(f"Say {n}") for n in range(20)))

    assert [each.text for each in results] == [str(n) for n in range(20)]


def test_plain_code_may_call_it() -> None:
    assert agent(["Done."]).run_sync("Go.").text == "Done."


@pytest.mark.parametrize("run_id", ["my run", "x" * 129])
async def test_an_id_of_a_run_is_a_word(run_id: str) -> None:
    with pytest.raises(InvalidInput, match="run_id"):
        await agent([]).run("Go.", run_id=run_id)
