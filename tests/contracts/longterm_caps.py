"""What holds at the cap of items."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from contracts.longterm_given import GivenAUser, capped, items, kept, said
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


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

    def test_what_was_recalled_lately_stays(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = capped(hf, 2)
        kept(ltm, "Likes tabs")
        clock.tick(86_400)
        untouched = kept(ltm, "Has a dog")
        clock.tick(86_400)
        ltm.recall("tabs")
        ltm.flush()

        assert ltm.remember("Plays chess").evicted == (untouched.id,)

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

    def test_an_evicted_item_leaves_its_turns_and_may_be_learnt_again(self, hf: Holdfast) -> None:
        ltm = capped(hf, 1)
        turn = ltm.record([said("I like tabs")]).turns[0]
        kept(ltm, "Likes tabs", turns=[turn.id])
        kept(ltm, "Has a dog")
        left: Any = ltm.get(turn.id)

        assert left.items == ()
        assert ltm.remember("Likes tabs").outcome == "stored"
