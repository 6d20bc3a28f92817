"""Contract of run memory: keys, writes, reads, and values safe from later changes."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol, cast

import pytest

from holdfast.ground.errors import HoldfastError, InvalidInput, LimitExceeded, PreconditionFailed
from holdfast.ground.events import EventBus
from holdfast.memories.run import keys
from holdfast.memories.run.entry import UNLESS_SAID, RunEntry, RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock


class NewMemory(Protocol):
    """Makes a memory of a run of its own."""

    def __call__(
        self,
        *,
        limits: RunLimits = ...,
        bus: EventBus | None = ...,
        run_id: str | None = ...,
    ) -> RunMemory:
        """Return it, with the test's clock."""
        ...


class GivenARun:
    """Gives a memory of a run; it lives in this process, on no surface of an engine."""

    @pytest.fixture
    def clock(self) -> FrozenClock:
        """Give the clock of the memories."""
        return FrozenClock()

    @pytest.fixture
    def new(self, clock: FrozenClock) -> NewMemory:
        """Give what makes memories by `clock`."""

        def make(
            *,
            limits: RunLimits = UNLESS_SAID,
            bus: EventBus | None = None,
            run_id: str | None = None,
        ) -> RunMemory:
            return RunMemory(clock=clock, limits=limits, bus=bus, run_id=run_id)

        return make

    @pytest.fixture
    def memory(self, new: NewMemory) -> RunMemory:
        """Give the memory of a run."""
        return new()


def milliseconds(clock: FrozenClock) -> int:
    """Return the instant *clock* stands at."""
    return round(clock.now().timestamp() * 1_000)


def keys_of(memory: RunMemory) -> list[str]:
    """Return the keys of *memory* in the order of their first write."""
    return [entry.key for entry in memory.snapshot()]


def refusal(act: Callable[[], object], kind: type[HoldfastError] = InvalidInput) -> HoldfastError:
    """Return the error of exactly *kind* that *act* raises; it must have a next step."""
    with pytest.raises(kind) as refused:
        act()
    assert type(refused.value) is kind
    assert refused.value.next
    return refused.value


def invalid(act: Callable[[], object], field: str) -> InvalidInput:
    """Return the error about *field* that *act* raises."""
    error = refusal(act)
    assert isinstance(error, InvalidInput)
    assert error.field == field
    return error


DECOMPOSED, COMPOSED = "shared:e\u0301", "shared:\u00e9"


def nested(depth: int) -> object:
    """Return a list in a list, *depth* deep."""
    value: object = []
    for _ in range(depth - 1):
        value = [value]
    return value


class RunKeysContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("key", "kind"),
        [
            (keys.step("a"), "step_result"),
            (keys.task("a"), "task_result"),
            (keys.input("a"), "input"),
            (keys.shared("a"), "shared"),
        ],
    )
    def test_the_namespace_says_the_kind(self, memory: RunMemory, key: str, kind: str) -> None:
        entry = memory.set(key, 1)

        assert (entry.kind, keys.kind_of(key)) == (kind, kind)
        assert keys.split(key) == (key.partition(":")[0], "a")

    def test_an_entry_shows_its_value_as_json_cut_at_200(self, memory: RunMemory) -> None:
        small = memory.set("shared:a", {"name": "Zoë", "n": [1, None]})
        large = memory.set("shared:b", "x" * 1_000_000)

        assert """kind='shared', value={"name":"Zoë","n":[1,null]}, source=None""" in repr(small)
        assert f"""value="{"x" * 198}…, source=""" in repr(large)

    def test_a_name_may_hold_colons(self, memory: RunMemory) -> None:
        assert memory.set(keys.shared("task:x"), 1).key == "shared:task:x"
        assert keys.split("shared:task:x") == ("shared", "task:x")
        assert memory.has("task:x") is False

    @pytest.mark.parametrize(
        "key",
        [
            *("", "a", "other:a", "Step:a", "step", "step:", ":a", "shared: a", "shared:a ", None),
            *("shared:a\n", "shared:\x00", "shared:a\x7fb", "shared:a\x85b", "shared:\u2003a", 7),
            *("shared:" + "x" * 481, "shared:" + "\u00e9" * 241, "shared:\ud800", ["shared:a"]),
        ],
    )
    def test_what_is_no_key_is_refused_everywhere(self, memory: RunMemory, key: Any) -> None:
        for act in (
            lambda: memory.set(key, 1),
            lambda: memory.get(key),
            lambda: memory.get_value(key),
            lambda: memory.has(key),
            lambda: key in memory,
            lambda: memory.delete(key),
            lambda: memory.list(keys=[key]),
            lambda: memory.wait_for(key, timeout=0),
            lambda: keys.split(key),
            lambda: keys.kind_of(key),
        ):
            refusal(act)
        assert len(memory) == 0

    def test_an_unknown_namespace_is_answered_with_the_four(self, memory: RunMemory) -> None:
        error = invalid(lambda: memory.get("facts:a"), "key")

        assert "step: task: input: shared:" in error.reason

    @pytest.mark.parametrize("name", ["x" * 480, "\u00e9" * 240, "\u0130", "a b", "\U0001f600"])
    def test_a_name_may_be_long_and_in_any_script(self, memory: RunMemory, name: str) -> None:
        memory.set(keys.shared(name), 1)

        assert keys_of(memory) == [f"shared:{name}"]

    def test_one_name_in_two_spellings_is_one_key(self, memory: RunMemory) -> None:
        memory.set(DECOMPOSED, 1)

        assert keys_of(memory) == [COMPOSED]
        assert memory.get_value(DECOMPOSED) == memory.get_value(COMPOSED) == 1
        assert memory.list(keys=[DECOMPOSED]) == memory.list(key_prefix=DECOMPOSED)
        assert memory.delete(DECOMPOSED)

    def test_a_good_key_that_is_absent_is_no_error(self, memory: RunMemory) -> None:
        absent = keys.step("a")

        assert memory.get(absent) is None
        assert memory.get_value(absent, "default") == "default"
        assert (memory.has(absent), absent in memory, memory.delete(absent)) == (False,) * 3


class RunWritingContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_an_entry_says_all_there_is_to_know(
        self, memory: RunMemory, clock: FrozenClock
    ) -> None:
        entry = memory.set(
            keys.task("research"),
            {"findings": ["alpha"]},
            kind="task_result",
            source="research",
            title="Research findings",
            description="Top three sources.",
            failed=True,
        )

        assert entry == RunEntry(
            key="task:research",
            kind="task_result",
            value_json=b'{"findings":["alpha"]}',
            source="research",
            title="Research findings",
            description="Top three sources.",
            created_at=milliseconds(clock),
            updated_at=milliseconds(clock),
            version=1,
            failed=True,
        )
        assert memory.get("task:research") == entry

    def test_a_second_write_keeps_the_birthday_title_and_description_and_nothing_else(
        self, memory: RunMemory, clock: FrozenClock
    ) -> None:
        first = memory.set("shared:a", 1, source="x", title="T", description="D", failed=True)
        clock.tick()
        second = memory.set("shared:a", 2)

        assert (second.title, second.description) == ("T", "D")
        assert second.created_at == first.created_at
        assert second.updated_at == first.updated_at + 1_000
        assert (second.version, second.source, second.failed) == (2, None, False)

    def test_none_clears_title_and_description(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1, title="T", description="D")
        entry = memory.set("shared:a", 1, title=None, description=None)

        assert (entry.title, entry.description) == (None, None)

    def test_a_time_of_creation_can_be_given(self, memory: RunMemory) -> None:
        assert memory.set("shared:a", 1, created_at=0).created_at == 0
        assert memory.set("shared:a", 1).created_at == 0
        assert memory.set("shared:a", 1, created_at=5).created_at == 5

    def test_an_overwrite_keeps_its_place_and_a_new_write_after_delete_is_last(
        self, memory: RunMemory
    ) -> None:
        for name in "abc":
            memory.set(keys.shared(name), 1)
        memory.set("shared:b", 2)
        in_place = keys_of(memory)
        memory.delete("shared:a")
        again = memory.set("shared:a", 3)

        assert in_place == ["shared:a", "shared:b", "shared:c"]
        assert keys_of(memory) == ["shared:b", "shared:c", "shared:a"]
        assert again.version == 1

    def test_a_version_starts_again_after_clear(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)
        memory.set("shared:a", 1)
        memory.clear()

        assert memory.set("shared:a", 1).version == 1

    def test_a_kind_that_is_not_the_keys_is_refused_with_both(self, memory: RunMemory) -> None:
        error = invalid(lambda: memory.set("step:a", 1, kind="task_result"), "kind")

        assert "step_result" in error.reason
        assert "task_result" in error.reason
        assert len(memory) == 0

    def test_an_unknown_kind_is_answered_with_the_four(self, memory: RunMemory) -> None:
        error = invalid(lambda: memory.set("step:a", 1, kind="result"), "kind")

        assert "step_result, task_result, input, shared" in error.reason

    @pytest.mark.parametrize("expected", [0, 1])
    def test_a_write_may_ask_for_a_version(self, memory: RunMemory, expected: int) -> None:
        for _ in range(expected):
            memory.set("shared:a", "old")

        assert memory.set("shared:a", "new", expected_version=expected).version == expected + 1

    @pytest.mark.parametrize(("there", "expected"), [(0, 1), (1, 0), (2, 1)])
    def test_a_write_that_expected_another_version_changes_nothing(
        self, memory: RunMemory, there: int, expected: int
    ) -> None:
        for _ in range(there):
            memory.set("shared:a", "old")
        before = memory.snapshot()

        error = refusal(
            lambda: memory.set("shared:a", "new", expected_version=expected), PreconditionFailed
        )

        assert isinstance(error, PreconditionFailed)
        assert (error.key, error.expected) == ("shared:a", expected)
        assert error.current == (before[0] if before else None)
        assert memory.snapshot() == before

    @pytest.mark.parametrize(
        ("field", "given"),
        [
            ("title", "x" * 301),
            ("title", 7),
            ("title", "\ud800"),
            ("description", "x" * 4_001),
            ("source", b"x"),
            ("created_at", -1),
            ("created_at", 1.5),
            ("created_at", 10**18),
            ("expected_version", -1),
            ("expected_version", True),
        ],
    )
    def test_what_is_said_of_a_value_has_its_limits(
        self, memory: RunMemory, field: str, given: Any
    ) -> None:
        invalid(lambda: memory.set("shared:a", 1, **{field: given}), field)

        assert len(memory) == 0

    def test_a_title_and_a_description_may_be_as_long_as_allowed(self, memory: RunMemory) -> None:
        entry = memory.set("shared:a", 1, title="x" * 300, description="x" * 4_000)

        assert (len(entry.title or ""), len(entry.description or "")) == (300, 4_000)


class RunValuesContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("value", "size"),
        [("abc", 5), (None, 4), (True, 4), (-(2**63), 20), (2**64 - 1, 20), ({"a": "\u00e9"}, 10)],
    )
    def test_a_value_is_as_large_as_its_compact_json(
        self, memory: RunMemory, value: object, size: int
    ) -> None:
        entry = memory.set("shared:a", value)

        assert (entry.value, entry.value_bytes, memory.size_bytes) == (value, size, size)

    @pytest.mark.parametrize(
        ("value", "place"),
        [
            (float("nan"), "$: float nan"),
            ({"a": [float("inf")]}, "$.a[0]: float inf"),
            ({"rows": [0, 1, 2, {"at": datetime(2026, 1, 1, tzinfo=UTC)}]}, "$.rows[3].at: date"),
            ([{1, 2}], "$[0]: set"),
            ({"a": b"x"}, "$.a: bytes"),
            ({1: 2}, "$: int key 1"),
            ("\ud800", "$: str"),
            (2**64, "$: int"),
            (nested(201), "nested over 200 deep"),
        ],
    )
    def test_what_is_no_json_is_refused_by_its_place_and_nothing_is_stored(
        self, memory: RunMemory, value: object, place: str
    ) -> None:
        memory.set("shared:a", "old")

        error = invalid(lambda: memory.set("shared:a", value), "value")

        assert place in error.reason
        assert (memory.get_value("shared:a"), len(memory)) == ("old", 1)

    def test_a_cycle_is_refused(self, memory: RunMemory) -> None:
        loop: list[object] = []
        loop.append({"a": loop})

        assert "$[0].a: list" in invalid(lambda: memory.set("shared:a", loop), "value").reason

    def test_a_value_may_be_nested_deep(self, memory: RunMemory) -> None:
        memory.set("shared:a", nested(200))

        assert memory.get_value("shared:a") == nested(200)

    def test_a_stored_none_is_there(self, memory: RunMemory) -> None:
        memory.set("shared:a", None)

        assert memory.get_value("shared:a", "default") is None
        assert memory.has("shared:a")
        assert "shared:a" in memory

    def test_a_tuple_is_read_back_as_a_list(self, memory: RunMemory) -> None:
        memory.set("shared:a", (1, ("b",)))

        assert memory.get_value("shared:a") == [1, ["b"]]

    def test_nobody_changes_a_value_from_outside(self, memory: RunMemory) -> None:
        given = {"rows": [1]}
        entry = memory.set("shared:a", given)
        given["rows"].append(2)
        cast("Any", entry.value)["rows"].append(3)
        cast("Any", memory.get_value("shared:a"))["rows"].append(4)
        cast("Any", memory.list()[0].value)["rows"].append(5)

        assert memory.get_value("shared:a") == entry.value == {"rows": [1]}

    def test_a_field_named_error_is_only_a_value(self, memory: RunMemory) -> None:
        assert memory.set("step:a", {"error": "boom"}).failed is False


class RunLimitsContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("limits", "limit", "allowed", "actual"),
        [
            (RunLimits(value_bytes=5), "value_bytes", 5, 6),
            (RunLimits(entries=1), "entries", 1, 2),
            (RunLimits(total_bytes=10), "total_bytes", 10, 11),
        ],
    )
    def test_a_limit_refuses_names_both_numbers_and_evicts_nothing(
        self, new: NewMemory, limits: RunLimits, limit: str, allowed: int, actual: int
    ) -> None:
        memory = new(limits=limits)
        memory.set("shared:a", "abc")
        before = memory.snapshot()

        error = refusal(lambda: memory.set("shared:b", "abcd"), LimitExceeded)

        assert isinstance(error, LimitExceeded)
        assert (error.limit, error.allowed, error.actual) == (limit, allowed, actual)
        assert all(str(each) in str(error) for each in (limit, allowed, actual, "RunLimits"))
        assert memory.snapshot() == before

    def test_replacing_a_value_counts_the_difference(self, new: NewMemory) -> None:
        memory = new(limits=RunLimits(total_bytes=10, entries=2))
        memory.set("shared:a", "abc")
        memory.set("shared:b", "abc")

        memory.set("shared:a", "abc")

        assert memory.set("shared:a", "").value == ""
        assert memory.set("shared:b", "abcdef").value == "abcdef"
        assert memory.size_bytes == 10
        refusal(lambda: memory.set("shared:a", "x"), LimitExceeded)

    def test_deleting_makes_room(self, new: NewMemory) -> None:
        memory = new(limits=RunLimits(total_bytes=5))
        memory.set("shared:a", "abc")
        memory.delete("shared:a")
        memory.set("shared:b", "abc")
        memory.clear()

        assert memory.set("shared:c", "abc").version == 1

    def test_restoring_past_a_limit_restores_nothing(self, new: NewMemory) -> None:
        full = new()
        for name in "abc":
            full.set(keys.shared(name), "abc")
        for limits in (RunLimits(entries=2), RunLimits(value_bytes=4), RunLimits(total_bytes=14)):
            memory = new(limits=limits)

            refusal(lambda memory=memory: memory.restore(full.snapshot()), LimitExceeded)

            assert len(memory) == memory.size_bytes == 0

    @pytest.mark.parametrize("bad", [-1, 1.5, True, "5"])
    def test_what_is_no_limit_is_refused(self, bad: Any) -> None:
        invalid(lambda: RunLimits(value_bytes=bad), "value_bytes")
