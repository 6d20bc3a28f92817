"""What is sent with a request, and in which order."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from runtime.calling.asked import agent, among, came_back, model_of, said

from holdfast.memories.state import history
from holdfast.memories.state.history import View
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, UserMessage
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
