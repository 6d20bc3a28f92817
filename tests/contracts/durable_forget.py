"""Contract of expiry, forgetting and order of entries of durable memory."""

from datetime import timedelta
from typing import Any

import pytest

from contracts.durable_writes import (
    DAILY,
    MILLISECOND,
    GivenAnAgent,
    bad,
    keys_of,
    listed,
    refused,
    seen,
)
from holdfast.ground.errors import Forgotten, NotFound, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import EntryScope
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_sweep_of_the_workspace_reaches_idle_agents(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        other.set("b", "x", category="daily")
        tick(clock, DAILY + MILLISECOND)

        assert sorted(keys_of(hf.sweep().expired)) == ["a", "b"]
        assert [each.entries for each in hf.durable_agents().data] == [0, 0]

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_the_agents_own_hours_are_those_that_count(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set_limits(daily_hours=1)

        stored = durable.set("a", "x", category="daily")

        assert stored.expires_at == clock.now() + timedelta(hours=1)


class DurableForgettingContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_is_forgotten_is_gone(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")

        assert durable.forget("a") is True
        assert durable.get("a") is None
        assert listed(durable) == seen(durable.hydrate()) == []
        assert durable.hydrate().omitted == ()

    def test_forgetting_what_is_not_there_leaves_no_trace(self, durable: DurableMemory) -> None:
        assert durable.forget("a") is False
        assert durable.history("a").data == durable.history().data == []
        assert durable.explain("a").reason == "never_stored"

    def test_forgetting_twice_is_false_the_second_time(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.forget("a")

        assert durable.forget("a") is False
        assert len(durable.history("a", op="forget").data) == 1

    def test_what_expired_is_not_there_to_forget(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        clock.tick(80 * 3600)

        assert durable.forget("a") is False

    def test_the_own_entry_goes_before_the_workspaces(self, durable: DurableMemory) -> None:
        durable.set("a", "all", category="workspace")
        durable.set("a", "own", category="core")

        durable.forget("a")
        entry = durable.get("a")

        assert entry is not None
        assert entry.content == "all"
        assert durable.forget("a") is True
        assert durable.get("a") is None

    def test_in_a_run_both_the_runs_and_the_agents_go(self, durable: DurableMemory) -> None:
        durable.set("a", "own", category="core")
        with durable.run() as run:
            run.set("a", "now", category="conversation")

            assert run.forget("a") is True
            assert run.get("a") is None

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_scope_picks_one(self, durable: DurableMemory) -> None:
        durable.set("a", "all", category="workspace")
        durable.set("a", "own", category="core")

        assert durable.forget("a", scope="workspace") is True
        assert [each.scope for each in durable.list().data] == ["agent"]
        assert durable.forget("a", scope="workspace") is False

    @pytest.mark.parametrize("scope", [None, "agent", "workspace"])
    def test_forgetting_nothing_does_not_make_an_agent(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory, scope: EntryScope | None
    ) -> None:
        other.set("b", "x", category="workspace")

        assert durable.forget("a", scope=scope) is False

        assert "agent_7" not in [each.agent for each in hf.durable_agents()]

    def test_an_agent_that_never_wrote_may_forget_what_all_share(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        other.set("a", "x", category="workspace")

        assert durable.forget("a") is True

        assert (durable.get("a"), other.get("a")) == (None, None)
        assert durable.explain("a").reason == "forgotten"

    def test_the_runs_scope_picks_the_runs(self, durable: DurableMemory) -> None:
        durable.set("a", "own", category="core")
        with durable.run() as run:
            run.set("a", "now", category="conversation")

            assert run.forget("a", scope="run") is True
            entry = run.get("a")

        assert entry is not None
        assert entry.content == "own"

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_another_scope_is_refused(self, durable: DurableMemory) -> None:
        unknown: Any = "all"

        with bad("scope"):
            durable.forget("a", scope=unknown)

    def test_a_tombstone_answers_who_knows_the_key(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="core")
        durable.set("a", "y", category="core")
        clock.tick(60)
        durable.forget("a")

        changes = durable.history("a").data
        change, explained = changes[0], durable.explain("a")

        assert (change.op, change.at) == ("forget", clock.now())
        assert {each.content for each in changes} == {None}
        assert {each.content_sha256 for each in changes} == {None}
        assert (explained.hydrated, explained.reason) == (False, "forgotten")
        assert (explained.at, explained.by) == (clock.now(), change.actor)

    def test_the_whole_history_shows_it_without_the_key(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.forget("a")

        changes = durable.history().data

        assert changes[0].op == "forget"
        assert {(each.key, each.content) for each in changes} == {(None, None)}

    def test_a_forgotten_key_stored_again_is_a_new_entry(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core")
        durable.forget("a")

        again = durable.set("a", "x", category="core")

        assert again.outcome == "created"
        assert again.id != first.id
        assert again.seq > first.seq

    def test_the_traces_of_a_key_in_others_changes_go_with_it(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=1)
        durable.set("cold", "x", category="note")
        durable.set("warm", "x", category="note")
        durable.forget("warm")

        causes = [each.cause for each in durable.history().data]

        assert "warm" not in str(causes)


class DurableRevivalContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_run_open_meanwhile_cannot_revive_a_key(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="core")
        with durable.run() as run:
            clock.tick(60)
            durable.forget("a")

            with refused(Forgotten, "007") as refusal:
                run.set("a", "x", category="core")

        error: Any = refusal.value
        assert error.forgotten_at == clock.now()
        assert error.by
        assert error.next
        assert durable.get("a") is None

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_nor_by_capture_nor_in_a_batch(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        with durable.run() as run:
            durable.forget("a")

            captured = run.capture(run.hydration.entries)
            with refused(Forgotten, "007"):
                run.set_many([{"key": "a", "content": "x", "category": "core"}])

        assert [each.error.code for each in captured.refused] == ["HF-MEM-007"]
        assert durable.get("a") is None

    def test_nor_in_another_of_its_own_scopes(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        with durable.run() as run:
            durable.forget("a")

            with refused(Forgotten, "007"):
                run.set("a", "x", category="daily")

    def test_the_run_that_forgot_may_store_again(self, durable: DurableMemory) -> None:
        durable.set("a", "wrong", category="core")
        with durable.run() as run:
            run.forget("a")

            assert run.set("a", "right", category="core").outcome == "created"

    def test_another_run_that_forgot_stops_the_first(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        with durable.run(lane="one") as first, durable.run(lane="two") as second:
            second.forget("a")

            with refused(Forgotten, "007"):
                first.set("a", "x", category="core")

    def test_a_later_run_may_store_it(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.forget("a")

        with durable.run() as run:
            assert run.set("a", "y", category="core").outcome == "created"

    def test_a_direct_set_may_store_it(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        with durable.run():
            durable.forget("a")

            assert durable.set("a", "y", category="core").outcome == "created"

    def test_a_shared_key_forgotten_by_another_agent_is_not_revived(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        durable.set("a", "x", category="workspace")
        with durable.run() as run:
            other.forget("a")

            with refused(Forgotten, "007"):
                run.set("a", "x", category="workspace")

    def test_other_keys_are_not_held_up(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        with durable.run() as run:
            durable.forget("a")

            assert run.set("b", "x", category="core").outcome == "created"

    def test_a_change_of_a_forgotten_key_cannot_be_restored(self, durable: DurableMemory) -> None:
        stored = durable.set("a", "x", category="core")
        durable.forget("a")

        with refused(NotFound, "002"):
            durable.restore("a", stored.seq)

    def test_a_tombstone_outlives_30_days_after_the_last_run_begun_before_it_and_then_goes(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="core")
        with durable.run():
            durable.forget("a")
            clock.tick(60)
        clock.tick(30 * 86_400 - 60)
        durable.sweep()
        kept = durable.explain("a").reason
        clock.tick(61 * 86_400)
        durable.sweep()

        assert kept == "forgotten"
        assert durable.explain("a").reason == "never_stored"


@pytest.mark.surface("file", "deleted rows leave the file")
class DurableForgottenAgentContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_all_of_the_agent_goes_and_nothing_of_others(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        durable.set_limits(cap=5)
        durable.set("a", "x", category="core")
        durable.forget("a")
        durable.set("b", "x", category="core")
        durable.set("w", "x", category="workspace")
        other.set("c", "x", category="core")

        hf.forget_agent("agent_7")

        assert [each.key for each in durable.history().data if each.key] == ["w"]
        assert listed(durable) == ["w"]
        assert durable.explain("a").reason == "never_stored"
        assert durable.limits().cap == 1000
        assert listed(other) == ["c", "w"]
        assert "agent_7" not in [each.agent for each in hf.durable_agents().data]

    def test_its_name_goes_from_what_it_wrote_for_all(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory
    ) -> None:
        with durable.run() as run:
            run.set("w", "x", category="workspace")

        hf.forget_agent("agent_7")

        entry = other.get("w")
        assert entry is not None
        assert "agent_7" not in str((entry, other.history().data))
        assert entry.created_by.actor.id == "forgotten"

    def test_a_run_begun_before_stays_refused(self, hf: Holdfast, durable: DurableMemory) -> None:
        run = durable.run("run_1")
        hf.forget_agent("agent_7")

        with refused(StaleRun, "006"):
            run.set("a", "x", category="core")
        with durable.run("run_1") as later:
            with refused(StaleRun, "006"):
                run.set("a", "x", category="core")
            assert later.set("a", "x", category="core").outcome == "created"
