"""What a call was sent: results refer to it, and it is given back from a state or a thread."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from runtime.calling.asked import agent

import holdfast
from holdfast.errors import ChecksumMismatch, HistoryGone, InvalidInput
from holdfast.memories.state import history as messages
from holdfast.memories.state.history import View
from holdfast.memories.state.message import Message
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    Agent,
    AgentHooks,
    AgentStart,
    EngineHistory,
    HistoryContext,
    InMemoryHistory,
    Network,
)
from holdfast.testing.scripted import call

pytestmark = pytest.mark.anyio

SYSTEM = "Be brief, and name the harbour of each ship. "
Pair = tuple[list[Message], list[Message]]


class Noted:
    """Notes what each call was sent, and may change it."""

    def __init__(self, change: Callable[[AgentStart], Any] | None = None) -> None:
        self.sent: list[Pair] = []
        self._change = change or unchanged

    def __call__(self, start: AgentStart) -> Any:
        changed: dict[str, Any] = self._change(start) or {}
        if start.step == 1:
            pair = (changed.get("prompt", start.prompt), changed.get("history", start.history))
            self.sent.append((list(pair[0]), list(pair[1])))
        return changed or None


def look(ship: str) -> str:
    """Return where *ship* is."""
    return f"{ship} is in Oslo."


def noted(turns: Sequence[Any], hook: Noted, **changes: Any) -> Agent:
    """Return an agent whose calls *hook* notes."""
    given = {"instructions": SYSTEM, "hooks": AgentHooks(on_start=hook), "tools": [look]}
    return agent(turns, **given | changes)


def pairs(results: Sequence[InferenceResult]) -> list[Pair]:
    """Return what the calls of *results* were sent."""
    return [(each.prompt, each.history) for each in results]


def a_question_of(size: int, number: int) -> str:
    """Return text of *size* characters that no other number has."""
    return f"{number:04} where is the ship? ".ljust(size, "~")


def unchanged(start: AgentStart) -> Any:
    """Change nothing."""
    del start


def summarised(start: AgentStart) -> Any:
    """Put one message in place of the history, from the third turn on."""
    if len(start.history) < 4:
        return None
    return {"history": [messages.user(f"{len(start.history)} before."), *start.history[-1:]]}


def recalled(start: AgentStart) -> Any:
    """Add what is remembered to the history, and another system text."""
    block = messages.system(f"Remember {len(start.history)}.")
    return {"history": [*start.history, block], "prompt": [block, *start.prompt[1:]]}


def copied(start: AgentStart) -> Any:
    """Send the same messages as others that are equal."""
    return {"history": [each.export() for each in start.history]}


CHANGES: list[Callable[[AgentStart], Any]] = [unchanged, summarised, recalled]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "view", [View(), View(budget=120), View(tools="summary"), View(exclude=["look"])]
)
async def test_what_each_call_was_sent_is_given_back(
    change: Callable[[AgentStart], Any], view: View
) -> None:
    hook, state = Noted(change), NetworkState(messages=[messages.user("Hello.")])
    turns: list[Any] = []
    for turn in range(6):
        turns += [call("look", ship=f"Ship {turn}"), f"Oslo {turn}."]
    ada = noted(turns, hook, assistant="Yes?")
    network = Network("desk", [ada], view=view)

    results = [await ada.run(f"Where {turn}?", state=state, network=network) for turn in range(6)]

    assert pairs(state.results) == pairs(results) == hook.sent
    read = NetworkState.from_json(state.to_json())
    assert pairs(read.results) == hook.sent
    assert read.results == state.results


@pytest.mark.parametrize("others", ["note", "verbatim"])
@pytest.mark.parametrize("turns", ["all", "own", "inputs"])
async def test_agents_of_a_network_get_back_what_each_of_them_was_sent(
    others: Any, turns: Any
) -> None:
    one, two = Noted(), Noted()
    first = noted(["One.", "Three."], one, name="first")
    second = noted(["Two.", "Four."], two, name="second", instructions="Answer.")

    def route(ctx: Any) -> Any:
        return ["first", "second"] if ctx.call_count == 0 else None

    view = View(others=others, turns=turns)
    network = Network("desk", [first, second], router=route, history=InMemoryHistory(), view=view)
    await network.run("Where?", thread_id="thread_1")

    run = await network.run("And now?", thread_id="thread_1")

    sent = [one.sent[0], two.sent[0], one.sent[1], two.sent[1]]
    assert pairs(run.state.results) == sent


async def test_the_system_text_is_stored_once_also_where_values_of_the_run_end_it() -> None:
    hook = Noted()
    ada = noted(["One.", "Two.", "Three."], hook)

    def route(ctx: Any) -> Any:
        ctx.state.kv.set("count", ctx.call_count)
        return "ada" if ctx.call_count < 3 else None

    run = await Network("desk", [ada], router=route).run("Go.", data={"count": 0})

    assert "count" in messages.text(run.results[2].prompt[0])
    assert pairs(run.state.results) == hook.sent
    assert run.state.to_json().count(SYSTEM) == 1


async def test_a_result_holds_no_copy_of_what_it_was_sent() -> None:
    state, ada = NetworkState(), agent(["One.", "Two.", "Three."], instructions=SYSTEM)

    for turn in range(3):
        await ada.run(f"Question {turn}?", state=state)

    first, second, third = (str(each.export()) for each in state.results)
    assert first.count(SYSTEM) == 1
    assert SYSTEM not in second + third
    assert "Question 0?" not in second + third
    assert "One." not in second + third


async def test_messages_that_a_hook_sends_again_are_not_copied() -> None:
    hook, state = Noted(copied), NetworkState()
    ada = noted(["One.", "Two.", "Three."], hook)

    for turn in range(3):
        await ada.run(f"Question {turn}?", state=state)

    assert "Question 0?" not in str(state.results[2].export())
    assert [messages.text(each) for each in state.results[2].history] == [
        "Question 0?",
        "One.",
        "Question 1?",
        "Two.",
    ]


async def test_a_state_grows_with_what_is_said_and_not_with_its_square() -> None:
    state = NetworkState()
    ada = agent([a_question_of(1_000, turn) for turn in range(60)], instructions=SYSTEM)
    sizes: list[int] = []

    for turn in range(60):
        await ada.run(a_question_of(1_000, turn), state=state)
        sizes.append(len(state.to_json()))

    assert sizes[59] <= 4 * sizes[19]
    assert sizes[59] - sizes[58] <= 1.05 * (sizes[20] - sizes[19])


async def test_a_thread_takes_room_for_what_was_said(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "threads.db") as hf:
        answers = [a_question_of(500, turn) for turn in range(40)]
        ada = agent(answers, instructions=SYSTEM, history=EngineHistory(hf))
        for turn in range(40):
            await ada.run(a_question_of(500, turn), thread_id="thread_1")
        stored = [str(each.export()) for each in hf.threads.turns("thread_1")]

    said = 40 * 2 * 500
    assert sum(map(len, stored)) <= 6 * said
    assert sum(each.count(SYSTEM) for each in stored) == 1


@pytest.mark.parametrize("alone", [False, True])
async def test_what_was_forgotten_is_not_given_back(alone: bool) -> None:
    state, ada = NetworkState(), agent(["One.", "Two.", "Three."], instructions=SYSTEM)
    for turn in range(3):
        await ada.run(f"Question {turn}?", state=state)
    kept = state.results
    left = [kept[2]] if alone else [kept[0], kept[2]]

    other = NetworkState(results=left)

    with pytest.raises(HistoryGone) as gone:
        _ = other.results[-1].history
    assert gone.value.id == kept[2].id
    assert len(kept[2].history) == 4


async def test_a_result_by_itself_gives_back_what_it_alone_holds() -> None:
    state, ada = NetworkState(), agent(["One.", "Two."], instructions=SYSTEM)
    first = await ada.run("Go.", state=state)
    second = await ada.run("On.", state=state)

    assert InferenceResult.from_dict(first.export()).prompt == first.prompt
    with pytest.raises(HistoryGone):
        _ = InferenceResult.from_dict(second.export()).prompt


async def test_an_agent_that_is_forgotten_takes_along_what_others_were_sent_of_it() -> None:
    with holdfast.open(":memory:") as hf:
        history = EngineHistory(hf)
        await agent(["A secret."], name="eve", history=history).run("Tell.", thread_id="t")
        await agent(["Told."], name="ada", history=history).run("And?", thread_id="t")

        hf.forget_agent("eve")

        (left,) = hf.threads.results("t")
        assert "A secret." not in str(left.export())
        with pytest.raises(HistoryGone):
            _ = left.history


async def test_no_limit_is_on_what_was_said_in_all() -> None:
    limits = holdfast.StateLimits(result_bytes=8_000)
    state = NetworkState(limits=limits)
    ada = agent([a_question_of(1_000, turn) for turn in range(30)])

    for turn in range(30):
        await ada.run(a_question_of(1_000, turn), state=state)

    assert len(state.results[-1].history) == 58


def test_a_result_of_the_earlier_format_is_read() -> None:
    said = [messages.user("Before."), messages.assistant("Yes?")]
    asked = [messages.system("You write."), messages.user("Write.")]
    now = InferenceResult(agent="writer", input="Write.").export()
    del now["seen"], now["checksum"]
    before = now | {"prompt": [m.export() for m in asked], "history": [m.export() for m in said]}
    canonical = json.dumps(before, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    before["checksum"] = f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"

    with pytest.raises(ChecksumMismatch):
        InferenceResult.from_dict(before | {"prompt": []})
    read = InferenceResult.from_dict(before)

    assert (read.prompt, read.history) == (asked, said)
    assert InferenceResult.from_dict(read.export()) == read
    with pytest.raises(InvalidInput):
        InferenceResult.from_dict({**read.export(), "prompt": []}, verify=False)


async def test_what_is_said_while_another_run_is_in_the_thread_is_given_back() -> None:
    history, hooks = InMemoryHistory(), (Noted(), Noted())
    one, two = (noted(["A.", "B."], hook, name="one", history=history) for hook in hooks)
    await one.run("First?", thread_id="t")

    async def ask() -> str:
        await two.run("Between?", thread_id="t")
        return "asked"

    asking = one.replace(tools=[ask], model=agent([call("ask"), "C."]).model)
    await asking.run("Second?", thread_id="t")

    sent = {
        each.input: (each.prompt, each.history)
        for each in NetworkState(results=history.get(_of("t"))).results
    }
    assert sent["Between?"] == hooks[1].sent[0]
    assert sent["Second?"] == hooks[0].sent[1]


def _of(thread: str) -> Any:
    return HistoryContext(run_id="run_1", thread_id=thread)
