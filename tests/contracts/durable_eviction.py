"""What goes when a scope of durable memory is full."""

from typing import Any

import pytest

from contracts.durable_writes import GivenAnAgent, keys_of, listed, refused
from holdfast.ground.errors import MemoryFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


def fill(durable: DurableMemory, entries: str, cap: int | None = None) -> None:
    """Set the cap to the number of *entries* and store them; upper-case ones are core."""
    durable.set_limits(cap=cap or len(entries))
    for key in entries:
        durable.set(key, "x", category="core" if key.isupper() else "note")


class DurableEvictionContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("held", "new", "gone"),
        [
            ("abc", "d", "a"),
            ("abc", "D", "a"),
            ("Abc", "d", "b"),
            ("aBC", "D", "a"),
            ("ABC", "D", "A"),
            ("BAC", "D", "B"),
        ],
    )
    def test_the_coldest_windowed_goes_and_core_only_without_one(
        self, durable: DurableMemory, held: str, new: str, gone: str
    ) -> None:
        fill(durable, held)
        before = durable.get(gone)
        assert before is not None

        stored = durable.set(new, "x", category="core" if new.isupper() else "note")

        (victim,) = stored.evicted
        assert (victim.key, victim.category, victim.scope) == (gone, before.category, "agent")
        assert (victim.seq, victim.size_bytes) == (before.seq, before.size_bytes)
        assert sorted(listed(durable)) == sorted(held.replace(gone, new))

    def test_a_windowed_entry_among_core_alone_is_refused(self, durable: DurableMemory) -> None:
        fill(durable, "ABCD")
        before = durable.list().data

        with refused(MemoryFull, "005") as refusal:
            durable.set("e", "x", category="note")

        error: Any = refusal.value
        assert (error.cap, error.entries, error.core_entries) == (4, 4, 4)
        assert tuple(error.coldest) == ("A", "B", "C")
        assert "core" in error.next
        assert durable.list().data == before
        assert len(durable.history().data) == 4

    def test_storing_a_held_key_again_never_evicts(self, durable: DurableMemory) -> None:
        fill(durable, "abC")

        again = [
            durable.set("a", "x", category="note"),
            durable.set("a", "y", category="note"),
            durable.set("a", "y", category="core"),
            durable.set("C", "y", category="note"),
        ]

        assert [each.evicted for each in again] == [()] * 4
        assert sorted(listed(durable)) == ["C", "a", "b"]

    def test_a_stored_key_is_warm_again(self, durable: DurableMemory) -> None:
        fill(durable, "abc")
        durable.set("a", "x", category="note")

        assert keys_of(durable.set("d", "x", category="note").evicted) == ["b"]

    def test_a_read_or_an_unchanged_store_warms_nothing(self, durable: DurableMemory) -> None:
        fill(durable, "abc")
        durable.get("a")
        durable.hydrate()
        durable.set("a", "x", category="note", refresh=False)

        assert keys_of(durable.set("d", "x", category="note").evicted) == ["a"]

    def test_many_writes_evict_among_themselves(self, durable: DurableMemory) -> None:
        fill(durable, "a", cap=2)

        many = durable.set_many(
            [{"key": key, "content": "x", "category": "note"} for key in "bcde"]
        )

        assert [keys_of(each.evicted) for each in many.stored] == [[], ["a"], ["b"], ["c"]]
        assert listed(durable) == ["e", "d"]

    def test_an_evicted_key_stored_again_is_a_new_entry(self, durable: DurableMemory) -> None:
        fill(durable, "a")
        first = durable.get("a")
        durable.set("b", "x", category="note")

        again = durable.set("a", "x", category="note")

        assert first is not None
        assert again.outcome == "created"
        assert again.id != first.id

    def test_workspace_entries_compete_among_themselves(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        hf.set_durable_limits(workspace_cap=2)
        durable.set("own", "x", category="note")
        durable.set("w1", "x", category="workspace")
        other.set("w2", "x", category="workspace")

        stored = other.set("w3", "x", category="workspace")

        assert [(each.key, each.scope) for each in stored.evicted] == [("w1", "workspace")]
        assert listed(durable) == ["w3", "w2", "own"]

    def test_conversation_entries_compete_within_their_run(self, durable: DurableMemory) -> None:
        durable.set_limits(run_cap=2, cap=1)
        durable.set("own", "x", category="core")

        with durable.run(lane="a") as first, durable.run(lane="b") as second:
            first.set("c1", "x", category="conversation")
            second.set("s1", "x", category="conversation")
            first.set("c2", "x", category="conversation")
            stored = first.set("c3", "x", category="conversation")

            assert [(each.key, each.scope) for each in stored.evicted] == [("c1", "run")]
            assert keys_of(first.list().data) == ["c3", "c2", "own"]
            assert keys_of(second.list().data) == ["s1", "own"]

    def test_other_scopes_do_not_count_towards_the_cap(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=1)
        durable.set("own", "x", category="note")

        assert durable.set("w", "x", category="workspace").evicted == ()
        with durable.run() as run:
            assert run.set("c", "x", category="conversation").evicted == ()

    def test_moving_an_entry_out_frees_its_place(self, durable: DurableMemory) -> None:
        fill(durable, "ab")
        durable.set("a", "x", category="workspace")

        assert durable.set("c", "x", category="note").evicted == ()

    def test_from_nine_tenths_of_core_each_core_write_says_so(self, durable: DurableMemory) -> None:
        fill(durable, "ABCDEFGH", cap=10)

        ninth = durable.set("I", "x", category="core")
        windowed = durable.set("i", "x", category="note")
        again = durable.set("A", "x", category="core")

        assert "9" in ninth.notices[0]
        assert "10" in ninth.notices[0]
        assert windowed.notices == ()
        assert again.notices == ninth.notices

    def test_below_nine_tenths_nothing_is_said(self, durable: DurableMemory) -> None:
        fill(durable, "ABCDEFG", cap=10)

        assert durable.set("H", "x", category="core").notices == ()

    def test_a_victim_is_logged_with_its_content_and_what_it_made_way_for(
        self, durable: DurableMemory
    ) -> None:
        fill(durable, "a")
        durable.set("b", "x", category="note")

        (change,) = durable.history(op="evict").data

        assert (change.key, change.content) == ("a", "x")
        assert change.cause == {"evicted_for": "b"}

    def test_the_content_of_a_victim_can_be_restored_for_30_days(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        fill(durable, "a")
        durable.set("b", "x", category="note")
        clock.tick(30 * 86_400 - 1)
        durable.sweep()
        (kept,) = durable.history(op="evict").data
        clock.tick(86_400)
        durable.sweep()
        (let_go,) = durable.history(op="evict").data

        assert (kept.content, let_go.content) == ("x", None)
