"""An agent that stands alone, with a history: what it loads, what it keeps, what runs again."""

import asyncio
from typing import Any

import pytest
from runtime.calling.asked import Heard, agent, model_of, of, said

from holdfast.ground.errors import InvalidInput, RunFailed
from holdfast.memories.state import history as messages
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import InMemoryHistory, UserMessage

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
    assert (ended.status, ended.stop_reason, ended.calls) == ("completed", "done", 1)


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

    assert raised.value.stop_reason == "history_error"
    assert isinstance(raised.value.__cause__, OSError)
    assert model_of(ada).asked == []
    assert heard.types == ["run.failed"]


async def test_a_history_that_fails_later_leaves_the_result_in_the_state() -> None:
    state = NetworkState()
    ada = agent(["Done."], history=Loud(append_results=OSError("no disk")))

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", state=state)

    assert raised.value.stop_reason == "history_error"
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
