"""What holds of recalling."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.longterm_items import (
    GivenAUser,
    bad,
    kept,
    memory_of,
    said,
    texts,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Weights
from holdfast.testing.fakes import FrozenClock


class LongTermRecallingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_answers_is_found_with_its_reason(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Prefers tabs over spaces", kind="preference")
        kept(ltm, "Was born in Lisbon")

        found = ltm.recall("tabs or spaces?")

        assert texts(found) == ["Prefers tabs over spaces"]
        assert (found[0].item, found[0].turn, found[0].id) == (item, None, item.id)
        assert found[0].neighbours is None
        assert found[0].why["terms"]
        assert "tab" in str(found[0].why["text"])
        for number in (found[0].score, found[0].similarity, found[0].relevance):
            assert 0 < number <= 1

    def test_nothing_is_found_where_nothing_is(self, ltm: LongTermMemory) -> None:
        assert ltm.recall("tabs") == []
        assert ltm.status().items == 0

    def test_what_has_nothing_to_do_with_it_is_not_recalled(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Prefers tabs over spaces")

        assert ltm.recall("What is the weather like on Mars?") == []
        assert ltm.recall("") == ltm.recall("the of and") == []

    def test_a_turn_comes_with_those_beside_it(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Good evening"), said("The lake was frozen"), said("How cold")])
        ltm.record([said("Elsewhere entirely")], thread_id="t2")

        found = ltm.recall("frozen lake", k=1)[0]

        assert found.turn is not None
        assert found.turn.text == "The lake was frozen"
        assert found.neighbours is not None
        assert texts(each for each in found.neighbours if each) == ["Good evening", "How cold"]

    def test_a_turn_at_the_end_has_nobody_after_it(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Nothing much"), said("The lake was frozen")], thread_id="t1")
        ltm.record([said("Of another thread")], thread_id="t2")

        found = ltm.recall("frozen lake", k=1)[0]

        assert found.neighbours is not None
        assert found.neighbours[1] is None

    def test_a_caption_is_found_and_no_part_of_the_text(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Look at this", caption="a frozen lake")])

        assert texts(ltm.recall("frozen lake")) == ["Look at this"]

    def test_what_and_kinds_narrow_it(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Chose tabs for the project", kind="decision")
        kept(ltm, "Likes tabs in general", kind="preference")
        ltm.record([said("I said tabs")])

        assert set(texts(ltm.recall("tabs", what="turns"))) == {"I said tabs"}
        assert "I said tabs" not in texts(ltm.recall("tabs", what="items"))
        assert texts(ltm.recall("tabs", what="items", kinds=["decision"])) == [
            "Chose tabs for the project"
        ]

    def test_at_most_k_are_recalled(self, ltm: LongTermMemory) -> None:
        ltm.record([said(f"tabs number {number}") for number in range(9)])

        assert len(ltm.recall("tabs")) == 5
        assert len(ltm.recall("tabs", k=7)) == 7
        assert ltm.recall("tabs", k=0) == []

    def test_wrong_arguments_are_refused(self, ltm: LongTermMemory) -> None:
        wrong: Any = 7
        for k in (-1, 101, True, 2.5):
            with bad("k"):
                ltm.recall("tabs", k=k)  # pyright: ignore[reportArgumentType] - it is wrong
        with bad("query"):
            ltm.recall(wrong)
        with bad("what"):
            ltm.recall("tabs", what=wrong)
        with bad("kinds"):
            ltm.recall("tabs", kinds=["belief"])
        with bad("min_relevance"):
            ltm.recall("tabs", min_relevance=2)
        with bad("weights"):
            ltm.recall("tabs", weights=Weights(0, 0, 0))

    def test_the_freshest_wins_where_only_that_counts(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        kept(ltm, "Likes tabs in Python")
        clock.tick(86_400)
        kept(ltm, "Likes tabs in Go")

        found = ltm.recall("tabs", weights=Weights(0, 1, 0))

        assert texts(found) == ["Likes tabs in Go", "Likes tabs in Python"]
        assert found[0].recency == 1
        assert 0.97 < found[1].recency < 1

    def test_the_most_important_wins_where_only_that_counts(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs in Python", importance=0.9)
        kept(ltm, "Likes tabs in Go", importance=0.2)

        found = ltm.recall("tabs", weights=Weights(0, 0, 1))

        assert [each.score for each in found] == pytest.approx([0.9, 0.2])

    def test_a_day_that_is_asked_about_is_found(self, ltm: LongTermMemory) -> None:
        day = datetime(2023, 5, 7, tzinfo=UTC)
        ltm.record([said("We went swimming", at=day)])
        ltm.record([said("We stayed home", at=day + timedelta(days=90))], thread_id="t2")

        assert texts(ltm.recall("What happened on 7 May 2023?")) == ["We went swimming"]

    def test_another_writer_is_seen_at_once(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs in Python")
        ltm.recall("tabs")

        kept(memory_of(hf, "ada"), "Likes tabs in Go")

        assert len(ltm.recall("tabs")) == 2

    def test_the_answer_does_not_depend_on_what_was_kept(
        self, ltm: LongTermMemory, let_go: Callable[[], None]
    ) -> None:
        for number in range(12):
            ltm.record([said(f"The lake froze in year {number}"), said("Really?")])
            ltm.recall("lake", touch=False)
        kept(ltm, "Loves the frozen lake")
        warm = ltm.recall("the frozen lake", k=20, touch=False)

        let_go()

        assert ltm.recall("the frozen lake", k=20, touch=False) == warm

    def test_neighbours_do_not_change_it(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        kept(ltm, "Loves the frozen lake")
        alone = ltm.recall("frozen lake", touch=False)

        for user in ("bob", "ada2", "ad"):
            kept(memory_of(hf, user), "The frozen lake is mine")

        assert ltm.recall("frozen lake", touch=False) == alone


class LongTermMarksContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_was_recalled_is_marked(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        item = kept(ltm, "Likes tabs")
        clock.tick(60)
        ltm.recall("tabs")
        ltm.recall("tabs")

        assert ltm.flush().done
        marked: Any = ltm.get(item.id)

        assert (marked.last_accessed_at, marked.access_count) == (clock.now(), 2)
        assert marked.updated_at == item.updated_at

    def test_without_touch_it_is_not(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs", touch=False)
        ltm.flush()

        assert ltm.get(item.id) == item

    def test_a_mark_makes_it_fresh_for_everybody(
        self, ltm: LongTermMemory, clock: FrozenClock, let_go: Callable[[], None]
    ) -> None:
        kept(ltm, "Likes tabs")
        clock.tick(30 * 86_400)
        assert ltm.recall("tabs")[0].recency == pytest.approx(0.5)
        ltm.flush()

        warm = ltm.recall("tabs", touch=False)
        let_go()

        assert warm[0].recency == 1
        assert ltm.recall("tabs", touch=False) == warm

    def test_a_mark_does_not_bring_back_what_was_forgotten(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        ltm.forget(item.id)
        ltm.flush()

        assert ltm.get(item.id) is None
        assert ltm.recall("tabs", min_relevance=0) == []

    def test_nor_what_was_cleared(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        ltm.clear()
        ltm.flush()

        assert ltm.status().items == 0


class LongTermOptionsContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        "given",
        [
            {"max_items": -1},
            {"max_items": 2.5},
            {"max_items": True},
            {"max_turns": -1},
            {"half_life_days": 0},
            {"min_relevance": 1.5},
            {"dedupe_similarity": -0.1},
            {"cosine_weight": float("inf")},
            {"secrets": "keep"},
            {"weights": (1, 0, 0)},
        ],
    )
    def test_a_wrong_option_is_refused(self, given: Any) -> None:
        with bad(next(iter(given))):
            LongTermOptions(**given)

    def test_a_half_life_is_the_options(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(half_life_days=1))
        kept(ltm, "Likes tabs")
        clock.tick(86_400)

        assert ltm.recall("tabs")[0].recency == pytest.approx(0.5)
