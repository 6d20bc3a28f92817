"""What holds when an entry of durable memory is written."""

from datetime import UTC
from typing import Any

import pytest

from contracts.durable_given import GivenAnAgent, bad, listed, refused
from holdfast.ground.errors import IdempotencyMismatch, PreconditionFailed
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


class DurableWritingContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_entry_holds_what_was_given(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        stored = durable.set("owner", "täbs", category="core", tags=("web", "ops", "web"))

        assert (stored.key, stored.content, stored.category) == ("owner", "täbs", "core")
        assert stored.tags == ("ops", "web")
        assert (stored.scope, stored.agent, stored.run_id) == ("agent", "agent_7", None)
        assert stored.size_bytes == 5 + 5 + 4 + 6
        assert stored.created_at == stored.updated_at == clock.now()
        assert stored.expires_at is None
        assert stored.id.startswith("entry_")
        assert stored.seq > 0
        assert stored.outcome == "created"
        assert (stored.evicted, stored.expired, stored.shadows, stored.notices) == (
            (),
            (),
            None,
            (),
        )

    def test_get_answers_with_what_was_set(self, durable: DurableMemory) -> None:
        stored = durable.set("owner", "ada", category="core", tags=("b", "a"))

        entry = durable.get("owner")

        assert entry is not None
        names = entry.__struct_fields__
        assert [getattr(entry, each) for each in names] == [getattr(stored, each) for each in names]

    def test_times_are_in_utc_with_whole_milliseconds(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        clock.tick(0.123456)

        stored = durable.set("a", "x", category="daily")
        clock.tick(1 - 0.123456)

        assert stored.expires_at is not None
        for each in (stored.created_at, stored.updated_at, stored.expires_at):
            assert (each.tzinfo, each.microsecond % 1000) == (UTC, 0)

    def test_outside_a_run_the_handles_actor_wrote(self, durable: DurableMemory) -> None:
        stored = durable.set("a", "x", category="core")

        assert stored.created_by == stored.updated_by
        assert (stored.created_by.run_id, stored.created_by.run_token) == (None, None)

    def test_the_same_again_is_refreshed(self, durable: DurableMemory, clock: FrozenClock) -> None:
        first = durable.set("a", "x", category="daily", tags=("t",))
        clock.tick(60)
        again = durable.set("a", "x", category="daily", tags=("t",))

        assert again.outcome == "refreshed"
        assert (again.id, again.created_at) == (first.id, first.created_at)
        assert again.seq > first.seq
        assert again.updated_at == clock.now()
        assert first.expires_at is not None
        assert again.expires_at is not None
        assert again.expires_at > first.expires_at

    def test_the_same_again_without_refresh_writes_nothing(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        first = durable.set("a", "x", category="daily", tags=("t", "u"))
        clock.tick(60)
        again = durable.set("a", "x", category="daily", tags=("u", "t", "u"), refresh=False)

        assert again.outcome == "unchanged"
        assert (again.seq, again.updated_at) == (first.seq, first.updated_at)
        assert again.expires_at == first.expires_at
        assert len(durable.history().data) == 1

    @pytest.mark.parametrize("refresh", [True, False])
    @pytest.mark.parametrize(
        "change",
        [{"content": "y"}, {"category": "note"}, {"tags": ("t",)}],
        ids=lambda each: [*each],
    )
    def test_anything_else_replaces_the_entry(
        self, durable: DurableMemory, clock: FrozenClock, change: dict[str, Any], *, refresh: bool
    ) -> None:
        first = durable.set("a", "x", category="core")
        clock.tick(60)
        given: dict[str, Any] = {"key": "a", "content": "x", "category": "core", **change}
        again = durable.set(**given, refresh=refresh)

        assert again.outcome == "replaced"
        assert (again.id, again.created_at) == (first.id, first.created_at)
        assert again.seq > first.seq
        assert again.updated_at == clock.now()

    def test_tags_that_are_not_given_are_no_tags(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core", tags=("t",))

        assert durable.set("a", "x", category="core").tags == ()

    def test_category_is_required(self, durable: DurableMemory) -> None:
        set_bare: Any = durable.set

        with pytest.raises(TypeError, match="category"):
            set_bare("a", "x")

    def test_numbers_rise_with_each_write_of_all_agents(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        numbers = [
            (durable if each % 2 else other).set(f"k{each}", "x", category="workspace").seq
            for each in range(6)
        ]

        assert numbers == sorted(set(numbers))


class DurablePreconditionsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_an_expected_number_that_is_the_current_one_writes(
        self, durable: DurableMemory
    ) -> None:
        first = durable.set("a", "x", category="core")

        again = durable.set("a", "y", category="core", expected_seq=first.seq)

        assert again.outcome == "replaced"

    def test_an_expected_number_that_is_not_the_current_one_writes_nothing(
        self, durable: DurableMemory
    ) -> None:
        first = durable.set("a", "x", category="core")
        durable.set("a", "y", category="core")

        with refused(PreconditionFailed, "009") as refusal:
            durable.set("a", "z", category="core", expected_seq=first.seq)

        error: Any = refusal.value
        assert error.key == "a"
        assert error.expected == first.seq
        assert error.current == durable.get("a")
        assert error.current.content == "y"

    def test_zero_writes_only_where_there_is_no_entry(self, durable: DurableMemory) -> None:
        assert durable.set("a", "x", category="core", expected_seq=0).outcome == "created"

        with refused(PreconditionFailed, "009"):
            durable.set("a", "y", category="core", expected_seq=0)

    def test_a_number_where_there_is_no_entry_writes_nothing(self, durable: DurableMemory) -> None:
        with refused(PreconditionFailed, "009") as refusal:
            durable.set("a", "x", category="core", expected_seq=7)

        error: Any = refusal.value
        assert error.current is None
        assert durable.get("a") is None

    def test_zero_writes_over_an_entry_that_expired(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("a", "x", category="daily")
        clock.tick(80 * 3600)

        assert durable.set("a", "y", category="daily", expected_seq=0).outcome == "created"

    @pytest.mark.parametrize("expected", [-1, True, "1", 1.5])
    def test_an_expected_number_that_is_none_is_refused(
        self, durable: DurableMemory, expected: Any
    ) -> None:
        with bad("expected_seq"):
            durable.set("a", "x", category="core", expected_seq=expected)


class DurableReplaysContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_repeat_returns_the_first_result_and_changes_nothing(
        self, durable: DurableMemory
    ) -> None:
        first = durable.set("a", "x", category="core", idempotency_key="once")
        durable.set("a", "y", category="core")

        assert durable.set("a", "x", category="core", idempotency_key="once") == first
        entry = durable.get("a")
        assert entry is not None
        assert entry.content == "y"

    def test_a_repeat_after_forgetting_does_not_revive(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core", idempotency_key="once")
        durable.forget("a")

        assert durable.set("a", "x", category="core", idempotency_key="once") == first
        assert durable.get("a") is None

    @pytest.mark.parametrize(
        "change",
        [{"key": "b"}, {"content": "y"}, {"category": "note"}, {"tags": ("t",)}],
        ids=lambda each: [*each],
    )
    def test_other_arguments_under_the_same_idempotency_key_are_refused(
        self, durable: DurableMemory, change: dict[str, Any]
    ) -> None:
        given: dict[str, Any] = {
            "key": "a",
            "content": "x",
            "category": "core",
            "idempotency_key": "once",
        }
        durable.set(**given)

        with refused(IdempotencyMismatch, "010"):
            durable.set(**{**given, **change})

        assert listed(durable) == ["a"]

    def test_the_key_is_the_agents_own(self, durable: DurableMemory, other: DurableMemory) -> None:
        durable.set("a", "x", category="core", idempotency_key="once")

        assert other.set("b", "y", category="core", idempotency_key="once").outcome == "created"

    def test_a_repeat_is_known_for_a_day(self, durable: DurableMemory, clock: FrozenClock) -> None:
        first = durable.set("a", "x", category="core", idempotency_key="once")
        clock.tick(24 * 3600 - 1)
        repeated = durable.set("a", "x", category="core", idempotency_key="once")
        clock.tick(2)
        written = durable.set("a", "x", category="core", idempotency_key="once")

        assert repeated == first
        assert written.outcome == "refreshed"

    def test_a_refused_write_may_be_repeated(self, durable: DurableMemory) -> None:
        with refused(PreconditionFailed, "009"):
            durable.set("a", "x", category="core", expected_seq=9, idempotency_key="once")
        durable.set("a", "w", category="core")

        with refused(PreconditionFailed, "009"):
            durable.set("a", "x", category="core", expected_seq=9, idempotency_key="once")

    @pytest.mark.parametrize("key", ["", "k" * 129, "é" * 65])
    def test_a_key_beyond_1_to_128_bytes_is_refused(self, durable: DurableMemory, key: str) -> None:
        with bad("idempotency_key"):
            durable.set("a", "x", category="core", idempotency_key=key)

    def test_a_key_of_128_bytes_is_taken(self, durable: DurableMemory) -> None:
        assert durable.set("a", "x", category="core", idempotency_key="é" * 64).seq
