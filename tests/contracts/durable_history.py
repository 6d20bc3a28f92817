"""What the change log of durable memory tells."""

from hashlib import sha256

import pytest

from contracts.durable_writes import GivenAnAgent, bad, refused
from holdfast.ground.errors import NotFound
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


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

    def test_restoring_writes_what_a_change_held(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core", tags=("t",))
        durable.set("a", "y", category="note")

        stored = durable.restore("a", first.seq)

        assert (stored.content, stored.category) == ("x", "core")
        assert stored.seq > first.seq
        assert durable.history("a").data[0].op == "restore"

    def test_what_was_redacted_cannot_be_restored(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core")
        durable.set("a", "y", category="core")
        durable.redact(first.seq)

        with refused(NotFound, "002"):
            durable.restore("a", first.seq)
