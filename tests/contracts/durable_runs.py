"""Contract of runs, captured values and history of durable memory."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from contracts.durable_writes import DAILY, GivenAnAgent, bad, keys_of, listed, refused, seen
from holdfast.ground.errors import NotFound, RunRequired, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory, DurableRun
from holdfast.testing.fakes import FrozenClock

DAY = 86_400
ACTS: dict[str, Callable[[DurableRun], object]] = {
    "set": lambda run: run.set("b", "y", category="core"),
    "set_many": lambda run: run.set_many([{"key": "b", "content": "y", "category": "core"}]),
    "capture": lambda run: run.capture([{"key": "b", "content": "y", "category": "core"}]),
    "get": lambda run: run.get("a"),
    "list": lambda run: run.list(),
    "forget": lambda run: run.forget("a"),
    "hydrate": lambda run: run.hydrate(),
    "explain": lambda run: run.explain("a"),
    "heartbeat": lambda run: run.heartbeat(),
    "end": lambda run: run.end(),
}


@pytest.mark.surface("file", "leases are read from the file")
class DurableRunsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_run_has_its_id_its_lane_a_token_and_a_hydration(
        self, durable: DurableMemory
    ) -> None:
        durable.set("a", "x", category="core")

        with durable.run("run_1", lane="chat") as run:
            assert (run.run_id, run.lane) == ("run_1", "chat")
            assert run.token > 0
            assert seen(run.hydration) == ["a"]
            assert run.hydration.run_id == "run_1"

    def test_a_run_may_go_without_a_name(self, durable: DurableMemory) -> None:
        with durable.run() as one, durable.run(lane="two") as two:
            assert one.run_id
            assert one.run_id != two.run_id

    def test_tokens_of_a_lane_rise(self, durable: DurableMemory) -> None:
        tokens = [durable.run().token for _ in range(4)]

        assert tokens == sorted(set(tokens))

    def test_a_write_in_a_run_is_the_agents(self, durable: DurableMemory) -> None:
        with durable.run("run_1") as run:
            stored = run.set("a", "x", category="core")

        by = stored.created_by
        assert (by.actor.kind, by.actor.id) == ("agent", "agent_7")
        assert (by.run_id, by.run_token) == ("run_1", run.token)
        assert (stored.scope, stored.run_id) == ("agent", None)

    @pytest.mark.parametrize("act", ACTS)
    def test_a_superseded_run_can_do_nothing(self, durable: DurableMemory, act: str) -> None:
        durable.set("a", "x", category="core")
        old = durable.run()
        new = durable.run()

        with refused(StaleRun, "006") as refusal:
            ACTS[act](old)

        error: Any = refusal.value
        assert (error.reason, error.token, error.live_token) == ("superseded", old.token, new.token)
        assert error.next
        assert listed(durable) == ["a"]

    @pytest.mark.parametrize("act", [each for each in ACTS if each != "end"])
    def test_an_ended_run_can_do_nothing(self, durable: DurableMemory, act: str) -> None:
        durable.set("a", "x", category="core")
        with durable.run() as run:
            pass

        with refused(StaleRun, "006") as refusal:
            ACTS[act](run)

        error: Any = refusal.value
        assert (error.reason, error.token) == ("ended", run.token)
        assert listed(durable) == ["a"]

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("act", ACTS)
    def test_a_lapsed_run_can_do_nothing(
        self, durable: DurableMemory, clock: FrozenClock, act: str
    ) -> None:
        durable.set("a", "x", category="core")
        run = durable.run()
        clock.tick(DAY + 1)
        durable.sweep()

        with refused(StaleRun, "006") as refusal:
            ACTS[act](run)

        error: Any = refusal.value
        assert error.reason == "lapsed"
        assert listed(durable) == ["a"]

    def test_lanes_do_not_disturb_each_other(self, durable: DurableMemory) -> None:
        with durable.run(lane="a") as one, durable.run(lane="b") as two:
            assert one.set("a", "x", category="core").seq
            assert two.set("b", "x", category="core").seq

    def test_agents_do_not_disturb_each_other(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        with durable.run("run_1") as one, other.run("run_1") as two:
            one.set("a", "x", category="conversation")

            assert two.get("a") is None

    def test_a_run_id_may_be_used_again(self, durable: DurableMemory) -> None:
        with durable.run("run_1") as first:
            first.set("a", "x", category="conversation")

        with durable.run("run_1") as second:
            assert second.token > first.token
            assert second.get("a") is None

    def test_ending_says_how_many_conversation_entries_went(self, durable: DurableMemory) -> None:
        run = durable.run()
        run.set("a", "x", category="conversation")
        run.set("b", "x", category="conversation")
        run.set("c", "x", category="core")

        assert run.end().removed == 2
        assert listed(durable) == ["c"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_exception_ends_the_run_as_well(self, durable: DurableMemory) -> None:
        run = durable.run()
        run.set("a", "x", category="conversation")

        with pytest.raises(KeyError), run:
            raise KeyError

        with refused(StaleRun, "006"):
            run.get("a")

    def test_leaving_a_superseded_run_raises_nothing(self, durable: DurableMemory) -> None:
        with durable.run(), durable.run() as new:
            new.set("a", "x", category="core")

        assert listed(durable) == ["a"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_run_lapses_a_day_after_its_last_sign_of_life(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        run = durable.run()
        clock.tick(DAY - 60)
        run.set("a", "x", category="conversation")
        clock.tick(DAY - 60)
        run.heartbeat()
        clock.tick(DAY - 60)
        swept_alive = durable.sweep()
        clock.tick(120)
        swept = durable.sweep()

        assert (swept_alive.ended_runs, swept_alive.removed) == (0, 0)
        assert (swept.ended_runs, swept.removed) == (1, 1)

    def test_a_budget_is_that_of_the_runs_hydration(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")

        with durable.run(budget=0) as run:
            assert (run.hydration.budget, run.hydration.entries) == (0, ())


class DurableConversationsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_outside_a_run_there_is_no_conversation(self, durable: DurableMemory) -> None:
        with refused(RunRequired, "008") as refusal:
            durable.set("a", "x", category="conversation")

        assert refusal.value.next
        assert durable.history().data == []

    def test_a_conversation_entry_is_its_runs_alone(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        with durable.run("one", lane="a") as run, durable.run("two", lane="b") as beside:
            stored = run.set("a", "x", category="conversation")

            assert (stored.scope, stored.run_id) == ("run", "one")
            for each in (durable, other, beside):
                assert each.get("a") is None
                assert each.list().data == []
                assert seen(each.hydrate()) == []
                assert each.explain("a").hydrated is False
                assert each.forget("a") is False
            assert keys_of(run.list().data) == seen(run.hydrate()) == ["a"]
            assert run.explain("a").reason == "window"

    def test_after_a_crash_the_next_run_of_the_lane_deletes_them(
        self, durable: DurableMemory
    ) -> None:
        crashed = durable.run("one")
        crashed.set("a", "x", category="conversation")

        with durable.run("two") as run:
            assert run.get("a") is None
        with durable.run("one", resume=True) as again:
            assert again.get("a") is None

    @pytest.mark.parametrize("budget", [None, 3], ids=["all fits", "little fits"])
    def test_the_same_id_without_resume_takes_nothing_over(
        self, durable: DurableMemory, budget: int | None
    ) -> None:
        durable.set("big", "too much for a little", category="core")
        durable.run("one").set("a", "x", category="conversation")

        with durable.run("one", budget=budget) as again:
            hydrated = (*again.hydration.entries, *again.hydration.omitted)
            assert (again.get("a"), [each.key for each in hydrated]) == (None, ["big"])
            assert keys_of(again.list()) == ["big"]
            assert again.explain("a").hydrated is False

    def test_the_same_id_after_it_lapsed_takes_nothing_over(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.run("one").set("a", "x", category="conversation")
        clock.tick(DAY + 1)

        with durable.run("one") as again:
            assert (again.get("a"), seen(again.hydration)) == (None, [])

    def test_the_same_id_in_another_lane_takes_nothing_over(self, durable: DurableMemory) -> None:
        durable.run("one", lane="a").set("a", "x", category="conversation")

        with durable.run("one", lane="b") as second:
            assert (second.get("a"), seen(second.hydration)) == (None, [])

    def test_resuming_takes_over_what_the_crashed_run_had(self, durable: DurableMemory) -> None:
        crashed = durable.run("one")
        stored = crashed.set("a", "x", category="conversation")

        with durable.run("one", resume=True) as again:
            entry = again.get("a")
            assert again.token > crashed.token
            assert seen(again.hydration) == ["a"]
            assert entry is not None
            assert (entry.id, entry.content) == (stored.id, "x")
            with refused(StaleRun, "006"):
                crashed.get("a")
            again.set("a", "y", category="conversation")

    def test_a_resumed_run_hydrates_within_its_budget_too(self, durable: DurableMemory) -> None:
        durable.set("big", "too much for a little", category="core")
        crashed = durable.run("one")
        stored = crashed.set("a", "x", category="conversation")

        with durable.run("one", resume=True, budget=stored.size_bytes) as again:
            assert seen(again.hydration) == ["a"]
            assert [each.key for each in again.hydration.omitted] == ["big"]

    def test_resuming_another_run_of_the_lane_takes_nothing_over(
        self, durable: DurableMemory
    ) -> None:
        durable.run("one").set("a", "x", category="conversation")

        with durable.run("two", resume=True) as run:
            assert (run.get("a"), seen(run.hydration)) == (None, [])

    def test_resuming_without_a_name_is_refused(self, durable: DurableMemory) -> None:
        with bad("resume"):
            durable.run(resume=True)

    def test_resuming_nothing_is_a_run_like_any(self, durable: DurableMemory) -> None:
        with durable.run("one", resume=True) as run:
            assert run.hydration.entries == ()

    def test_a_sweep_deletes_those_of_lapsed_runs_of_all_agents(
        self, hf: Holdfast, durable: DurableMemory, other: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.run().set("a", "x", category="conversation")
        other.run().set("b", "x", category="conversation")
        clock.tick(DAY + 1)

        swept = hf.sweep()

        assert (swept.ended_runs, swept.removed) == (2, 2)
        assert hf.sweep().removed == 0


class DurableCaptureContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_capture_writes_only_what_differs(self, durable: DurableMemory) -> None:
        same = durable.set("a", "x", category="core")
        durable.set("b", "x", category="core")

        with durable.run() as run:
            first, second = sorted(run.hydration.entries, key=lambda each: each.key)
            many = run.capture(
                [
                    first,
                    {"key": second.key, "content": "y", "category": "core"},
                    {"key": "c", "content": "x", "category": "note"},
                ]
            )

        assert [each.outcome for each in many.stored] == ["unchanged", "replaced", "created"]
        assert many.stored[0].seq == same.seq

    def test_what_was_merely_hydrated_stays_as_cold_as_it_was(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set_limits(cap=2)
        durable.set("a", "x", category="daily")
        durable.set("b", "x", category="note")
        clock.tick(DAILY.total_seconds() - 60)

        with durable.run() as run:
            run.capture(run.hydration.entries)
            stored = run.set("c", "x", category="note")

        assert keys_of(stored.evicted) == ["a"]


class DurableHistoryContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_each_mutation_is_told_newest_first(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.set("a", "x", category="core")
        durable.set("a", "x", category="core", refresh=False)
        durable.set("a", "y", category="core")

        changes = durable.history("a").data

        assert [each.op for each in changes] == ["replace", "refresh", "create"]
        numbers = [each.seq for each in changes]
        assert numbers == sorted(numbers, reverse=True)

    def test_a_change_tells_what_was_written(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        stored = durable.set("a", "täbs", category="core", tags=("t",))

        (change,) = durable.history().data

        assert (change.seq, change.at) == (stored.seq, clock.now())
        assert (change.key, change.category, change.scope) == ("a", "core", "agent")
        assert (change.size_bytes, change.content) == (stored.size_bytes, "täbs")
        assert change.content_sha256 == sha256("täbs".encode()).hexdigest()
        assert change.actor == stored.updated_by
        assert (change.run_id, change.run_token, change.redacted_at) == (None, None, None)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_change_in_a_run_names_the_run(self, durable: DurableMemory) -> None:
        with durable.run("run_1") as run:
            run.set("a", "x", category="core")

        change = durable.history("a").data[0]

        assert (change.run_id, change.run_token) == ("run_1", run.token)

    def test_the_workspaces_changes_are_everybodys(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        other.set("a", "x", category="workspace")
        other.set("b", "x", category="core")

        assert [each.key for each in durable.history().data] == ["a"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_filters_and_pages(self, durable: DurableMemory, clock: FrozenClock) -> None:
        durable.set("a", "x", category="core")
        at = clock.tick(60)
        durable.set("b", "x", category="core")
        durable.set("b", "y", category="core")

        assert [each.key for each in durable.history(op="create").data] == ["b", "a"]
        assert [each.op for each in durable.history(since=at).data] == ["replace", "create"]
        walked = [each.seq for each in durable.history(limit=1).all()]
        assert len(walked) == 3
        assert walked == sorted(walked, reverse=True)

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("limit", [0, 1001])
    def test_a_limit_beyond_1_to_1000_is_refused(self, durable: DurableMemory, limit: int) -> None:
        with bad("limit"):
            durable.history(limit=limit)

    def test_the_newest_20_changes_of_a_key_are_kept(self, durable: DurableMemory) -> None:
        durable.set("other", "x", category="core")
        for number in range(25):
            durable.set("a", f"v{number}", category="core")

        contents = [each.content for each in durable.history("a").data]

        assert contents == [f"v{number}" for number in range(24, 4, -1)]
        assert len(durable.history("other").data) == 1

    def test_no_change_older_than_90_days_is_kept(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="core")
        clock.tick(89 * 86_400)
        durable.sweep()
        kept = durable.history("a").data
        clock.tick(2 * 86_400)
        durable.sweep()

        assert len(kept) == 1
        assert durable.history("a").data == []
        assert durable.get("a") is not None

    def test_conversation_entries_are_logged_without_content(self, durable: DurableMemory) -> None:
        with durable.run() as run:
            run.set("a", "secret", category="conversation")
            run.set("a", "secret 2", category="conversation")

        changes = durable.history("a").data

        assert [each.op for each in changes] == ["end", "replace", "create"]
        assert {each.content for each in changes} == {None}
        assert {each.content_sha256 for each in changes} == {None}


class DurableRedactionContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_redacting_takes_content_and_hash_and_leaves_the_rest(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        first = durable.set("a", "secret", category="core")
        durable.set("a", "harmless", category="core")
        (before,) = durable.history("a", op="create").data
        clock.tick(60)

        change = durable.redact(first.seq)

        assert (change.content, change.content_sha256) == (None, None)
        assert change.redacted_at == clock.now()
        assert (change.seq, change.at, change.op, change.key, change.size_bytes) == (
            before.seq,
            before.at,
            before.op,
            before.key,
            before.size_bytes,
        )
        assert durable.history("a", op="create").data == [change]

    def test_redacting_is_logged_and_a_second_time_changes_nothing(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        first = durable.set("a", "secret", category="core")
        durable.set("a", "harmless", category="core")
        change = durable.redact(first.seq)
        clock.tick(60)

        assert durable.redact(first.seq) == change
        assert len(durable.history(op="redact").data) == 1

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_change_that_is_not_there_is_not_found(self, durable: DurableMemory) -> None:
        with refused(NotFound, "002"):
            durable.redact(123_456_789)

    def test_another_agents_change_is_not_found(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        stored = other.set("a", "x", category="core")

        with refused(NotFound, "002"):
            durable.redact(stored.seq)
        (change,) = other.history("a").data
        assert change.content == "x"

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_restoring_writes_what_a_change_held(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core", tags=("t",))
        durable.set("a", "y", category="note")

        stored = durable.restore("a", first.seq)

        assert (stored.content, stored.category) == ("x", "core")
        assert stored.seq > first.seq
        assert durable.history("a").data[0].op == "restore"

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_was_redacted_cannot_be_restored(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core")
        durable.set("a", "y", category="core")
        durable.redact(first.seq)

        with refused(NotFound, "002"):
            durable.restore("a", first.seq)
