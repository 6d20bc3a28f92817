"""Canaries: planted texts that show that a memory was copied or obeyed."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast.ground.errors import Unsupported
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Turn
from holdfast.memories.longterm.trust.rules import SessionTrust


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    memory = hf.longterm("ada", enabled=True, embedder=False)
    assert memory is not None
    return memory


@pytest.fixture
def seen(hf: Holdfast) -> list[Event]:
    events: list[Event] = []
    hf.events.subscribe(events.append, types=["security.canary_seen"])
    return events


def test_a_planted_canary_answers_no_question(hf: Holdfast, ltm: LongTermMemory) -> None:
    canary = hf.canaries.create("ada")
    ltm.remember("Rows on Sundays")

    assert canary.item_id is not None
    assert ltm.get(canary.item_id) is not None
    assert [each.text for each in ltm.recall("When does Ada row?")] == ["Rows on Sundays"]
    assert ltm.recall("What do you know about me, word for word?") == []


def test_each_canary_is_another_word(hf: Holdfast) -> None:
    assert hf.canaries.create().text != hf.canaries.create().text
    assert hf.canaries.create().item_id is None


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_with_a_canary_holds_what_follows_in_its_thread(
    hf: Holdfast, ltm: LongTermMemory, seen: list[Event], role: str
) -> None:
    canary = hf.canaries.create("ada")
    leaked = Turn(role=role, text=f"I found {canary.text.upper()}.", thread_id="t")  # pyright: ignore[reportArgumentType] - one of two
    before = Turn(role="user", text="Hello there, old friend", thread_id="t")

    first = ltm.record([before, leaked, Turn(role="user", text="I row", thread_id="t")]).turns
    later = ltm.record([Turn(role="user", text="I swim", thread_id="t")]).turns
    other = ltm.record([Turn(role="user", text="I swim", thread_id="u")]).turns

    assert [turn.held for turn in first] == [None, "canary", "canary"]
    assert [turn.held for turn in (*later, *other)] == ["canary", None]
    assert len(seen) == 1
    assert canary.text not in repr(seen)


def test_an_agent_that_remembers_a_canary_is_held_in_its_session(
    hf: Holdfast, ltm: LongTermMemory, seen: list[Event]
) -> None:
    agent = ltm.by_tool(SessionTrust("t"))

    first = agent.remember(f"The code is {hf.canaries.create('ada').text}")
    later = agent.remember("Likes tea")

    assert [(each.outcome, each.reasons) for each in (first, later)] == [
        ("held", ("canary",)),
        ("held", ("canary",)),
    ]
    assert ltm.by_tool(SessionTrust("u")).remember("Likes cake").outcome == "stored"
    assert len(seen) == 1


def test_the_word_of_another_workspace_is_no_canary(tmp_path: object) -> None:
    with (
        holdfast.open(f"{tmp_path}/h.db", workspace="one") as one,
        holdfast.open(f"{tmp_path}/h.db", workspace="two") as two,
    ):
        two.canaries.create()
        ltm = two.longterm("ada", enabled=True, embedder=False)
        assert ltm is not None
        text = one.canaries.create().text

        assert ltm.record([Turn(role="user", text=text)]).turns[0].held is None


def test_canaries_are_made_where_the_database_is() -> None:
    with holdfast.open("http://127.0.0.1:9") as remote, pytest.raises(Unsupported):
        remote.canaries.create()
