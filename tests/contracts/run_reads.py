"""Contract of listeners of run memory: order, threads, chains, failures, waiting."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from contracts.run_memory import GivenARun, NewMemory, invalid, refusal
from holdfast.ground.errors import LimitExceeded, PreconditionFailed, WaitTimeout
from holdfast.ground.events import Event as BusEvent
from holdfast.ground.events import EventBus
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.run.entry import RunEntry, RunLimits
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory

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
