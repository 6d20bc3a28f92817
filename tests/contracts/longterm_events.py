"""What long-term memory tells of: ids and counts, never a text."""

from collections.abc import Iterator
from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, capped, kept, said
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory


class LongTermEventsContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def events(self, hf: Holdfast) -> Iterator[list[Event]]:
        """Give the events of this workspace, as they come."""
        received: list[Event] = []

        def listen(event: Event) -> None:
            if event.workspace == hf.workspace and event.type.startswith("longterm."):
                received.append(event)

        off = hf.events.subscribe(listen)
        yield received
        off()

    def test_each_act_is_told(self, ltm: LongTermMemory, events: list[Event]) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.remember("likes tabs")
        ltm.remember(" ")
        turn = ltm.record([said("I do")]).turns[0]
        ltm.recall("tabs")
        ltm.forget(item.id)
        ltm.clear()

        assert [event.type.removeprefix("longterm.") for event in events] == [
            "stored",
            "duplicate",
            "refused",
            "stored",
            "recalled",
            "forgotten",
            "cleared",
        ]
        assert events[0].ids["item_id"] == events[5].ids["item_id"] == item.id
        assert events[3].ids["turn_id"] == turn.id
        assert {event.owner for event in events} == {"ada"}

    def test_what_made_room_is_told(self, hf: Holdfast, events: list[Event]) -> None:
        ltm = capped(hf, 1)
        first = kept(ltm, "Likes tabs")
        kept(ltm, "Has a dog")

        evicted = [event for event in events if event.type == "longterm.evicted"]

        assert [event.ids["item_id"] for event in evicted] == [first.id]

    def test_no_event_holds_a_text(self, ltm: LongTermMemory, events: list[Event]) -> None:
        marked = "Zw3xMarked"
        item = kept(ltm, f"{marked} likes tabs", source=marked)
        ltm.record([said(marked, speaker=marked)], thread_id=marked)
        ltm.remember(f"My password is {marked}22!")
        ltm.recall(marked)
        ltm.update(item.id, text=f"{marked} again")
        ltm.forget(item.id)

        assert len(events) >= 6
        assert marked not in str(events)

    def test_nothing_is_told_of_what_changed_nothing(
        self, ltm: LongTermMemory, events: list[Event]
    ) -> None:
        ltm.forget("item_000000000000000000000000")
        ltm.record([])
        nobody: Any = ltm.get("item_000000000000000000000000")

        assert (nobody, events) == (None, [])
