"""Contract of writes of durable memory: one, many, replayed, promoted."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, timedelta
from typing import Any

import pytest
from msgspec import Struct

from holdfast.ground.errors import (
    HoldfastError,
    IdempotencyMismatch,
    InvalidInput,
    MemoryFull,
    NotFound,
    PreconditionFailed,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import DurableEntry, Gone
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock

DAILY = timedelta(hours=72)
MILLISECOND = timedelta(milliseconds=1)
WIDTHS = ("a", "é", "語", "🦀")
"""A character of each length in UTF-8, 1 to 4 bytes."""


class GivenAnAgent:
    """Gives the memories of two agents, made through the subclass's `hf`."""

    @pytest.fixture
    def durable(self, hf: Holdfast) -> DurableMemory:
        """Give the memory of one agent."""
        return hf.durable("agent_7")

    @pytest.fixture
    def other(self, hf: Holdfast) -> DurableMemory:
        """Give the memory of another agent of the same workspace."""
        return hf.durable("agent_8")


def text_of(size: int, char: str = "a") -> str:
    """Return a text of exactly *size* UTF-8 bytes, of *char* as far as it goes."""
    whole, rest = divmod(size, len(char.encode()))
    return char * whole + "b" * rest


def keys_of(entries: Iterable[DurableEntry | Gone]) -> list[str]:
    """Return the keys of *entries*, in their order."""
    return [each.key for each in entries]


def listed(durable: DurableMemory) -> list[str]:
    """Return the keys that *durable* lists, newest first."""
    return keys_of(durable.list(limit=1000).all())


def seen(hydration: Hydration) -> list[str]:
    """Return the keys that *hydration* took, in their order."""
    return keys_of(hydration.entries)


@contextmanager
def refused(kind: type[HoldfastError], code: str) -> Generator[pytest.ExceptionInfo[HoldfastError]]:
    """Expect a refusal of *kind* that carries the durable *code*."""
    with pytest.raises(kind) as caught:
        yield caught
    assert (caught.value.code, type(caught.value)) == (f"HF-MEM-{code}", kind)
    assert caught.value.message
    assert caught.value.next


@contextmanager
def bad(field: str) -> Generator[pytest.ExceptionInfo[HoldfastError]]:
    """Expect InvalidInput that names *field*, or something within it."""
    with refused(InvalidInput, "004") as caught:
        yield caught
    error = caught.value
    assert isinstance(error, InvalidInput)
    assert error.field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] == field


def item(key: str, content: str = "x", category: str = "core") -> dict[str, Any]:
    """Return what `set_many` is given for one entry."""
    return {"key": key, "content": content, "category": category}


class DurableManyContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_all_are_written_in_their_order(self, durable: DurableMemory) -> None:
        many = durable.set_many([item("a"), item("b"), {**item("c"), "tags": ["u", "t"]}])

        assert keys_of(many.stored) == ["a", "b", "c"]
        assert [each.outcome for each in many.stored] == ["created"] * 3
        assert many.stored[2].tags == ("t", "u")
        assert many.refused == ()
        assert listed(durable) == ["c", "b", "a"]

    def test_entries_may_be_given_as_they_were_read(
        self, durable: DurableMemory, other: DurableMemory
    ) -> None:
        durable.set("a", "x", category="core", tags=("t",))

        other.set_many(durable.list().data)

        entry = other.get("a")
        assert entry is not None
        assert (entry.content, entry.category, entry.tags) == ("x", "core", ("t",))

    def test_none_at_all_may_be_given(self, durable: DurableMemory) -> None:
        assert durable.set_many([]).stored == ()

    def test_the_same_key_twice_is_written_twice(self, durable: DurableMemory) -> None:
        many = durable.set_many([item("a"), item("a", "y")])

        assert [each.outcome for each in many.stored] == ["created", "replaced"]

    def test_the_first_bad_item_raises_and_nothing_is_written(self, durable: DurableMemory) -> None:
        with refused(InvalidInput, "004") as refusal:
            durable.set_many([item("a"), item("b", "\0"), item("", "y")])

        error: Any = refusal.value
        assert error.index == 1
        assert listed(durable) == []

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_bad_item_that_only_the_store_can_tell_carries_its_index(
        self, durable: DurableMemory
    ) -> None:
        durable.set_limits(cap=1)
        durable.set("a", "x", category="core")

        with refused(MemoryFull, "005") as refusal:
            durable.set_many([item("a", "y"), item("b", category="note")])

        error: Any = refusal.value
        assert error.index == 1
        assert durable.get("a").content == "x"  # pyright: ignore[reportOptionalMemberAccess]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_bad_items_are_skipped_when_asked(self, durable: DurableMemory) -> None:
        durable.set_limits(cap=2)

        many = durable.set_many(
            [item("a"), item("b", "\0"), item("c"), item("d", category="note"), item(" e")],
            on_error="skip",
        )

        assert keys_of(many.stored) == ["a", "c"]
        assert [(each.index, each.key) for each in many.refused] == [
            (1, "b"),
            (3, "d"),
            (4, " e"),
        ]
        assert [each.error.code for each in many.refused] == [
            "HF-MEM-004",
            "HF-MEM-005",
            "HF-MEM-004",
        ]
        assert all(each.error.message and each.error.next for each in many.refused)
        assert listed(durable) == ["c", "a"]

    def test_in_a_run_conversation_entries_go_in_with_the_others(
        self, durable: DurableMemory
    ) -> None:
        items = [item("a"), item("b", category="conversation"), item("c", category="workspace")]

        with durable.run() as run:
            many = run.set_many(items)

        assert [each.scope for each in many.stored] == ["agent", "run", "workspace"]
        assert listed(durable) == ["c", "a"]

    def test_an_eviction_is_told_with_the_entry_that_brought_it(
        self, durable: DurableMemory
    ) -> None:
        durable.set_limits(cap=2)
        durable.set("cold", "x", category="note")

        many = durable.set_many([item("a"), item("b"), item("a", "y")])

        assert [keys_of(each.evicted) for each in many.stored] == [[], ["cold"], []]

    def test_without_refresh_what_is_the_same_stays_as_it_is(self, durable: DurableMemory) -> None:
        first = durable.set("a", "x", category="core")

        many = durable.set_many([item("a"), item("b")], refresh=False)

        assert [each.outcome for each in many.stored] == ["unchanged", "created"]
        assert many.stored[0].seq == first.seq

    def test_a_thousand_are_taken_and_one_more_is_not(self, durable: DurableMemory) -> None:
        most = [item(f"k{number}") for number in range(1000)]

        with bad("items"):
            durable.set_many([*most, item("one more")])
        assert len(durable.set_many(most).stored) == 1000

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("on_error", ["stop", "", None])
    def test_another_way_with_errors_is_refused(
        self, durable: DurableMemory, on_error: Any
    ) -> None:
        with bad("on_error"):
            durable.set_many([item("a")], on_error=on_error)


LONGEST = "shared:" + "k" * 480
"""As long as a key of a run's memory may be."""


class Value(Struct, frozen=True):
    """A value as a run's memory gives it."""

    value: object
    kind: str = "shared"
    source: str | None = None


class DurablePromotingContract(GivenAnAgent):
    """Subclass it, and give it an `hf` fixture."""

    def test_a_value_becomes_an_entry_that_says_where_it_is_from(
        self, durable: DurableMemory
    ) -> None:
        values = {"shared:owner": Value({"name": "Ada", "at": [1, 2]})}

        stored = durable.promote(values, "shared:owner", category="core", tags=["team"])

        assert (stored.key, stored.content) == ("owner", '{"at":[1,2],"name":"Ada"}')
        assert (stored.category, stored.tags, stored.outcome) == ("core", ("team",), "created")
        assert durable.history("owner").data[0].cause == {"promoted_from": "shared:owner"}

    def test_the_log_tells_of_which_run_by_whom_and_in_which_version(
        self, durable: DurableMemory
    ) -> None:
        memory = RunMemory(run_id="run_42")
        memory.set("shared:owner", "Ada", source="scout")
        memory.set("shared:owner", "Bob", source="research")

        durable.promote(memory, "shared:owner", category="core")

        assert durable.history("owner").data[0].cause == {
            "promoted_from": "shared:owner",
            "run_id": "run_42",
            "source": "research",
            "version": "2",
        }

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_the_longest_key_of_a_run_may_be_where_it_is_from(self, durable: DurableMemory) -> None:
        stored = durable.promote({LONGEST: Value("x")}, LONGEST, category="core", as_key="a")

        assert stored.key == "a"
        assert durable.history("a").data[0].cause == {"promoted_from": LONGEST}

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_a_key_too_long_for_an_entry_needs_another(self, durable: DurableMemory) -> None:
        with bad("key"):
            durable.promote({LONGEST: Value("x")}, LONGEST, category="core")

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_a_longer_key_than_any_of_a_run_is_refused(self, durable: DurableMemory) -> None:
        longer = f"{LONGEST}k"

        with bad("promoted_from"):
            durable.promote({longer: Value("x")}, longer, category="core", as_key="a")

    def test_where_nothing_is_there_is_nothing_to_promote(self, durable: DurableMemory) -> None:
        nothing: dict[str, Value] = {}

        with refused(NotFound, "002"):
            durable.promote(nothing, "shared:owner", category="core")
        assert durable.history().data == []


@pytest.mark.surface("file", "a transaction is committed to disk")
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


@pytest.mark.surface("http", "what was expected crosses the wire")
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
            durable.set("a", "x", category="core", expected_seq=2**40)

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


@pytest.mark.surface("file", "answers are stored on disk")
@pytest.mark.surface("http", "an answer that is lost is asked for again")
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
            durable.set("a", "x", category="core", expected_seq=2**40, idempotency_key="once")
        durable.set("a", "w", category="core")

        with refused(PreconditionFailed, "009"):
            durable.set("a", "x", category="core", expected_seq=2**40, idempotency_key="once")

    @pytest.mark.parametrize("key", ["", "k" * 129, "é" * 65])
    def test_a_key_beyond_1_to_128_bytes_is_refused(self, durable: DurableMemory, key: str) -> None:
        with bad("idempotency_key"):
            durable.set("a", "x", category="core", idempotency_key=key)

    def test_a_key_of_128_bytes_is_taken(self, durable: DurableMemory) -> None:
        assert durable.set("a", "x", category="core", idempotency_key="é" * 64).seq
