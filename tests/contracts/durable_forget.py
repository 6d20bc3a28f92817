"""What holds once something was forgotten."""

from typing import Any

import pytest

from contracts.durable_writes import GivenAnAgent, bad, listed, refused, seen
from holdfast.ground.errors import Forgotten, NotFound, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import EntryScope
from holdfast.testing.fakes import FrozenClock


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
