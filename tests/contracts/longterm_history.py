"""Contract of answers as of an earlier moment, and of what was true then."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

import pytest

from contracts.longterm_items import GivenAUser, bad, kept, said
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.testing.fakes import FrozenClock

HOUR = timedelta(hours=1)
BAD_TIMES: list[tuple[str, Callable[[LongTermMemory], object]]] = [
    ("at", lambda ltm: ltm.recall("x", at="2999-01-01T00:00:00Z")),
    ("valid_at", lambda ltm: ltm.list(valid_at="2999-01-01T00:00:00Z")),
    ("at", lambda ltm: ltm.get("item_" + "0" * 24, at="2999-01-01T00:00:00Z")),
    ("valid_from", lambda ltm: ltm.remember("x", valid_from="soon")),
    (
        "valid_from",
        lambda ltm: ltm.remember(
            "x", valid_from="2026-02-01T00:00:00Z", valid_to="2026-01-01T00:00:00Z"
        ),
    ),
]


def asked(ltm: LongTermMemory, query: str, **given: object) -> list[tuple[str, float]]:
    """Return what *query* recalls, each with its score."""
    found = ltm.recall(query, 20, touch=False, **given)  # pyright: ignore[reportArgumentType] - as given
    return [(each.text, each.score) for each in found]


class LongTermHistoryContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "times cross the wire")
    def test_an_item_is_what_it_was_then(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        item = kept(ltm, "Drinks tea in the morning", kind="preference")
        then = clock.now()
        clock.tick(3_600)
        ltm.update(item.id, text="Drinks coffee in the morning", kind="fact")

        assert [text for text, _ in asked(ltm, "Who drinks tea?", at=then)] == [item.text]
        (found,) = ltm.recall("What is drunk in the morning?", at=then, touch=False)
        assert found.item is not None
        assert (found.item.text, found.item.kind) == (item.text, "preference")
        assert ltm.get(item.id, at=then) == item
        assert ltm.list(at=then).data == [item]
        assert ltm.get(item.id, at=then - HOUR) is None
        assert ltm.list(at=then - HOUR).data == []
        assert asked(ltm, "What is drunk in the morning?", at=then - HOUR) == []

    def test_a_turn_is_there_from_its_recording(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        before = clock.now()
        clock.tick(3_600)
        (turn,) = ltm.record([said("We rowed on the lake")]).turns
        clock.tick(3_600)
        ltm.record([said("Then we swam in the lake")])

        assert asked(ltm, "the lake", at=before) == []
        assert [text for text, _ in asked(ltm, "Who rowed on the lake?", at=turn.created_at)] == [
            turn.text
        ]
        assert [each.id for each in ltm.list("turns", at=turn.created_at)] == [turn.id]
        assert ltm.get(turn.id, at=before) is None

    @pytest.mark.surface("http", "the count of erased rows crosses the wire")
    def test_what_was_forgotten_was_never_there(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        item = kept(ltm, "Drinks tea in the morning")
        ltm.update(item.id, text="Drinks coffee in the morning")
        then = clock.now()
        clock.tick(3_600)
        kept(ltm, "Sings in a choir")
        ltm.forget(item.id)

        for moment in (then, clock.now()):
            assert [text for text, _ in asked(ltm, "coffee or tea in the morning", at=moment)] == []
            assert ltm.get(item.id, at=moment) is None
        page = ltm.list(at=then)
        assert (page.data, page.erased) == ([], 1)
        assert ltm.list().erased == 0

    def test_a_duplicate_raises_the_importance_from_then_on(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        item = kept(ltm, "Drinks tea in the morning", importance=0.2)
        then = clock.now()
        clock.tick(3_600)
        assert ltm.remember("Drinks tea in the morning", importance=0.9).outcome == "duplicate"

        now = ltm.get(item.id)
        assert ltm.get(item.id, at=then) == item
        assert now is not None
        assert [each.importance for each in ltm.list()] == [0.9]  # pyright: ignore[reportUnknownMemberType] - a page of either

    @pytest.mark.surface("http", "times cross the wire")
    def test_what_is_no_longer_true_is_not_recalled(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        begun = clock.now() - 10 * HOUR
        old = ltm.remember("Lives in Bergen", valid_from=begun, valid_to=begun + 5 * HOUR).stored
        new = ltm.remember("Lives in Oslo", valid_from=begun + 5 * HOUR).stored
        assert old is not None
        assert new is not None

        def lives(**given: datetime) -> list[str]:
            return sorted(text for text, _ in asked(ltm, "Lives in Bergen or Oslo?", **given))

        assert (old.valid_from, old.valid_to) == (begun, begun + 5 * HOUR)
        assert lives() == ["Lives in Oslo"]
        assert lives(valid_at=begun + HOUR) == ["Lives in Bergen"]
        assert lives(valid_at=begun + 5 * HOUR) == ["Lives in Oslo"]
        assert lives(valid_at=begun - HOUR) == []
        assert [each.id for each in ltm.list(valid_at=begun + HOUR)] == [old.id]
        assert len(ltm.list().data) == 2

    @pytest.mark.surface("http", "a field that is not given differs from null")
    def test_an_item_ends_and_is_true_again(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        item = kept(ltm, "Lives in Bergen")
        clock.tick(3_600)
        ended = ltm.update(item.id, valid_to=clock.now())
        assert ended.valid_to == clock.now()
        assert asked(ltm, "Who lives in Bergen?") == []
        assert ltm.update(item.id, importance=0.9).valid_to == ended.valid_to
        assert ltm.update(item.id, valid_to=None).valid_to is None
        assert [text for text, _ in asked(ltm, "Who lives in Bergen?")] == [item.text]
        with bad("valid_to"):
            ltm.update(item.id, valid_to=item.created_at - HOUR)

    def test_both_times_go_together(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        begun = clock.now()
        item = kept(ltm, "Lives in Bergen")
        clock.tick(3_600)
        ltm.update(item.id, valid_to=clock.now())
        clock.tick(3_600)

        assert len(asked(ltm, "Lives in Bergen", at=begun, valid_at=begun)) == 1
        assert len(asked(ltm, "Lives in Bergen", valid_at=begun)) == 1
        assert asked(ltm, "Lives in Bergen", valid_at=clock.now()) == []

    def test_an_item_is_true_from_when_its_turn_was_said(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        at = clock.now() - 30 * HOUR
        (turn,) = ltm.record([said("I moved to Bergen", at=at)]).turns

        stored = ltm.remember("Lives in Bergen", turns=[turn.id]).stored

        assert stored is not None
        assert (stored.valid_from, stored.created_at) == (at, clock.now())

    @pytest.mark.parametrize(("field", "act"), BAD_TIMES)
    def test_bad_times_are_refused(
        self, ltm: LongTermMemory, field: str, act: Callable[[LongTermMemory], object]
    ) -> None:
        with bad(field):
            act(ltm)

    @pytest.mark.parametrize("seed", range(3))
    def test_every_moment_answers_as_it_did(
        self, ltm: LongTermMemory, clock: FrozenClock, seed: int
    ) -> None:
        random = Random(seed)
        things = ("tea", "coffee", "milk", "cocoa", "water")
        ids: list[str] = []
        moments: list[tuple[datetime, list[tuple[str, float]], list[str]]] = []
        for number in range(30):
            clock.tick(random.randrange(1, 9_000))
            thing = f"drinks {random.choice(things)} with guest {number % 7}"
            match random.randrange(4):
                case 0 if ids:
                    ltm.update(random.choice(ids), text=f"Always {thing}")
                case 1:
                    ltm.record([said(f"My friend {thing}")], thread_id=f"t{number % 3}")
                case _:
                    stored = ltm.remember(f"Often {thing} {number}", importance=random.random())
                    if stored.outcome == "stored" and stored.stored is not None:
                        ids.append(stored.stored.id)
            query = f"Who drinks {random.choice(things)} with a guest?"
            moments.append((clock.now(), asked(ltm, query), [query, *texts_of(ltm)]))
        for at, answer, (query, *texts) in moments:
            assert asked(ltm, query, at=at) == answer
            assert [each.text for each in ltm.list(at=at)] == texts


def texts_of(ltm: LongTermMemory) -> list[str]:
    """Return the texts of the items, newest first."""
    return [each.text for each in ltm.list()]
