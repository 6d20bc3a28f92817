"""Contract of the record of a run: its entries and its events."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.runs import GivenARun, Show
from contracts.stores import invalid
from holdfast.ground.errors import NotFound
from holdfast.ground.json_values import JSON
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending, RunEvent
from holdfast.memories.run.records.read import RecordValuePart
from holdfast.memories.run.records.writer import RunOpening, RunWriter

KEPT_BYTES = 65_536


def keys_of(hf: Holdfast, memory: RunMemory, **filters: object) -> list[str]:
    """Return the keys of the listed entries, in order."""
    found = hf.runs.entries(memory.run_id, **filters)  # pyright: ignore[reportArgumentType] - each test's own
    return [entry.key for entry in found.all()]


def event_lines(events: list[RunEvent]) -> list[str]:
    """Return the type and key of each event."""
    return [f"{event.type} {event.data.get('key', '')}".strip() for event in events]


@pytest.mark.surface("file", "entries are mirrored to the file")
class RunRecordEntriesContract(GivenARun):
    """The entries of a run are listed as by its own tools."""

    def test_an_entry_is_listed_without_its_value(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)
        entry = memory.set("task:t", {"a": 1}, source="s", title="T", description="D", failed=True)

        (listed,) = hf.runs.entries(memory.run_id)
        assert (listed.key, listed.kind, listed.source) == ("task:t", "task_result", "s")
        assert (listed.title, listed.description, listed.failed) == ("T", "D", True)
        assert (listed.version, listed.value_bytes) == (1, 7)
        assert (listed.created_at, listed.updated_at) == (entry.created_at, entry.updated_at)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_they_are_listed_by_their_last_write(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)
        for key in ("shared:a", "shared:b", "shared:c"):
            memory.set(key, 1)
        memory.set("shared:a", 2)

        assert keys_of(hf, memory) == ["shared:a", "shared:c", "shared:b"]
        assert keys_of(hf, memory, order="oldest") == ["shared:b", "shared:c", "shared:a"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_filters_are_those_of_a_run_memory(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("task:t", 1, source="x")
        memory.set("shared:a", 1, source="y")
        memory.set("shared:b", 1)
        show(memory)()

        assert keys_of(hf, memory, kind="task_result") == ["task:t"]
        assert keys_of(hf, memory, kind=["task_result", "shared"], sources="y") == ["shared:a"]
        assert keys_of(hf, memory, key_prefix="shared:") == ["shared:b", "shared:a"]
        assert keys_of(hf, memory, keys=["shared:b", "step:none"]) == ["shared:b"]
        assert keys_of(hf, memory, keys=[]) == []
        assert keys_of(hf, memory, kind=[]) == []

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_no_other_filter_is_taken(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        show(memory)()

        with invalid("kind"):
            keys_of(hf, memory, kind="tasks")
        with invalid("order"):
            keys_of(hf, memory, order="best")
        with invalid("limit"):
            keys_of(hf, memory, limit=201)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_pages_tell_each_entry_once(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        wanted = [f"shared:{n}" for n in range(7)]
        for key in wanted:
            memory.set(key, 1)
        show(memory)()

        assert keys_of(hf, memory, limit=3) == wanted[::-1]

    def test_what_was_deleted_or_cleared_is_not_told(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)
        for key in ("shared:a", "shared:b", "task:t", "input:i"):
            memory.set(key, 1)
        hf.runs.retrieve(memory.run_id)
        memory.delete("shared:a")
        memory.clear(kind="task_result")

        assert keys_of(hf, memory) == ["input:i", "shared:b"]

    def test_what_was_restored_is_told(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        other = RunMemory()
        other.set("task:t", 1)
        other.set("shared:a", 2)
        show(memory)
        memory.set("shared:b", 3)
        hf.runs.retrieve(memory.run_id)
        memory.restore(other.snapshot(), replace=True)

        assert sorted(keys_of(hf, memory)) == ["shared:a", "task:t"]

    @pytest.mark.parametrize(
        "value",
        [None, True, 2**64 - 1, -(2**63), 1.5, "text\x00\U0001f40b", [], {"a": [1, {"b": 2}]}],
    )
    def test_a_value_comes_back_as_it_is(
        self, hf: Holdfast, memory: RunMemory, show: Show, value: JSON
    ) -> None:
        memory.set("shared:a", value, source="s", title="T\x00")
        show(memory)()

        entry = hf.runs.entry(memory.run_id, "shared:a")
        assert (entry.value, entry.part, entry.source, entry.title) == (value, None, "s", "T\x00")

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_path_leads_into_a_value(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        memory.set("task:a/b %2F", {"rows": [{"x": 1}]})
        show(memory)()

        ask = hf.runs.entry
        assert ask(memory.run_id, "task:a/b %2F", path="/rows/0").value == {"x": 1}
        nowhere = ask(memory.run_id, "task:a/b %2F", path="/none")
        assert nowhere.value is None
        assert nowhere.path_error is not None
        with invalid("path"):
            ask(memory.run_id, "task:a/b %2F", path="rows")

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_value_is_read_from_an_offset(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("shared:a", "0123456789")
        show(memory)()

        entry = hf.runs.entry(memory.run_id, "shared:a", offset=7)
        assert entry.value == "789"
        assert entry.part is not None
        assert (entry.part.of, entry.part.total, entry.part.next_offset) == ("text", 10, None)
        with invalid("offset"):
            hf.runs.entry(memory.run_id, "shared:a", offset=11)

    def test_of_a_large_text_the_first_part_is_kept(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        text = "é" * KEPT_BYTES
        memory.set("shared:a", text)
        show(memory)()

        entry = hf.runs.entry(memory.run_id, "shared:a")
        kept = KEPT_BYTES // 2
        assert entry.value == text[:kept]
        assert entry.part == RecordValuePart(
            of="text", offset=0, returned=kept, total=KEPT_BYTES, next_offset=None, kept=kept
        )
        assert hf.runs.entries(memory.run_id).data[0].value_bytes == 2 * KEPT_BYTES + 2
        assert hf.runs.entry(memory.run_id, "shared:a", offset=kept - 3).value == "ééé"

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_of_another_large_value_the_beginning_of_its_json_is_kept(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("shared:a", ["x"] * KEPT_BYTES)
        show(memory)()

        entry = hf.runs.entry(memory.run_id, "shared:a")
        assert entry.value.startswith('["x","x",')
        assert entry.part is not None
        assert (entry.part.of, entry.part.kept) == ("json", KEPT_BYTES)
        assert entry.part.total == 4 * KEPT_BYTES + 1

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_large_value_has_no_paths(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        memory.set("shared:a", {"a": "x" * KEPT_BYTES})
        show(memory)()

        entry = hf.runs.entry(memory.run_id, "shared:a", path="/a")
        assert (entry.value, entry.part) == (None, None)
        assert entry.path_error is not None

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_an_entry_that_is_not_there_is_not_found(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()

        with pytest.raises(NotFound) as caught:
            hf.runs.entry(memory.run_id, "shared:none")
        assert (caught.value.kind, caught.value.id) == ("entry", "shared:none")
        with invalid("key"):
            hf.runs.entry(memory.run_id, "none")

    def test_more_than_one_report_holds_is_told_whole(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        for n in range(40):
            memory.set(f"shared:{n}", "x" * 60_000)
        show(memory)()

        run = hf.runs.retrieve(memory.run_id)
        assert (run.entries, run.bytes, run.status) == (40, memory.size_bytes, "completed")


@pytest.mark.surface("file", "the feed polls the file")
@pytest.mark.surface("http", "events are streamed")
class RunRecordEventsContract(GivenARun):
    """The events of a run are delivered in order, with the number of missed ones."""

    def test_what_happened_is_told_in_order_and_without_values(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        over = show(memory)
        memory.set("shared:a", "secret")
        memory.set("shared:a", "secret")
        memory.delete("shared:a")
        memory.set("task:t", 1)
        memory.clear()
        over()

        events = list(hf.runs.follow(memory.run_id))
        assert event_lines(events) == [
            "run.started",
            "memory.written shared:a",
            "memory.written shared:a",
            "memory.deleted shared:a",
            "memory.written task:t",
            "memory.cleared",
            "run.completed",
        ]
        assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6, 7]
        assert "secret" not in repr(events)
        assert events[2].data["version"] == 2

    def test_it_goes_on_after_an_event(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        over = show(memory)
        for n in range(5):
            memory.set(f"shared:{n}", n)
        over()

        events = list(hf.runs.follow(memory.run_id, after=4))
        assert event_lines(events) == [
            "memory.written shared:3",
            "memory.written shared:4",
            "run.completed",
        ]

    def test_a_live_run_is_followed_to_its_end(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        over = show(memory)
        memory.set("shared:a", 1)
        events = hf.runs.follow(memory.run_id)

        assert next(events).type == "run.started"
        assert next(events).data["key"] == "shared:a"
        memory.set("shared:b", 1)
        assert next(events).data["key"] == "shared:b"
        over()
        assert event_lines(list(events)) == ["run.completed"]

    def test_what_is_no_longer_kept_is_counted_as_a_gap(
        self,
        hf: Holdfast,
        memory: RunMemory,
        show: Show,
        surface: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        kept = 10_000
        if surface != "memory":
            kept = 1_000
            monkeypatch.setattr("holdfast.memories.run.records.write.EVENTS_KEPT", kept)
        over = show(memory)
        for n in range(kept + 3):
            memory.set("shared:a", n)
        over()
        assert list(hf.runs.follow(memory.run_id))[-1].type == "run.completed"

        events = list(hf.runs.follow(memory.run_id))
        assert events[0].type == "gap"
        assert events[0].seq == events[0].data["missed"]
        assert [event.seq for event in events[1:]] == list(range(events[1].seq, events[-1].seq + 1))
        assert len(events) == kept + 1
        assert events[-1].type == "run.completed"

    def test_numbers_go_on_when_a_run_is_begun_anew(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        over = show(memory)
        memory.set("shared:a", 1)
        over("failed")
        hf.runs.retrieve(memory.run_id)
        again = RunMemory(run_id=memory.run_id)
        over = show(again)
        again.set("shared:b", 1)
        over()

        assert event_lines(list(hf.runs.follow(memory.run_id))) == [
            "run.started",
            "memory.written shared:a",
            "run.failed",
            "run.started",
            "memory.written shared:b",
            "run.completed",
        ]
        assert [event.seq for event in hf.runs.follow(memory.run_id)] == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("after", [-1, True, "1"])
    def test_no_other_number_is_gone_on_from(
        self, hf: Holdfast, memory: RunMemory, show: Show, after: int
    ) -> None:
        show(memory)()

        with invalid("after"):
            hf.runs.follow(memory.run_id, after=after)


def instant(seconds: int) -> datetime:
    """Return the instant *seconds* after 1970 began."""
    return datetime.fromtimestamp(seconds, UTC)


def telling(hf: Holdfast, memory: RunMemory) -> RunWriter:
    """Own the run of *memory* in *hf*."""
    return hf.runs.open_run(memory, RunOpening(kind="plan", name="research"))


def tell(writer: RunWriter, type: str, part: str, at: int = 1_000, **data: Any) -> None:
    """Report an event of *part*."""
    agent = data.pop("agent", None)
    event = RunEvent(type=type, seq=writer.seq + 1, at=at, run_id=writer.run_id, part=part)
    writer.emit(replace(event, agent=agent, data=data))


@pytest.mark.surface("http", "parts are computed from events that cross the wire")
class RunPartsContract(GivenARun):
    """The parts of a run are computed from its events, wherever they come from."""

    def test_a_part_has_what_its_events_said_last(self, hf: Holdfast, memory: RunMemory) -> None:
        writer = telling(hf, memory)
        steps = [{"id": "read", "depends_on": ["url"]}, {"id": "sum", "depends_on": ["read"]}]
        tell(writer, "task.created", "count", title="Count", depends_on=["plan"], steps=steps)
        tell(writer, "step.started", "read", 2_000, task="count", agent="ada", model="m", attempt=1)
        used = {"requests": 2, "output_tokens": 7}
        tell(writer, "step.completed", "read", 3_000, task="count", agent="ada", usage=used)

        read, sum_, count = hf.runs.parts(memory.run_id)
        assert (read.id, read.kind, read.state, read.within) == (
            "read",
            "step",
            "completed",
            "count",
        )
        assert (read.depends_on, read.agent, read.model) == (("url",), "ada", "m")
        assert (read.attempts, read.usage, read.cause) == (1, used, None)
        assert (read.started_at, read.ended_at) == (instant(2), instant(3))
        assert (sum_.state, sum_.depends_on, sum_.started_at) == ("pending", ("read",), None)
        assert (count.id, count.kind, count.state) == ("count", "task", "running")
        assert (count.title, count.depends_on) == ("Count", ("plan",))

    def test_a_run_counts_its_parts_by_state(self, hf: Holdfast, memory: RunMemory) -> None:
        writer = telling(hf, memory)
        tell(writer, "step.started", "a", task="t")
        tell(writer, "step.completed", "b", task="t")
        tell(writer, "step.failed", "c", task="t", cause="model_error: no route")

        wanted = {"running": 1, "completed": 1, "failed": 1}
        assert hf.runs.retrieve(memory.run_id).parts == wanted
        assert next(each for each in hf.runs.list() if each.id == memory.run_id).parts == wanted

    @pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
    def test_no_part_runs_or_waits_after_the_end_of_its_run(
        self, hf: Holdfast, memory: RunMemory, ending: Ending
    ) -> None:
        writer = telling(hf, memory)
        for type in ("step.started", "step.waiting", "step.completed"):
            tell(writer, type, type, task="t")
        writer.end(ending, reason="done")

        states = {part.id: part.state for part in hf.runs.parts(memory.run_id)}
        assert states == {
            "step.started": "cancelled",
            "step.waiting": "cancelled",
            "step.completed": "completed",
        }

    def test_a_task_and_a_step_of_one_name_are_two_parts(
        self, hf: Holdfast, memory: RunMemory
    ) -> None:
        writer = telling(hf, memory)
        tell(writer, "task.created", "read", steps=[{"id": "read"}])
        tell(writer, "step.completed", "read", task="read")

        found = [(part.kind, part.id, part.state) for part in hf.runs.parts(memory.run_id)]
        assert found == [("step", "read", "completed"), ("task", "read", "running")]

    def test_a_run_begun_anew_has_the_parts_of_its_new_life_alone(
        self, hf: Holdfast, memory: RunMemory
    ) -> None:
        writer = telling(hf, memory)
        tell(writer, "step.completed", "old", task="t")
        writer.end("failed")
        again = telling(hf, RunMemory(run_id=memory.run_id))
        tell(again, "step.started", "new", task="t")

        assert [part.id for part in hf.runs.parts(memory.run_id)] == ["new"]

    def test_there_are_no_parts_without_the_run(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.runs.parts("run_none")

    def test_an_agent_that_is_forgotten_is_in_no_part(
        self, hf: Holdfast, memory: RunMemory
    ) -> None:
        writer = telling(hf, memory)
        tell(writer, "step.completed", "a", task="t", agent="ada")
        tell(writer, "step.completed", "b", task="t", agent="bob")
        hf.runs.retrieve(memory.run_id)
        hf.forget_agent("ada")

        assert [part.id for part in hf.runs.parts(memory.run_id)] == ["b"]

    @pytest.mark.parametrize(
        "data",
        [
            {"title": "a\0b", "cause": 3, "usage": [1]},
            {"depends_on": "x", "steps": [{"id": 1}, {"id": "s", "kind": "none"}, 3]},
            {"attempt": -1, "item_index": "x"},
        ],
    )
    def test_data_of_another_shape_breaks_no_report(
        self, hf: Holdfast, memory: RunMemory, data: dict[str, Any]
    ) -> None:
        writer = telling(hf, memory)
        for type in ("task.created", "step.retried", "board.created", "plan.ready"):
            tell(writer, type, "odd", **data)

        assert {part.id for part in hf.runs.parts(memory.run_id)} == {"odd"}
