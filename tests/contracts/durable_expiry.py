"""The order of writes, and what time does to entries."""

from datetime import timedelta

import pytest

from contracts.durable_writes import (
    DAILY,
    MILLISECOND,
    GivenAnAgent,
    keys_of,
    listed,
    seen,
)
from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


def tick(clock: FrozenClock, span: timedelta) -> None:
    """Let *span* pass."""
    clock.tick(span.total_seconds())


class DurableOrderContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_equal_and_backward_times_change_no_order(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="note")
        durable.set("b", "x", category="note")
        clock.tick(-3600)
        durable.set("c", "x", category="note")
        clock.tick(3600)

        assert listed(durable) == seen(durable.hydrate()) == ["c", "b", "a"]

    def test_the_coldest_by_number_goes_though_its_time_is_newest(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set_limits(cap=2)
        durable.set("a", "x", category="note")
        clock.tick(-3600)
        durable.set("b", "x", category="note")
        clock.tick(3600)

        assert keys_of(durable.set("c", "x", category="note").evicted) == ["a"]


class DurableExpiryContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_daily_entry_lasts_72_hours_from_its_write(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        stored = durable.set("a", "x", category="daily")

        assert stored.expires_at == stored.updated_at + DAILY
        tick(clock, DAILY)
        assert durable.get("a") is not None
        assert listed(durable) == seen(durable.hydrate()) == ["a"]
        tick(clock, MILLISECOND)
        assert durable.get("a") is None
        assert listed(durable) == seen(durable.hydrate()) == []
        assert durable.hydrate().omitted == ()

    @pytest.mark.parametrize("category", ["core", "workspace", "note", "DAILY"])
    def test_nothing_else_expires(
        self, durable: DurableMemory, clock: FrozenClock, category: str
    ) -> None:
        assert durable.set("a", "x", category=category).expires_at is None
        clock.tick(10 * 365 * 86_400)
        durable.sweep()

        assert listed(durable) == ["a"]

    def test_an_expired_key_stored_again_is_a_new_entry(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        first = durable.set("a", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        again = durable.set("a", "x", category="daily")

        assert again.outcome == "created"
        assert again.id != first.id
        assert keys_of(again.expired) == ["a"]

    def test_a_write_removes_what_expired_and_says_so(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        first = durable.set("a", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        (gone,) = durable.set("b", "x", category="core").expired

        assert (gone.key, gone.category, gone.scope) == ("a", "daily", "agent")
        assert (gone.size_bytes, gone.seq) == (first.size_bytes, first.seq)
        assert durable.sweep().expired == ()

    def test_the_expired_do_not_count_towards_the_cap(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set_limits(cap=2)
        durable.set("a", "x", category="core")
        durable.set("b", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        stored = durable.set("c", "x", category="note")

        assert (keys_of(stored.expired), stored.evicted) == (["b"], ())
        assert listed(durable) == ["c", "a"]

    def test_only_a_real_store_renews(self, durable: DurableMemory, clock: FrozenClock) -> None:
        durable.set("a", "x", category="daily")
        tick(clock, DAILY - MILLISECOND)
        durable.get("a")
        durable.list()
        durable.hydrate()
        with durable.run() as run:
            run.capture(run.hydration.entries)
        tick(clock, 2 * MILLISECOND)

        assert durable.get("a") is None

    def test_a_store_of_the_same_renews(self, durable: DurableMemory, clock: FrozenClock) -> None:
        durable.set("a", "x", category="daily")
        tick(clock, DAILY)
        durable.set("a", "x", category="daily")
        tick(clock, DAILY)

        assert durable.get("a") is not None

    def test_daily_stored_as_core_stays_and_the_reverse_goes(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        durable.set("b", "x", category="core")

        assert durable.set("a", "x", category="core").expires_at is None
        assert durable.set("b", "x", category="daily").expires_at is not None
        tick(clock, DAILY + MILLISECOND)
        assert listed(durable) == ["a"]

    def test_a_sweep_removes_once(self, durable: DurableMemory, clock: FrozenClock) -> None:
        durable.set("a", "x", category="daily")
        durable.set("b", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        assert sorted(keys_of(durable.sweep().expired)) == ["a", "b"]
        assert durable.sweep().expired == ()

    def test_a_sweep_of_the_workspace_reaches_idle_agents(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        other.set("b", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        assert sorted(keys_of(hf.sweep().expired)) == ["a", "b"]
        assert [each.entries for each in hf.durable_agents().data] == [0, 0]

    def test_an_expiry_is_logged_without_the_content(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)
        durable.sweep()

        change = durable.history("a", op="expire").data[0]

        assert (change.content, change.category, change.cause) == (
            None,
            "daily",
            {"source": "sweep"},
        )

    @pytest.mark.parametrize("by", ["nothing", "a write", "a sweep"])
    def test_the_content_of_what_expired_is_in_no_change(
        self, durable: DurableMemory, clock: FrozenClock, by: str
    ) -> None:
        durable.set("a", "first", category="core")
        last = durable.set("a", "second", category="daily")
        durable.set("b", "kept", category="core")
        tick(clock, DAILY + MILLISECOND)

        if by == "a write":
            durable.set("c", "x", category="core")
        elif by == "a sweep":
            durable.sweep()

        of_a, of_all = durable.history("a").data, durable.history().data
        assert {(each.content, each.content_sha256) for each in of_a} == {(None, None)}
        assert {each.key for each in of_a} == {"a"}
        assert [each.content for each in of_all if each.key == "b"] == ["kept"]
        assert {each.content for each in of_all if each.key == "a"} == {None}
        with pytest.raises(NotFound):
            durable.restore("a", last.seq)

    def test_a_key_stored_again_shows_what_it_holds_since(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "first", category="daily")
        tick(clock, DAILY + MILLISECOND)
        durable.set("a", "second", category="daily")

        assert [each.content for each in durable.history("a").data] == ["second", None, None]

    @pytest.mark.parametrize("swept", [False, True])
    def test_an_evicted_daily_entry_can_be_brought_back_until_it_would_have_expired(
        self, hf: Holdfast, durable: DurableMemory, clock: FrozenClock, *, swept: bool
    ) -> None:
        durable.set_limits(cap=1)
        durable.set("a", "first", category="daily")
        tick(clock, DAILY)
        (gone,) = durable.set("b", "x", category="core").evicted or (None,)
        before = [each.content for each in durable.history("a").data]
        tick(clock, MILLISECOND)
        if swept:
            hf.sweep()

        changes = durable.history("a").data

        assert gone is not None
        assert before == ["first", "first"]
        assert [(each.op, each.content) for each in changes] == [("evict", None), ("create", None)]
        with pytest.raises(NotFound):
            durable.restore("a", changes[0].seq)

    def test_a_daily_entry_that_was_renewed_keeps_its_history(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "first", category="daily")
        tick(clock, DAILY)
        durable.set("a", "second", category="daily")
        tick(clock, DAILY)
        durable.sweep()

        assert [each.content for each in durable.history("a").data] == ["second", "first"]

    def test_the_agents_own_hours_are_those_that_count(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set_limits(daily_hours=1)

        stored = durable.set("a", "x", category="daily")

        assert stored.expires_at == clock.now() + timedelta(hours=1)
