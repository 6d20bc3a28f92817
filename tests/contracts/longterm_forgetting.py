"""What holds once something was forgotten."""

from typing import Any

from contracts.longterm_given import (
    GivenAUser,
    items,
    kept,
    memory_of,
    said,
    texts,
    turns,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory


class LongTermForgettingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_is_forgotten_is_gone(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs")

        gone = ltm.forget(item.id)

        assert (gone.items, gone.turns, bool(gone)) == ((item.id,), (), True)
        assert ltm.get(item.id) is None
        assert ltm.recall("tabs", min_relevance=0) == items(ltm) == []
        assert ltm.status().items == 0

    def test_forgetting_again_is_false_and_no_error(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.forget(item.id)

        assert not ltm.forget(item.id)
        assert not ltm.forget("nonsense")

    def test_what_is_anothers_is_not_there(
        self, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        item = kept(ltm, "Likes tabs")
        other.remember("Likes spaces")

        assert not other.forget(item.id)
        assert items(ltm) == ["Likes tabs"]

    def test_with_an_item_go_the_turns_it_came_from(self, ltm: LongTermMemory) -> None:
        first, second, third = ltm.record([said("One"), said("Two"), said("Three")]).turns
        item = kept(ltm, "Counted", turns=[first.id, second.id])

        gone = ltm.forget(item.id)

        assert gone.turns == (first.id, second.id)
        assert turns(ltm) == ["Three"]
        assert ltm.get(third.id) == third

    def test_with_a_turn_go_the_items_that_came_from_it_alone(self, ltm: LongTermMemory) -> None:
        first, second = ltm.record([said("One"), said("Two")]).turns
        alone = kept(ltm, "Likes tabs", turns=[first.id])
        both = kept(ltm, "Has a dog", turns=[first.id, second.id])

        gone = ltm.forget(first.id)
        left: Any = ltm.get(both.id)

        assert (gone.items, gone.turns) == ((alone.id,), (first.id,))
        assert items(ltm) == ["Has a dog"]
        assert left.turns == (second.id,)

    def test_items_of_a_turn_that_goes_with_an_item_go_too(self, ltm: LongTermMemory) -> None:
        turn = ltm.record([said("One")]).turns[0]
        first = kept(ltm, "Likes tabs", turns=[turn.id])
        second = kept(ltm, "Has a dog", turns=[turn.id])

        assert ltm.forget(first.id).items == (first.id, second.id)
        assert items(ltm) == turns(ltm) == []

    def test_a_forgotten_turn_leaves_no_trace_in_its_neighbours(self, ltm: LongTermMemory) -> None:
        turn, _ = ltm.record([said("We went to the lake"), said("It was cold")]).turns
        assert "It was cold" in texts(ltm.recall("lake"))

        ltm.forget(turn.id)

        assert ltm.recall("lake") == []

    def test_who_remembers_it_again_means_it(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.forget(item.id)

        again = ltm.remember("Likes tabs")

        assert again.outcome == "stored"
        assert again.stored is not None
        assert again.stored.id != item.id
        assert texts(ltm.recall("tabs")) == ["Likes tabs"]

    def test_clearing_takes_all_of_this_collection_alone(
        self, hf: Holdfast, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        kept(ltm, "Likes tabs")
        ltm.record([said("One"), said("Two")], thread_id="t1")
        kept(other, "Likes spaces")
        work = memory_of(hf, "ada", namespace="work")
        kept(work, "Likes meetings")

        cleared = ltm.clear()

        assert (cleared.items, cleared.turns) == (1, 2)
        assert items(ltm) == turns(ltm) == ltm.recall("tabs") == []
        assert items(other) == ["Likes spaces"]
        assert items(work) == ["Likes meetings"]
        assert ltm.clear().items == 0

    def test_a_cleared_collection_is_used_again(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        ltm.clear()

        kept(ltm, "Likes spaces")

        assert texts(ltm.recall("spaces")) == ["Likes spaces"]
        assert ltm.recall("tabs") == []

    def test_a_person_is_forgotten_everywhere(
        self, hf: Holdfast, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        work = memory_of(hf, "ada", namespace="work", workspace_id="w1")
        for memory in (ltm, work, other):
            kept(memory, "Likes tabs", turns=[memory.record([said("I do")]).turns[0].id])
            memory.recall("tabs")

        report = hf.forget_user("ada")

        assert (report.counts["ltm_items"], report.counts["ltm_turns"]) == (2, 2)
        assert report.counts["ltm_collections"] == 2
        for memory in (ltm, work):
            assert items(memory) == turns(memory) == memory.recall("tabs") == []
        assert items(other) == ["Likes tabs"]
        assert hf.forget_user("ada").counts["ltm_items"] == 0

    def test_a_person_who_was_forgotten_may_come_back(
        self, hf: Holdfast, ltm: LongTermMemory
    ) -> None:
        kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        hf.forget_user("ada")

        kept(ltm, "Likes spaces")

        assert items(ltm) == texts(ltm.recall("spaces")) == ["Likes spaces"]
