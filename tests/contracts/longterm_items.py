"""What holds of remembering: outcomes, texts, duplicates, changes."""

from typing import Any

import pytest

from contracts.longterm_given import (
    GivenAUser,
    bad,
    items,
    kept,
    memory_of,
    said,
    texts,
)
from holdfast.ground.errors import NotFound, SecretRefused
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.testing.fakes import FrozenClock

TOLD = "My password is hunter22!"
NOBODY = "item_000000000000000000000000"


class LongTermRememberingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_is_remembered_is_there_as_it_was_given(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        done = ltm.remember(
            "  Prefers tabs ", kind="preference", importance=0.8, source="settings page"
        )

        item = done.stored
        assert item is not None
        assert (done.outcome, done.reasons, done.evicted) == ("stored", (), ())
        assert (item.text, item.kind, item.importance) == ("Prefers tabs", "preference", 0.8)
        assert (item.origin, item.source, item.turns) == ("api", "settings page", ())
        assert item.created_at == item.updated_at == clock.now()
        assert (item.last_accessed_at, item.access_count) == (None, 0)
        assert item.id.startswith("item_")
        assert ltm.get(item.id) == item

    @pytest.mark.parametrize("text", ["", " ", "\n\t "])
    def test_nothing_is_kept_of_a_blank_text(self, ltm: LongTermMemory, text: str) -> None:
        done = ltm.remember(text)

        assert (done.outcome, done.stored) == ("blank", None)
        assert items(ltm) == []

    def test_a_secret_is_not_kept_and_its_kind_is_told(self, ltm: LongTermMemory) -> None:
        done = ltm.remember(TOLD)

        assert (done.outcome, done.stored) == ("secret", None)
        assert done.reasons
        assert "hunter22" not in str(done)
        assert items(ltm) == []

    def test_nor_is_one_in_its_source(self, ltm: LongTermMemory) -> None:
        assert ltm.remember("Likes tabs", source=TOLD).outcome == "secret"

    def test_where_that_is_wanted_a_secret_is_redacted(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(secrets="redact"))

        text = kept(ltm, TOLD).text

        assert "hunter22" not in text
        assert "[redacted " in text

    def test_of_a_redacted_secret_its_kind_is_told(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(secrets="redact"))

        done, again = ltm.remember(TOLD), ltm.remember(TOLD)
        of_source = ltm.remember("Likes tea", source=TOLD)

        assert (done.outcome, done.reasons) == ("stored", ("prose",))
        assert (again.outcome, again.reasons) == ("duplicate", ("prose",))
        assert (of_source.outcome, of_source.reasons) == ("stored", ("prose",))
        assert ltm.remember("Likes tabs").reasons == ()

    def test_a_text_is_kept_in_normal_form_c(self, ltm: LongTermMemory) -> None:
        assert kept(ltm, "Cafe\u0301 noir").text == "Caf\u00e9 noir"

    @pytest.mark.parametrize("char", ["a", "é", "語", "🦀"])
    def test_a_text_has_at_most_4096_bytes(self, ltm: LongTermMemory, char: str) -> None:
        most = char * (4096 // len(char.encode()))

        assert kept(ltm, most).text == most
        with bad("text"):
            ltm.remember(most + char)

    def test_what_is_no_text_is_refused(self, ltm: LongTermMemory) -> None:
        wrong: Any = 7
        for text in (wrong, "\ud800", "a\0b"):
            with bad("text"):
                ltm.remember(text)

    def test_other_kinds_and_importances_are_refused(self, ltm: LongTermMemory) -> None:
        wrong: Any = "high"
        with bad("kind"):
            ltm.remember("Likes tabs", kind="belief")
        for importance in (-0.1, 1.1, float("nan"), True, wrong):
            with bad("importance"):
                ltm.remember("Likes tabs", importance=importance)

    def test_an_item_names_the_turns_it_came_from(self, ltm: LongTermMemory) -> None:
        first, second = ltm.record([said("I like tabs"), said("Really")]).turns

        item = kept(ltm, "Likes tabs", turns=[second.id, first.id])
        turn: Any = ltm.get(first.id)

        assert item.turns == (first.id, second.id)
        assert turn.items == (item.id,)

    def test_a_turn_that_is_not_there_is_refused(self, ltm: LongTermMemory) -> None:
        with bad("turns"):
            ltm.remember("Likes tabs", turns=["turn_000000000000000000000000"])
        assert items(ltm) == []

    def test_a_turn_of_another_user_is_not_there(
        self, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        theirs = other.record([said("I like tabs")]).turns[0]

        with bad("turns"):
            ltm.remember("Likes tabs", turns=[theirs.id])


class LongTermDuplicatesContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("Prefers tabs over spaces", "prefers  tabs over spaces!"),
            ("Prefers tabs over spaces", "She prefers tabs over the spaces"),
            ("Is called Ana", "is called ANA."),
            ("\uff21na likes tea", "Ana likes tea"),
        ],
    )
    def test_what_says_the_same_is_a_duplicate(
        self, ltm: LongTermMemory, first: str, second: str
    ) -> None:
        item = kept(ltm, first)
        done = ltm.remember(second)

        assert done.outcome == "duplicate"
        assert done.stored is not None
        assert (done.stored.id, done.stored.text) == (item.id, first)
        assert items(ltm) == [first]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("Prefers tabs over spaces", "Prefers spaces over tabs"),
            ("Has 2 cats", "Has 3 cats"),
            ("Has two cats", "Has three cats"),
            ("Eats meat", "Does not eat meat"),
            ("Eats meat", "Doesn't eat meat"),
            ("Lives in Lisbon", "Lives in London"),
            ("Is", "Is not"),
        ],
    )
    def test_what_says_something_else_is_not(
        self, ltm: LongTermMemory, first: str, second: str
    ) -> None:
        kept(ltm, first)

        assert ltm.remember(second).outcome == "stored"
        assert items(ltm) == [second, first]

    def test_a_duplicate_refreshes_the_item(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        turn = ltm.record([said("I like tabs")]).turns[0]
        first = kept(ltm, "Likes tabs", kind="preference", importance=0.4)
        clock.tick(60)

        again = kept(ltm, "likes tabs.", kind="fact", importance=0.7, turns=[turn.id])

        assert (again.text, again.kind, again.importance) == ("Likes tabs", "preference", 0.7)
        assert (again.turns, again.created_at) == ((turn.id,), first.created_at)
        assert again.updated_at == again.last_accessed_at == clock.now()
        assert ltm.get(first.id) == again

    def test_a_lesser_importance_does_not_lower_it(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs", importance=0.7)

        assert kept(ltm, "Likes tabs", importance=0.1).importance == 0.7

    def test_the_same_of_another_user_is_no_duplicate(
        self, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        kept(ltm, "Likes tabs")

        assert other.remember("Likes tabs").outcome == "stored"

    def test_with_0_nothing_is_a_duplicate(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(dedupe_similarity=0))
        kept(ltm, "Likes tabs")

        assert ltm.remember("Likes tabs").outcome == "stored"


class LongTermChangingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_is_given_is_changed_and_nothing_else(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        first = kept(ltm, "Likes tabs", importance=0.4)
        clock.tick(60)

        changed = ltm.update(first.id, kind="preference")

        assert (changed.text, changed.kind, changed.importance) == (
            "Likes tabs",
            "preference",
            0.4,
        )
        assert (changed.created_at, changed.updated_at) == (first.created_at, clock.now())
        assert ltm.get(first.id) == changed

    def test_a_new_text_is_found_and_the_old_one_is_not(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        assert texts(ltm.recall("tabs")) == ["Likes tabs"]

        ltm.update(item.id, text="Likes spaces")

        assert texts(ltm.recall("spaces")) == ["Likes spaces"]
        assert ltm.recall("tabs") == []

    def test_what_is_not_there_is_not_found(
        self, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        theirs = kept(other, "Likes tabs")

        for id in (NOBODY, theirs.id, "nonsense", "mem_000000000000000000000000"):
            with pytest.raises(NotFound):
                ltm.update(id, text="Likes spaces")
        assert items(other) == ["Likes tabs"]

    def test_a_turn_stays_as_it_was_said(self, ltm: LongTermMemory) -> None:
        turn = ltm.record([said("I like tabs")]).turns[0]

        with bad("id"):
            ltm.update(turn.id, text="I like spaces")

    def test_a_secret_is_refused(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")

        with pytest.raises(SecretRefused) as refused:
            ltm.update(item.id, text=TOLD)

        assert refused.value.reasons
        assert "hunter22" not in str(refused.value)
        assert items(ltm) == ["Likes tabs"]

    def test_a_blank_text_is_refused(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")

        with bad("text"):
            ltm.update(item.id, text=" ")
