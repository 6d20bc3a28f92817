"""Contract of items of long-term memory: remembered, changed, forgotten."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.ground.errors import InvalidInput, NotFound, SecretRefused
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Item, LongTermOptions, Recalled, Turn
from holdfast.testing.fakes import FrozenClock


class GivenAUser:
    """Gives the memories of two users, made through the subclass's `hf`."""

    @pytest.fixture
    def ltm(self, hf: Holdfast) -> LongTermMemory:
        """Give the memory of one user."""
        return memory_of(hf, "ada")

    @pytest.fixture
    def let_go(self, embedded: Holdfast) -> Callable[[], None]:
        """Give what clears the cache of postings, which the server has where there is one."""
        return embedded.longterm_shared.kept.clear

    @pytest.fixture
    def other(self, hf: Holdfast) -> LongTermMemory:
        """Give the memory of another user of the same workspace."""
        return memory_of(hf, "bob")


def memory_of(hf: Holdfast, user: str, **given: Any) -> LongTermMemory:
    """Return the memory of *user*, switched on."""
    memory = hf.longterm(user, enabled=True, **given)
    assert memory is not None
    return memory


def capped(hf: Holdfast, cap: int, **options: Any) -> LongTermMemory:
    """Return a memory that holds at most *cap* items."""
    return memory_of(hf, "ada", options=LongTermOptions(max_items=cap, **options))


def said(text: str, **given: Any) -> Turn:
    """Return a turn of the user's."""
    return Turn(role="user", text=text, **given)


def kept(ltm: LongTermMemory, text: str, **given: Any) -> Item:
    """Remember *text* and return the item that holds it."""
    stored = ltm.remember(text, **given).stored
    assert stored is not None
    return stored


def texts(found: Iterable[Item | Turn | Recalled]) -> list[str]:
    """Return the texts of *found*, in their order."""
    return [each.text for each in found]


def items(ltm: LongTermMemory) -> list[str]:
    """Return the texts of all live items, newest first."""
    return texts(ltm.list(limit=1000).all())


def turns(ltm: LongTermMemory) -> list[str]:
    """Return the texts of all turns, newest first."""
    return texts(ltm.list("turns", limit=1000).all())


@contextmanager
def bad(field: str) -> Generator[pytest.ExceptionInfo[InvalidInput]]:
    """Expect InvalidInput that names *field*, or something within it."""
    with pytest.raises(InvalidInput) as caught:
        yield caught
    assert caught.value.field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] == field


class LongTermCapsContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_passes_the_cap_makes_room_by_the_oldest(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        ltm = capped(hf, 3)
        first = kept(ltm, "Likes tabs")
        for text in ("Has a dog", "Lives in Lisbon"):
            clock.tick(86_400)
            kept(ltm, text)
        clock.tick(86_400)

        done = ltm.remember("Plays chess")

        assert done.evicted == (first.id,)
        assert items(ltm) == ["Plays chess", "Lives in Lisbon", "Has a dog"]

    def test_the_less_important_goes_first(self, hf: Holdfast) -> None:
        ltm = capped(hf, 2)
        kept(ltm, "Likes tabs", importance=0.9)
        less = kept(ltm, "Has a dog", importance=0.1)

        assert ltm.remember("Plays chess").evicted == (less.id,)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_what_was_recalled_lately_stays(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = capped(hf, 2)
        kept(ltm, "Likes tabs")
        clock.tick(86_400)
        untouched = kept(ltm, "Has a dog")
        clock.tick(86_400)
        ltm.recall("tabs")
        ltm.flush()

        assert ltm.remember("Plays chess").evicted == (untouched.id,)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_with_a_cap_of_one_the_newest_stays(self, hf: Holdfast) -> None:
        ltm = capped(hf, 1)
        first = kept(ltm, "Likes tabs", importance=1.0)

        assert ltm.remember("Has a dog", importance=0.0).evicted == (first.id,)
        assert items(ltm) == ["Has a dog"]

    def test_with_0_there_is_no_cap(self, hf: Holdfast) -> None:
        ltm = capped(hf, 0, dedupe_similarity=0)
        for _ in range(5):
            assert ltm.remember("Likes tabs").evicted == ()

        assert ltm.status().max_items == 0
        assert ltm.status().items == 5

    def test_a_lower_cap_takes_all_that_is_over_it(self, hf: Holdfast) -> None:
        for text in ("Likes tabs", "Has a dog", "Plays chess"):
            kept(capped(hf, 3), text)

        assert len(capped(hf, 2).remember("Lives in Lisbon").evicted) == 2

    def test_two_writers_at_the_cap_keep_to_it(self, hf: Holdfast) -> None:
        ltm = capped(hf, 3, dedupe_similarity=0)
        for _ in range(3):
            kept(ltm, "Likes tabs")

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(ltm.remember, ["Has a dog"] * 2))

        evicted = [id for each in done for id in each.evicted]
        assert len(set(evicted)) == len(evicted) == 2
        assert ltm.status().items == 3

    def test_a_duplicate_evicts_nothing(self, hf: Holdfast) -> None:
        ltm = capped(hf, 1)
        kept(ltm, "Likes tabs")

        assert ltm.remember("likes tabs").evicted == ()

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_an_evicted_item_leaves_its_turns_and_may_be_learnt_again(self, hf: Holdfast) -> None:
        ltm = capped(hf, 1)
        turn = ltm.record([said("I like tabs")]).turns[0]
        kept(ltm, "Likes tabs", turns=[turn.id])
        kept(ltm, "Has a dog")
        left: Any = ltm.get(turn.id)

        assert left.items == ()
        assert ltm.remember("Likes tabs").outcome == "stored"


@pytest.mark.surface("file", "deleted rows leave the file")
class LongTermForgettingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_is_forgotten_is_gone(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs")

        gone = ltm.forget(item.id)

        assert (gone.items, gone.turns, bool(gone)) == ((item.id,), (), True)
        assert ltm.get(item.id) is None
        assert ltm.recall("tabs", min_relevance=0) == items(ltm) == []
        assert ltm.status().items == 0

    @pytest.mark.surface("http", "the client has a branch for it")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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
        turn, _ = ltm.record([said("We went to the lake"), said("It was cold and dark")]).turns
        assert "It was cold and dark" in texts(ltm.recall("lake"))

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

    @pytest.mark.surface("http", "query parameters cross the wire")
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


TOLD = "My password is hunter22!"
NOBODY = "item_000000000000000000000000"


@pytest.mark.surface("file", "a transaction is committed to disk")
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

    @pytest.mark.surface("http", "the server has a branch for it")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_a_new_text_is_found_and_the_old_one_is_not(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        assert texts(ltm.recall("tabs")) == ["Likes tabs"]

        ltm.update(item.id, text="Likes spaces")

        assert texts(ltm.recall("spaces")) == ["Likes spaces"]
        assert ltm.recall("tabs") == []

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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
