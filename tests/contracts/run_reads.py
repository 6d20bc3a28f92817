"""Contract of reads of run memory: filters, rendering, listeners, waiting."""

import json
import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, cast

import pytest
from msgspec.structs import replace

from contracts.run_memory import GivenARun, NewMemory, invalid, keys_of, refusal
from holdfast.ground.errors import InvalidInput, LimitExceeded, PreconditionFailed, WaitTimeout
from holdfast.ground.events import Event as BusEvent
from holdfast.ground.events import EventBus
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry, RunLimits
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock

ALL = ["task:a", "step:a", "input:a", "shared:a", "shared:b"]


class _Filled(GivenARun):
    @pytest.fixture
    def memory(self, new: NewMemory, clock: FrozenClock) -> RunMemory:
        """Give a memory with an entry of each kind, each a second after the other."""
        memory = new()
        for source, key in zip(("x", "y", None, "x", None), ALL, strict=True):
            memory.set(key, {"of": key}, source=source)
            clock.tick()
        return memory


class RunFiltersContract(_Filled):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("given", "found"),
        [
            ({}, ALL),
            ({"kind": "shared"}, ["shared:a", "shared:b"]),
            ({"kind": ["input", "task_result"]}, ["task:a", "input:a"]),
            ({"kind": []}, []),
            ({"keys": ["shared:b", "task:a", "step:no"]}, ["task:a", "shared:b"]),
            ({"keys": "task:a"}, ["task:a"]),
            ({"keys": []}, []),
            ({"key_prefix": "s"}, ["step:a", "shared:a", "shared:b"]),
            ({"key_prefix": ""}, ALL),
            ({"sources": "x"}, ["task:a", "shared:a"]),
            ({"sources": ["y", "z"]}, ["step:a"]),
            ({"sources": []}, []),
            ({"sources": "x", "kind": "shared"}, ["shared:a"]),
            ({"key_prefix": "shared:", "keys": ["shared:b", "task:a"]}, ["shared:b"]),
        ],
    )
    def test_all_conditions_hold_in_list_clear_copy_and_render(
        self, memory: RunMemory, given: dict[str, Any], found: list[str]
    ) -> None:
        assert [entry.key for entry in memory.list(**given)] == found
        assert keys_of(memory.copy(**given)) == (found if given else [])
        assert memory.render(**given).count("\n## ") == len(found)
        assert memory.clear(**given) == len(found)
        assert keys_of(memory) == [key for key in ALL if key not in found]

    @pytest.mark.parametrize("act", ["list", "clear", "copy", "render"])
    def test_what_is_no_filter_is_refused_and_nothing_goes(
        self, memory: RunMemory, act: str
    ) -> None:
        bad: list[tuple[str, Any]] = [
            ("kind", "result"),
            ("kind", 7),
            ("keys", 7),
            ("keys", ["a"]),
            ("key_prefix", 7),
            ("sources", {"x": 1}),
            ("sources", [None]),
        ]
        for field, given in bad:
            error = refusal(lambda field=field, given=given: getattr(memory, act)(**{field: given}))
            assert isinstance(error, InvalidInput)
            assert error.field in (field, "key")
        assert keys_of(memory) == ALL

    def test_any_collection_of_keys_will_do(self, memory: RunMemory) -> None:
        wanted = {"shared:b": 1, "task:a": 2}

        assert memory.list(keys=wanted.keys()) == memory.list(keys=iter(wanted))
        assert len(memory.list(keys=wanted.keys())) == 2

    def test_an_unknown_kind_is_answered_with_the_four(self, memory: RunMemory) -> None:
        reason = invalid(lambda: memory.list(kind=["shared", "facts"]), "kind").reason

        assert "step_result, task_result, input, shared" in reason

    @pytest.mark.parametrize("act", ["list", "clear", "copy", "render"])
    def test_an_unknown_filter_is_a_type_error(self, memory: RunMemory, act: str) -> None:
        with pytest.raises(TypeError):
            getattr(memory, act)(kinds=["shared"])

        assert keys_of(memory) == ALL


class RunRestoringContract(_Filled):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_what_was_kept_comes_back_as_it_was(self, memory: RunMemory, new: NewMemory) -> None:
        memory.set("shared:b", 2, title="T", description="D", failed=True)
        twin = new()

        assert twin.restore(memory.snapshot()) == len(ALL)
        assert twin.snapshot() == memory.snapshot()
        assert twin.set("shared:b", 3).version == 3

    def test_restoring_merges_and_an_overwrite_keeps_its_place(
        self, memory: RunMemory, new: NewMemory
    ) -> None:
        other = new()
        other.set("shared:c", 3)
        other.set("shared:a", "new")

        memory.restore(other.snapshot())

        assert keys_of(memory) == [*ALL, "shared:c"]
        assert memory.get_value("shared:a") == "new"

    def test_replacing_leaves_nothing_else(self, memory: RunMemory, new: NewMemory) -> None:
        other = new()
        other.set("shared:c", 3)

        memory.restore(other.snapshot(), replace=True)

        assert memory.snapshot() == other.snapshot()
        assert memory.size_bytes == 1

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"key": "a"}, "key"),
            ({"kind": "shared"}, "kind"),
            ({"value": float("nan")}, "value"),
            ({"created_at": "now"}, "created_at"),
            ({"updated_at": -1}, "updated_at"),
            ({"version": 0}, "version"),
            ({"failed": 1}, "failed"),
            ({"title": "x" * 301}, "title"),
            ({"value_bytes": 3}, "value_bytes"),
        ],
    )
    def test_one_bad_entry_and_nothing_is_restored(
        self, memory: RunMemory, new: NewMemory, changed: dict[str, Any], field: str
    ) -> None:
        good = [entry.to_wire() for entry in memory.snapshot()]
        twin = new()
        twin.set("shared:kept", 1)

        error = invalid(
            lambda: twin.restore([*good[1:], {**good[0], **changed}], replace=True),
            f"entries[4].{field}",
        )

        assert error.index == 4
        assert keys_of(twin) == ["shared:kept"]

    def test_an_entry_whose_value_is_no_json_is_refused(self, memory: RunMemory) -> None:
        bad = replace(memory.snapshot()[0], value_json=b"{")

        invalid(lambda: memory.restore([bad]), "entries[0].value_json")

    @pytest.mark.parametrize("missing", ["key", "value", "created_at", "updated_at", "version"])
    def test_what_an_entry_needs_must_be_there(self, memory: RunMemory, missing: str) -> None:
        wire = memory.snapshot()[0].to_wire()
        del wire[missing]

        invalid(lambda: memory.restore([wire]), f"entries[0].{missing}")

    @pytest.mark.parametrize("bad", [7, "entries", {"entries": []}, [7], [None]])
    def test_what_are_no_entries_is_refused(self, memory: RunMemory, bad: Any) -> None:
        refusal(lambda: memory.restore(bad))

        assert keys_of(memory) == ALL

    def test_json_leads_there_and_back(self, memory: RunMemory) -> None:
        memory.set("shared:b", {"z": [1.5, None], "a": "\u2028</x>"}, title="T", failed=True)

        twin = RunMemory.from_json(memory.to_json())

        assert (twin.run_id, twin.snapshot()) == (memory.run_id, memory.snapshot())
        assert twin.to_json() == memory.to_json()

    def test_json_is_told_in_the_words_of_the_entry(self, memory: RunMemory) -> None:
        wire = json.loads(memory.to_json())

        assert set(wire) == {"run_id", "entries"}
        assert list(wire["entries"][0]) == [
            *("key", "kind", "value", "source", "title", "description"),
            *("created_at", "updated_at", "version", "failed"),
        ]

    @pytest.mark.parametrize(
        "text",
        ["", "{}", "[]", '{"run_id":"run_1"}', '{"run_id":1,"entries":[]}', 7, "[" * 100_000],
    )
    def test_what_is_no_memory_is_refused(self, text: Any) -> None:
        refusal(lambda: RunMemory.from_json(text))

    def test_a_copy_is_another_run_and_starts_empty(self, memory: RunMemory) -> None:
        twin = memory.copy()

        assert (len(twin), len(memory)) == (0, len(ALL))
        assert twin.run_id != memory.run_id

    def test_a_copy_of_some_keeps_their_times_and_goes_its_own_way(self, memory: RunMemory) -> None:
        twin = memory.copy(keys=["shared:a"])
        assert twin.snapshot() == memory.list(keys=["shared:a"])

        twin.set("shared:a", "changed")

        assert memory.get_value("shared:a") == {"of": "shared:a"}

    def test_a_copy_has_the_same_limits(self, new: NewMemory) -> None:
        twin = new(limits=RunLimits(value_bytes=3)).copy()

        refusal(lambda: twin.set("shared:a", "abc"), LimitExceeded)

    def test_a_run_has_an_id(self, new: NewMemory) -> None:
        assert new().run_id.startswith("run_")
        assert new().run_id != new().run_id
        assert new(run_id="mine").run_id == "mine"
        invalid(lambda: new(run_id=""), "run_id")


class RunRenderingContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_nothing_is_no_block(self, memory: RunMemory) -> None:
        assert memory.render() == ""

    def test_a_block_has_a_part_for_each_entry_the_oldest_first(self, memory: RunMemory) -> None:
        memory.set("shared:late", {"a": 1}, created_at=5_000)
        memory.set(keys.task("x"), "plain\ntext", title="A\n  title", description="D", created_at=1)
        memory.set("shared:tie", 1, created_at=1)

        assert memory.render().split("\n") == [
            "<run_memory>",
            "## task_result: A title (task:x)",
            "D",
            "plain",
            "text",
            "## shared: shared:tie (shared:tie)",
            "1",
            "## shared: shared:late (shared:late)",
            "{",
            '  "a": 1',
            "}",
            "</run_memory>",
        ]

    def test_what_is_long_is_cut_and_says_where_the_rest_is(self, memory: RunMemory) -> None:
        memory.set("shared:a", "<" * 4_001)
        memory.set("shared:b", "x" * 4_000)

        block = memory.render()

        assert block.count("&lt;") == 4_000
        assert "[… 1 more characters: read shared:a]" in block
        assert block.count("more characters") == 1

    def test_nothing_that_is_stored_closes_the_block(self, memory: RunMemory) -> None:
        end = "</run_memory>"
        memory.set(keys.shared(end), [end, {end: "&amp;"}], title=end, description=end)

        block = memory.render()

        assert block.count(end) == block.count("<") - 1 == 1
        assert cast("str", memory.list()[0].title) == end


BOUND = 30.0
"""Seconds after which a test that waits gives up."""


def written(event: RunMemoryEvent) -> tuple[str, dict[str, Any]]:
    """Return what *event* is, and what it tells."""
    return event.type, dict(event.data)


class RunListenersContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_every_write_is_told_in_order_and_until_off(self, memory: RunMemory) -> None:
        received: list[RunEntry] = []
        off = memory.subscribe(received.append)
        first, second = memory.set("shared:a", 1), memory.set("shared:a", 2)
        memory.delete("shared:a")
        off()
        off()
        memory.set("shared:a", 3)

        assert received == [first, second]

    def test_the_entry_is_stored_when_a_listener_hears(self, memory: RunMemory) -> None:
        seen: list[object] = []
        memory.subscribe(lambda entry: seen.append(memory.get(entry.key) is entry))

        memory.set("shared:a", 1)

        assert seen == [True]

    def test_restored_entries_are_told_once_each_in_order(
        self, memory: RunMemory, new: NewMemory
    ) -> None:
        for key in ("shared:b", "shared:a"):
            memory.set(key, 1)
        twin = new()
        received: list[RunEntry] = []
        twin.subscribe(received.append)

        twin.restore(memory.snapshot())

        assert received == memory.snapshot()

    def test_listeners_hear_in_the_order_in_which_they_came(self, memory: RunMemory) -> None:
        calls: list[str] = []
        for name in "abc":
            memory.subscribe(lambda _, name=name: calls.append(name))
        memory.on_event(lambda _: calls.append("event"))

        memory.set("shared:a", 1)

        assert calls == ["a", "b", "c", "event"]

    def test_one_that_raises_is_logged_with_the_key_and_the_others_hear(
        self, memory: RunMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(_: RunEntry) -> None:
            raise RuntimeError

        calls: list[RunEntry] = []
        failed = REGISTRY.flat()["run_listener_errors_total"]
        memory.subscribe(fails)
        memory.subscribe(calls.append)

        with caplog.at_level(logging.ERROR):
            entry = memory.set("shared:a", "a secret value")

        assert calls == [entry]
        assert "shared:a" in caplog.text
        assert "secret" not in caplog.text
        assert REGISTRY.flat()["run_listener_errors_total"] == failed + 1

    def test_what_a_listener_writes_is_stored_at_once_and_told_after(
        self, memory: RunMemory
    ) -> None:
        calls: list[tuple[str, str]] = []

        def first(entry: RunEntry) -> None:
            calls.append(("first", entry.key))
            if entry.key == "shared:a":
                memory.set("shared:b", 1)
                calls.append(("stored", str(memory.has("shared:b"))))

        memory.subscribe(first)
        memory.subscribe(lambda entry: calls.append(("second", entry.key)))

        memory.set("shared:a", 1)

        assert calls == [
            ("first", "shared:a"),
            ("stored", "True"),
            ("second", "shared:a"),
            ("first", "shared:b"),
            ("second", "shared:b"),
        ]

    def test_one_that_comes_during_a_notification_hears_from_the_next_write_on(
        self, memory: RunMemory
    ) -> None:
        calls: list[str] = []

        def first(entry: RunEntry) -> None:
            if entry.key == "shared:a":
                memory.set("shared:b", 1)
                memory.subscribe(lambda later: calls.append(later.key))

        memory.subscribe(first)
        memory.set("shared:a", 1)
        memory.set("shared:c", 1)

        assert calls == ["shared:c"]

    def test_one_that_was_removed_is_not_called_again(self, memory: RunMemory) -> None:
        calls: list[str] = []
        memory.subscribe(lambda _: off())
        off = memory.subscribe(lambda entry: calls.append(entry.key))

        memory.set("shared:a", 1)

        assert calls == []

    def test_a_chain_of_writes_ends(self, memory: RunMemory) -> None:
        refused: list[LimitExceeded] = []

        def again(entry: RunEntry) -> None:
            try:
                memory.set("shared:a", entry.version)
            except LimitExceeded as error:
                refused.append(error)

        memory.subscribe(again)
        memory.set("shared:a", 0)

        entry = memory.get("shared:a")
        assert entry is not None
        assert entry.version == 100
        assert [(error.allowed, error.actual) for error in refused] == [(100, 101)]

        memory.set("shared:a", 0)
        assert len(refused) == 2

    def test_an_async_function_is_refused(self, memory: RunMemory) -> None:
        async def listener(_: object) -> None: ...

        class Callable_:  # noqa: N801 - an object that is called
            async def __call__(self, _: object) -> None: ...

        for bad in (listener, Callable_(), None, "x"):
            invalid(lambda bad=bad: memory.subscribe(bad), "listener")  # pyright: ignore[reportArgumentType] - that is the point
            invalid(lambda bad=bad: memory.on_event(bad), "listener")  # pyright: ignore[reportArgumentType] - that is the point

    def test_a_write_while_another_thread_is_told_is_delivered_by_that_thread(
        self, memory: RunMemory
    ) -> None:
        calls: list[str] = []
        entered, leave = Event(), Event()

        def slow(entry: RunEntry) -> None:
            calls.append(entry.key)
            if entry.key == "shared:a":
                entered.set()
                leave.wait(BOUND)

        memory.subscribe(slow)
        writer = Thread(target=lambda: memory.set("shared:a", 1))
        writer.start()
        assert entered.wait(BOUND)
        memory.set("shared:b", 1)
        before = list(calls)
        leave.set()
        writer.join(BOUND)

        assert before == ["shared:a"]
        assert calls == ["shared:a", "shared:b"]


class RunEventsContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_everything_that_happens_is_told_without_a_value(self, new: NewMemory) -> None:
        memory, received = new(limits=RunLimits(value_bytes=9)), list[RunMemoryEvent]()
        memory.on_event(received.append)

        memory.set("task:a", "secret", source="x", title="T")
        memory.set("task:a", 2, failed=True)
        refusal(lambda: memory.set("task:a", "x" * 8), LimitExceeded)
        refusal(lambda: memory.set("task:a", 1, expected_version=0), PreconditionFailed)
        refusal(lambda: memory.set("task:a", {1}))
        kept = memory.snapshot()
        memory.delete("task:a")
        memory.restore(kept)
        memory.clear(kind="input")
        memory.clear(kind=["task_result"])

        first = {"source": "x", "version": 1, "value_bytes": 8, "replaced_source": None}
        second = {"source": None, "version": 2, "value_bytes": 1, "replaced_source": "x"}
        facts = {"key": "task:a", "kind": "task_result", "title": "T"}
        assert [written(each) for each in received] == [
            ("run.entry_written", {**facts, **first, "failed": False}),
            ("run.entry_written", {**facts, **second, "failed": True}),
            refused_as("value_bytes", 10, 9),
            refused_as("precondition_failed", 2, 0),
            refused_as("invalid_input", None, None),
            ("run.entry_deleted", {"key": "task:a"}),
            ("run.restored", {"count": 1}),
            ("run.entries_cleared", {"count": 1, "filter": {"kind": ["task_result"]}}),
        ]
        assert {each.run_id for each in received} == {memory.run_id}
        assert "secret" not in repr(received)

    def test_what_changed_nothing_is_not_told(self, memory: RunMemory) -> None:
        received: list[RunMemoryEvent] = []
        memory.on_event(received.append)
        memory.delete("shared:a")
        memory.clear()

        assert received == []

    def test_the_bus_has_them_with_the_run_and_its_key_as_ids(self, new: NewMemory) -> None:
        bus, received = EventBus(), list[BusEvent]()
        bus.subscribe(received.append)
        memory = new(bus=bus)

        memory.set("shared:a", 1)
        memory.clear(kind="shared")

        assert [each.type for each in received] == ["run.entry_written", "run.entries_cleared"]
        assert received[0].ids == {"run_id": memory.run_id, "key": "shared:a"}
        assert received[1].data == {"count": 1, "filter": '{"kind":["shared"]}'}

    def test_writes_and_refusals_are_counted(self, memory: RunMemory) -> None:
        before = REGISTRY.flat()
        memory.set("shared:a", 1)
        refusal(lambda: memory.set("shared:a", {1}))
        refusal(lambda: memory.set("a", 1))
        after = REGISTRY.flat()

        written, refused = (
            'run_writes_total{kind="shared"}',
            'run_refused_total{reason="invalid_input"}',
        )
        assert after[written] == before[written] + 1
        assert after[refused] == before[refused] + 2


def _set(memory: RunMemory) -> None:
    memory.set("shared:a", 2)


def _restore(memory: RunMemory) -> None:
    kept = {"key": "shared:a", "value": 2, "created_at": 0, "updated_at": 0, "version": 9}
    memory.restore([kept])


class RunWaitingContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_what_is_there_is_not_waited_for(self, memory: RunMemory) -> None:
        entry = memory.set("shared:a", None)

        assert memory.wait_for("shared:a", timeout=0) == entry

    def test_what_does_not_come_is_a_timeout_with_its_key(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)

        error = refusal(
            lambda: memory.wait_for("shared:a", after_version=1, timeout=0), WaitTimeout
        )

        assert isinstance(error, WaitTimeout)
        assert (error.key, error.seconds) == ("shared:a", 0)

    @pytest.mark.parametrize("write", [_set, _restore])
    def test_a_waiting_thread_goes_on_when_the_key_is_written(
        self, memory: RunMemory, write: Callable[[RunMemory], object]
    ) -> None:
        memory.set("shared:a", 1)
        got: list[RunEntry] = []
        waiter = Thread(
            target=lambda: got.append(memory.wait_for("shared:a", after_version=1, timeout=BOUND))
        )
        waiter.start()
        memory.set("shared:b", 1)
        write(memory)
        waiter.join(BOUND)

        assert [entry.value for entry in got] == [2]

    @pytest.mark.parametrize(
        ("field", "given"),
        [("timeout", -1), ("timeout", float("nan")), ("timeout", "1"), ("after_version", -1)],
    )
    def test_how_long_to_wait_is_checked(self, memory: RunMemory, field: str, given: Any) -> None:
        invalid(lambda: memory.wait_for("shared:a", **{field: given}), field)


def refused_as(
    reason: str, actual: int | None, allowed: int | None
) -> tuple[str, dict[str, object]]:
    """Return the event of a write to `task:a` that was refused."""
    facts: dict[str, object] = {"reason": reason, "actual": actual, "allowed": allowed}
    return "run.entry_refused", {"key": "task:a", **facts}
