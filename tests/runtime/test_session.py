"""A conversation with its memories: what is known before a turn, and what is kept after it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic_ai.messages import SystemPromptPart, UserPromptPart

import holdfast
from holdfast import tools
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, RunFailed, ToolNameTaken
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import DurableEntry
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.state.result import text_of
from holdfast.runtime import Agent, AgentHooks, InMemoryHistory, Session
from holdfast.testing.scripted import Asked, ScriptedModel, Turn, call
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    memory = hf.longterm("ada", enabled=True)
    assert memory is not None
    return memory


@pytest.fixture
def closed_ltm() -> LongTermMemory:
    with holdfast.open(":memory:") as hf:
        memory = hf.longterm("ada", enabled=True)
    assert memory is not None
    return memory


def support(turns: Sequence[Turn], **fields: Any) -> Agent:
    return Agent("support", instructions="Help.", model=ScriptedModel(turns), **fields)


def asked(agent: Agent) -> list[Asked]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.asked


def parts(request: Asked) -> list[tuple[str, str]]:
    """Return what *request* said after its instructions, by who said it."""
    return [
        (part.part_kind, str(part.content))
        for message in request.messages
        for part in message.parts
        if isinstance(part, SystemPromptPart | UserPromptPart) or part.part_kind == "text"
    ]


def told(session: Session, type: str) -> list[dict[str, Any]]:
    return [each.data for each in session.events if each.type == type]


@asynccontextmanager
async def opened(agent: Agent, hf: Holdfast, **options: Any) -> AsyncGenerator[Session]:
    async with Session(agent, hf=hf, **options) as session:
        yield session


async def test_a_turn_knows_the_turns_before_it(hf: Holdfast) -> None:
    agent = support(["Hello.", "You said hi."])

    async with opened(agent, hf) as session:
        await session.send("Hi.")
        result = await session.send("What did I say?")

    assert parts(asked(agent)[1]) == [
        ("user-prompt", "Hi."),
        ("text", "Hello."),
        ("user-prompt", "What did I say?"),
    ]
    assert session.last == result


async def test_a_conversation_goes_on_under_its_id_in_another_session(hf: Holdfast) -> None:
    agent = support(["Hello.", "You said hi."])

    async with opened(agent, hf, id="thread_1") as session:
        await session.send("Hi.")
    async with opened(agent, hf, id="thread_1") as session:
        await session.send("What did I say?")

    assert parts(asked(agent)[1])[0] == ("user-prompt", "Hi.")
    assert [each.kind for each in hf.threads.turns("thread_1")] == ["user", "result"] * 2


async def test_what_the_agent_stored_is_in_the_system_text_of_the_next_conversation(
    hf: Holdfast,
) -> None:
    storing = call("memory_store", key="plan", category="core", content="She is on the gold plan.")
    agent = support([[storing], "Noted.", "You are on gold."])

    async with opened(agent, hf) as session:
        await session.send("I am on gold.")
    async with opened(agent, hf) as session:
        await session.send("Which plan am I on?")

    assert "gold plan" not in asked(agent)[0].instructions
    assert "She is on the gold plan." in asked(agent)[2].instructions
    assert asked(agent)[2].instructions.startswith("Help.")
    assert told(session, "hydrated")[0]["entries"] == ["plan"]


async def test_what_hydration_left_out_is_said_to_the_agent_and_to_the_caller(hf: Holdfast) -> None:
    durable = hf.durable("support")
    durable.set("long", "x" * 3000, category="core")
    durable.set_limits(budget=2048)
    agent = support(["Hello."])

    async with opened(agent, hf) as session:
        await session.send("Hi.")

    (omitted,) = told(session, "omitted")
    assert [(each["key"], each["reason"]) for each in omitted["entries"]] == [("long", "too_big")]
    assert "<omitted" in asked(agent)[0].instructions


async def test_conversation_entries_end_with_the_session(hf: Holdfast) -> None:
    storing = call("memory_store", key="mood", category="conversation", content="in a hurry")
    agent = support([[storing], "Noted.", [call("memory_recall", key="mood")], "It is gone."])

    async with opened(agent, hf) as session:
        noted = await session.send("Quick, please.")
    async with opened(agent, hf) as session:
        gone = await session.send("How am I?")

    assert "created" in str(noted.tool_calls)
    assert "'entry': None" in str(gone.tool_calls)


async def test_what_is_known_of_the_user_comes_just_before_the_words(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    agent = support(["Hello.", "By mail."])

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("Hi.")
        await session.send("How does Ada prefer answers?")

    *_, block, words = parts(asked(agent)[1])
    assert "Ada prefers answers by mail" in block[1]
    assert words == ("user-prompt", "How does Ada prefer answers?")
    assert len(told(session, "recalled")) == 2


async def test_the_block_is_there_in_every_request_of_a_turn(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    agent = support([[call("memory_list")], "By mail."])

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")

    assert [each.text.count("<recalled-memories>") for each in asked(agent)] == [1, 1]


async def test_what_was_recalled_is_neither_stored_nor_learnt_again(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    agent = support(["By mail."])

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")

    kept = str([each.export() for each in hf.threads.results(session.thread_id)])
    assert "recalled-memories" not in kept
    texts = [each.text for each in ltm.list("turns")]
    assert sorted(texts) == ["By mail.", "How does Ada prefer answers?"]
    assert len(told(session, "stored")[0]["turns"]) == 2


async def test_what_the_system_text_says_of_memory_is_not_kept_with_the_thread(
    hf: Holdfast,
) -> None:
    hf.durable("support").set("plan", "She is on the gold plan.", category="core")
    agent = support(["You are on gold."])

    async with opened(agent, hf) as session:
        await session.send("Which plan am I on?")

    (kept,) = hf.threads.results(session.thread_id)
    assert [text_of(each) for each in kept.prompt] == ["Help.", "Which plan am I on?"]
    assert "She is on the gold plan." in asked(agent)[0].instructions


async def test_what_the_block_has_no_room_for_is_said(hf: Holdfast, ltm: LongTermMemory) -> None:
    for day in ("Monday", "Tuesday", "Friday"):
        ltm.remember(f"Ada wants her answers by mail on {day} " + "please " * 40)
    agent = support(["By mail."])

    async with opened(agent, hf, longterm=ltm, block_budget=600) as session:
        await session.send("When does Ada want her answers by mail?")

    (recalled,) = told(session, "recalled")
    assert (len(recalled["ids"]), recalled["left_out"]) == (3, 2)


async def test_a_durable_memory_out_of_reach_stops_no_conversation_and_is_said() -> None:
    agent = support(["Hello."])
    with holdfast.open(":memory:") as hf:
        hf.close()

        async with opened(agent, hf, history=InMemoryHistory()) as session:
            result = await session.send("Hi.")

    assert result.text == "Hello."
    assert '<durable_memory unavailable="true"/>' in asked(agent)[0].instructions
    assert [each["what"] for each in told(session, "failed")] == ["hydrate"]
    assert session.hydration is None


async def test_a_user_memory_out_of_reach_stops_no_conversation_and_is_said(
    hf: Holdfast, closed_ltm: LongTermMemory
) -> None:
    agent = support(["Hello."])

    async with opened(agent, hf, longterm=closed_ltm) as session:
        result = await session.send("Hi.")

    assert result.text == "Hello."
    failed = [each["what"] for each in told(session, "failed")]
    assert failed[:2] == ["recall", "remember"]


class Slow(LongTermMemory):
    """A memory that recalls when it is let."""

    let: threading.Event

    def recall(self, *_: Any, **__: Any) -> Any:
        self.let.wait(timeout=60)
        return []


async def test_recall_is_not_waited_for_longer_than_a_turn_can_bear(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    slow = Slow(ltm.context)
    slow.let = threading.Event()
    agent = support(["Hello."])

    async with opened(agent, hf, longterm=slow) as session:
        result = await session.send("Hi.")
        slow.let.set()

    assert result.text == "Hello."
    assert told(session, "failed")[0]["error"] == "TimeoutError"


@pytest.mark.parametrize("user", [None, "ada"])
async def test_a_memory_that_is_off_is_said_to_be(hf: Holdfast, user: str | None) -> None:
    agent = support(["Hello."])

    async with opened(agent, hf, user=user) as session:
        await session.send("Hi.")

    assert len(told(session, "longterm_off")) == 1
    assert not any(name.startswith("ltm_") for name in asked(agent)[0].offered)


async def test_the_user_named_is_remembered_where_that_is_switched_on(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "true")
    agent = support(["Hello."])

    async with opened(agent, hf, user="ada", namespace="desk") as session:
        await session.send("My order is late.")

    found = hf.longterm_data("ada", namespace="desk").list("turns")
    assert {each.text for each in found} == {"My order is late.", "Hello."}
    assert "ltm_recall" in asked(agent)[0].offered


async def test_the_agent_has_the_files_of_a_store(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="Desk")
    writing = call("memory", command="create", path="/memories/faq.md", file_text="Be kind.")
    agent = support([[writing], "Written."])

    async with opened(agent, hf, store=store.id) as session:
        await session.send("Write it down.")

    memory = hf.memory_stores.memories.at(store.id, "/faq.md")
    assert memory is not None
    assert memory.content == "Be kind."


async def test_the_agent_knows_name_description_and_access_of_its_store(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="Desk <1>", description="What we agreed on.")
    agent = support(["Noted."])

    async with opened(agent, hf, store=store.id) as session:
        await session.send("Hi.")

    said = asked(agent)[0].instructions
    assert "name: Desk &lt;1&gt;" in said
    assert "description: What we agreed on." in said
    assert "mount_path: /memories" in said
    assert "access: read_write" in said
    assert "What we agreed on." not in str(list(hf.threads.turns(session.thread_id)))


async def test_a_store_that_does_not_exist_stops_no_conversation(hf: Holdfast) -> None:
    agent = support(["Hello."])

    async with opened(agent, hf, store="memstore_85ozrDgbQ0001fLdItwaAiV8") as session:
        assert (await session.send("Hi.")).text == "Hello."

    assert [each["what"] for each in told(session, "failed")] == ["store"]


async def test_a_hook_of_the_agents_own_is_asked_and_the_block_stays(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    seen: list[str] = []

    def on_start(start: Any) -> dict[str, Any]:
        seen.append(start.history[-1].content)
        return {"prompt": start.prompt}

    agent = support(["By mail."], hooks=AgentHooks(on_start=on_start))

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")

    assert "Ada prefers answers by mail" in seen[0]
    assert "Ada prefers answers by mail" in asked(agent)[0].text


async def test_a_streamed_turn_is_remembered_too(hf: Holdfast, ltm: LongTermMemory) -> None:
    agent = support(["Hello."])

    async with opened(agent, hf, longterm=ltm) as session:
        types = [event.type async for event in session.stream("Hi there.")]

    assert (types[0], types[-1]) == ("run.started", "run.completed")
    assert session.last is not None
    assert session.last.text == "Hello."
    assert len(told(session, "stored")[0]["turns"]) == 2


async def test_a_turn_that_fails_is_not_remembered_and_the_next_one_works(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    agent = support([ValueError("no"), "Hello."])

    async with opened(agent, hf, longterm=ltm) as session:
        with pytest.raises(RunFailed):
            await session.send("Hi.")
        assert session.last is None
        assert told(session, "stored") == []

        result = await session.send("Hi again.")

    assert result.text == "Hello."


async def test_turns_are_taken_one_after_another(hf: Holdfast) -> None:
    agent = support(["One.", "Two."])

    async with opened(agent, hf) as session:
        await asyncio.gather(session.send("First."), session.send("Second."))

    assert [text for _, text in parts(asked(agent)[1])] == ["First.", "One.", "Second."]


async def test_a_session_is_used_while_it_is_open(hf: Holdfast) -> None:
    session = Session(support([]), hf=hf)

    with pytest.raises(InvalidInput, match="not open"):
        await session.send("Hi.")
    async with session:
        with pytest.raises(InvalidInput, match="open already"):
            await session.__aenter__()


async def test_a_session_that_cannot_be_opened_leaves_no_run_behind(hf: Holdfast) -> None:
    agent = support([], tools=tools.durable(hf.durable("other")))
    session = Session(agent, hf=hf, id="thread_1")

    with pytest.raises(ToolNameTaken):
        await session.__aenter__()

    with hf.durable("support").run(lane="thread_1") as run:
        assert run.token > 1


@pytest.mark.parametrize("options", [{"id": "a b"}, {"block_budget": 100}])
def test_what_a_session_cannot_be_is_said_at_once(hf: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Session(support([]), hf=hf, **options)


async def test_a_session_may_be_had_through_a_server(remote: Holdfast) -> None:
    storing = call("memory_store", key="plan", category="core", content="She is on the gold plan.")
    learning = call("ltm_remember", text="Ada prefers answers by mail", kind="preference")
    agent = support([[storing, learning], "Noted.", "By mail."])
    ltm = remote.longterm("ada", enabled=True)

    async with opened(agent, remote, longterm=ltm) as session:
        await session.send("I am on gold. Answer by mail.")
    async with opened(agent, remote, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")

    assert [each.data for each in session.events if each.type == "failed"] == []
    assert "She is on the gold plan." in asked(agent)[2].instructions
    assert "Ada prefers answers by mail" in asked(agent)[2].text
    assert len(list(remote.threads.turns(session.thread_id))) == 2


async def test_a_session_whose_lane_was_taken_goes_on_without_its_tools(hf: Holdfast) -> None:
    agent = support([[call("memory_recall", key="plan")], "I cannot look it up."])

    async with opened(agent, hf, id="thread_1") as session:
        with hf.durable("support").run(lane="thread_1"):
            result = await session.send("Which plan am I on?")

    assert result.text == "I cannot look it up."
    assert "stale_run" in str(result.tool_calls)


async def test_a_turn_that_is_left_early_is_over_and_the_next_may_be_taken(hf: Holdfast) -> None:
    agent = support(["Never mind. " * 20, "Hello."])

    async with opened(agent, hf) as session:
        async with aclosing(session.stream("Hi.")) as events:
            async for event in events:
                if event.type == "text.delta":
                    break
        result = await session.send("Hi again.")

    assert result.text == "Hello."


async def test_what_an_agent_was_told_in_a_later_request_is_not_kept_either(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    agent = support([[call("ltm_forget", id="item_none")], "By mail.", "By mail, again."])

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")
        await session.send("How does Ada prefer answers, again?")

    kept = str([each.export() for each in hf.threads.results(session.thread_id)])
    assert [each.text.count("<recalled-memories>") for each in asked(agent)] == [1, 1, 1]
    assert "recalled-memories" not in kept


def given(hf: Holdfast, session: Session) -> list[Any]:
    """Return what is stored of memory with each result of the session's thread."""
    return [each.extras.get("memory") for each in hf.threads.results(session.thread_id)]


def stored(durable: DurableMemory, key: str, content: str) -> DurableEntry:
    durable.set(key, content, category="core")
    entry = durable.get(key)
    assert entry is not None
    return entry


async def test_a_result_is_stored_with_the_ids_of_what_its_prompt_held_from_memory(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    durable = hf.durable("support")
    plan = stored(durable, "plan", "She is on the gold plan.")
    long = stored(durable, "long", "x" * 3000)
    durable.set_limits(budget=2048)
    item = ltm.remember("Ada prefers answers by mail", kind="preference").stored
    assert item is not None
    agent = support(["By mail.", "You are welcome."])

    async with opened(agent, hf, longterm=ltm) as session:
        await session.send("How does Ada prefer answers?")
        await session.send("Thanks.")

    hydration = {
        "digest": session.hydration and session.hydration.digest,
        "seq": long.seq,
        "budget": 2048,
        "entries": [plan.id],
        "omitted": [{"id": long.id, "reason": "too_big"}],
    }
    first, second = given(hf, session)
    assert first == {
        "enabled": True,
        "hydration": hydration,
        "recalled": [{"id": item.id, "score": first["recalled"][0]["score"]}],
        "left_out": 0,
    }
    assert 0 < first["recalled"][0]["score"] <= 1
    assert second == {"enabled": True, "hydration": hydration, "recalled": [], "left_out": 0}
    assert not any(word in str(first) for word in ("gold", "mail", "plan", "long'"))


async def test_what_the_block_left_out_is_counted_with_the_result_and_not_named(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    for day in ("Monday", "Tuesday", "Friday"):
        ltm.remember(f"Ada wants her answers by mail on {day} " + "please " * 40)
    agent = support(["By mail."])

    async with opened(agent, hf, longterm=ltm, block_budget=600) as session:
        await session.send("When does Ada want her answers by mail?")

    (kept,) = given(hf, session)
    (recalled,) = kept["recalled"]
    shown = ltm.get(recalled["id"])
    assert shown is not None
    assert shown.text[:40] in asked(agent)[0].text
    assert kept["left_out"] == 2


async def test_a_result_without_memory_says_that_it_was_off(hf: Holdfast) -> None:
    agent = support(["Hello."])

    async with opened(agent, hf, user="ada") as session:
        await session.send("Hi.")

    assert given(hf, session) == [{"enabled": False}]


async def test_what_durable_memory_gave_is_stored_where_that_of_the_user_is_off(
    hf: Holdfast,
) -> None:
    plan = stored(hf.durable("support"), "plan", "She is on gold.")
    agent = support(["Hello."])

    async with opened(agent, hf) as session:
        await session.send("Hi.")

    (kept,) = given(hf, session)
    assert kept["enabled"] is False
    assert kept["hydration"]["entries"] == [plan.id]
    assert kept.keys() == {"enabled", "hydration"}


async def test_a_result_names_a_hundred_entries_at_most_and_counts_the_rest(hf: Holdfast) -> None:
    entries = [stored(hf.durable("support"), f"k{n}", "v") for n in range(103)]
    agent = support(["Hello."])

    async with opened(agent, hf) as session:
        await session.send("Hi.")

    (kept,) = given(hf, session)
    assert kept["hydration"]["entries"] == [each.id for each in reversed(entries[3:])]
    assert kept["hydration"]["more"] == 3


async def test_a_streamed_result_and_one_of_another_history_are_stored_with_it_too(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    history = InMemoryHistory()
    agent = support(["Hello."])

    async with opened(agent, hf, longterm=ltm, history=history) as session:
        async for _ in session.stream("Hi there."):
            pass

    (said, result) = history.turns(session.thread_id)
    assert said.kind == "user"
    assert result.result is not None
    assert result.result.extras["memory"] == {"enabled": True, "recalled": [], "left_out": 0}


async def test_what_a_result_is_stored_with_crosses_to_a_server(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    ltm.remember("Ada prefers answers by mail", kind="preference")
    agent = support(["By mail.", "As I said."])

    with serving(hf, clock=SystemClock()) as url, holdfast.open(url) as far:
        async with opened(agent, far, longterm=ltm, id="thread_1") as session:
            await session.send("How does Ada prefer answers?")
        async with opened(agent, far, longterm=ltm, id="thread_1") as again:
            await again.send("Say how Ada prefers answers once more.")

    first, second = given(hf, session)
    assert first["enabled"] is second["enabled"] is True
    assert len(first["recalled"]) == 1
    assert second["recalled"]
