"""Contract of records of runs: attached, listed, controlled, saved."""

from collections.abc import Callable, Generator
from datetime import timedelta

import pytest

from contracts.stores import GivenAStore, invalid
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, StoreArchived
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending
from holdfast.memories.run.records.record import RunControl
from holdfast.memories.run.records.writer import Attached
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock

Show = Callable[..., Attached]


class Held:
    """Control of a run that records its calls."""

    def __init__(self, *running: str) -> None:
        self.running = list(running)
        self.asked: list[tuple[str, ...]] = []

    def cancel(self, reason: str = "cancelled") -> None:
        """Record a cancellation."""
        self.asked.append(("cancel", reason))

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Record a message and the steps that receive it."""
        steps = self.running if step is None else [step]
        self.asked.append(("steer", text, *steps))
        return steps


class GivenARun:
    """Fixtures: a memory, and a function that attaches it to the subclass's `hf`."""

    @pytest.fixture
    def memory(self) -> RunMemory:
        """Return the memory of a run."""
        return RunMemory()

    @pytest.fixture
    def show(self, hf: Holdfast) -> Generator[Show]:
        """Give what attaches a memory, and ends what the test did not end."""
        shown: list[Attached] = []

        def attach(
            memory: RunMemory, name: str = "research", control: RunControl | None = None
        ) -> Attached:
            over = hf.runs.attach(memory, name=name, agent="ada", control=control)
            shown.append(over)
            return over

        yield attach
        for over in shown:
            over("cancelled")


LONG = 61
"""Seconds without a sign of life, after which a run is lost."""


class RunsContract(GivenARun):
    """Runs can be read during and after their time, listed, and deleted after the end."""

    def test_an_attached_run_is_running(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        show(memory, "research")

        run = hf.runs.retrieve(memory.run_id)
        assert (run.id, run.name, run.agent, run.status) == (
            memory.run_id,
            "research",
            "ada",
            "running",
        )
        assert (run.entries, run.bytes, run.ended_at, run.metadata) == (0, 0, None, {})

    def test_metadata_comes_back_as_it_was_given(self, hf: Holdfast, memory: RunMemory) -> None:
        over = hf.runs.attach(memory, name="n", metadata={"ticket": "42", "ü": ""})
        over()

        assert hf.runs.retrieve(memory.run_id).metadata == {"ticket": "42", "ü": ""}

    @pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
    def test_a_run_that_is_over_says_how(
        self, hf: Holdfast, memory: RunMemory, show: Show, state: Ending
    ) -> None:
        show(memory)(state)

        run = hf.runs.retrieve(memory.run_id)
        assert run.status == state
        assert run.ended_at is not None

    def test_a_run_ends_once(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        over = show(memory)
        over("failed")
        over()

        assert hf.runs.retrieve(memory.run_id).status == "failed"

    def test_no_other_ending_is_taken(self, memory: RunMemory, show: Show) -> None:
        over = show(memory)

        with invalid("status"):
            over("lost")  # pyright: ignore[reportArgumentType] - what a caller might give

    def test_it_counts_what_the_memory_holds(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("input:before", 1)
        show(memory)
        memory.set("shared:a", "xyz")
        memory.set("shared:a", "longer")
        memory.set("shared:b", None)
        memory.delete("shared:b")

        run = hf.runs.retrieve(memory.run_id)
        assert (run.entries, run.bytes) == (2, memory.size_bytes)

    def test_after_its_end_nothing_is_told(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()
        memory.set("shared:late", 1)

        assert hf.runs.retrieve(memory.run_id).entries == 0

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_they_are_listed_page_by_page_the_newest_first(self, hf: Holdfast, show: Show) -> None:
        memories = [RunMemory() for _ in range(5)]
        for memory in memories:
            show(memory)()
            hf.runs.retrieve(memory.run_id)

        first = hf.runs.list(limit=2)
        assert len(first) == 2
        listed = [run.id for run in first.all()]
        assert sorted(listed) == sorted(memory.run_id for memory in memories)
        starts = [run.started_at for run in first.all()]
        assert starts == sorted(starts, reverse=True)

    def test_they_are_listed_by_their_state(self, hf: Holdfast, show: Show) -> None:
        ended, failed, live = RunMemory(), RunMemory(), RunMemory()
        show(ended)()
        show(failed)("failed")
        show(live)

        assert [run.id for run in hf.runs.list(status="completed")] == [ended.run_id]
        assert [run.id for run in hf.runs.list(status="failed")] == [failed.run_id]
        assert [run.id for run in hf.runs.list(status="running")] == [live.run_id]
        assert [run.id for run in hf.runs.list(status="lost")] == []

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_cursor_belongs_to_its_list(self, hf: Holdfast, show: Show) -> None:
        for _ in range(2):
            show(RunMemory())()
        cursor = hf.runs.list(limit=1).next_page

        with invalid("page"):
            hf.runs.list(status="failed", page=cursor)

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_no_other_state_is_listed(self, hf: Holdfast) -> None:
        with invalid("status"):
            hf.runs.list(status="done")  # pyright: ignore[reportArgumentType] - what a caller might give

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_run_that_gives_no_sign_of_life_is_lost(
        self, hf: Holdfast, memory: RunMemory, show: Show, clock: FrozenClock
    ) -> None:
        show(memory)
        hf.runs.retrieve(memory.run_id)

        clock.tick(LONG)
        assert hf.runs.retrieve(memory.run_id).status == "lost"
        assert [run.id for run in hf.runs.list(status="lost")] == [memory.run_id]
        assert [run.id for run in hf.runs.list(status="running")] == []

    def test_a_lost_run_that_is_heard_of_runs_again(
        self, hf: Holdfast, memory: RunMemory, show: Show, clock: FrozenClock
    ) -> None:
        show(memory)
        hf.runs.retrieve(memory.run_id)
        clock.tick(LONG)
        memory.set("shared:alive", expected_version=0, value=True)

        assert hf.runs.retrieve(memory.run_id).status == "running"

    def test_a_run_begun_anew_has_only_what_it_holds_now(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("shared:old", 1)
        show(memory)("failed")
        hf.runs.retrieve(memory.run_id)
        again = RunMemory(run_id=memory.run_id)
        again.set("shared:new", 1)
        show(again)

        run = hf.runs.retrieve(memory.run_id)
        assert (run.status, run.entries, run.ended_at) == ("running", 1, None)
        assert [entry.key for entry in hf.runs.entries(run.id)] == ["shared:new"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_is_not_there_is_not_found(self, hf: Holdfast) -> None:
        for ask in (
            lambda: hf.runs.retrieve("run_none"),
            lambda: hf.runs.delete("run_none"),
            lambda: hf.runs.entries("run_none"),
            lambda: hf.runs.entry("run_none", "shared:a"),
            lambda: list(hf.runs.follow("run_none")),
            lambda: hf.runs.cancel("run_none"),
        ):
            with pytest.raises(NotFound) as caught:
                ask()
            assert (caught.value.kind, caught.value.id) == ("run", "run_none")

    def test_another_workspace_sees_nothing_of_it(
        self, hf: Holdfast, elsewhere: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()
        hf.runs.retrieve(memory.run_id)

        assert elsewhere.runs.list().data == []
        with pytest.raises(NotFound):
            elsewhere.runs.retrieve(memory.run_id)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_live_run_is_not_deleted(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        show(memory)

        with pytest.raises(Conflict) as caught:
            hf.runs.delete(memory.run_id)
        assert caught.value.reason == "running"

    def test_a_deleted_run_is_gone_with_all_in_it(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("shared:a", 1)
        show(memory)()
        hf.runs.delete(memory.run_id)

        assert hf.runs.list().data == []
        with pytest.raises(NotFound):
            hf.runs.entry(memory.run_id, "shared:a")

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_lost_run_can_be_deleted(
        self, hf: Holdfast, memory: RunMemory, show: Show, clock: FrozenClock
    ) -> None:
        show(memory)
        hf.runs.retrieve(memory.run_id)
        clock.tick(LONG)
        hf.runs.delete(memory.run_id)

        with pytest.raises(NotFound):
            hf.runs.retrieve(memory.run_id)

    @pytest.mark.parametrize(
        ("field", "given"),
        [
            ("name", {"name": ""}),
            ("name", {"name": "x" * 257}),
            ("name", {"name": None}),
            ("agent", {"name": "n", "agent": ""}),
            ("metadata", {"name": "n", "metadata": {"a": 1}}),
            ("metadata", {"name": "n", "metadata": {str(n): "" for n in range(17)}}),
            ("metadata", {"name": "n", "metadata": ["a"]}),
        ],
    )
    def test_what_cannot_be_told_of_it_is_refused(
        self, hf: Holdfast, memory: RunMemory, field: str, given: dict[str, object]
    ) -> None:
        with invalid(field):
            hf.runs.attach(memory, **given)  # pyright: ignore[reportArgumentType] - what a caller might give

        assert hf.runs.list().data == []

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_nothing_but_a_run_memory_is_attached(self, hf: Holdfast) -> None:
        with pytest.raises(InvalidInput):
            hf.runs.attach({}, name="n")  # pyright: ignore[reportArgumentType] - what a caller might give

    def test_an_agent_that_is_forgotten_leaves_no_run(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        memory.set("shared:a", 1)
        show(memory)()
        hf.runs.retrieve(memory.run_id)
        report = hf.forget_agent("ada")

        assert report.counts["runs"] == 1
        assert hf.runs.list().data == []

    def test_times_are_whole_milliseconds(
        self, hf: Holdfast, memory: RunMemory, show: Show, clock: FrozenClock
    ) -> None:
        clock.tick(0.001234)
        show(memory)()

        run = hf.runs.retrieve(memory.run_id)
        assert run.ended_at is not None
        for instant in (run.started_at, run.ended_at):
            assert instant.microsecond % 1_000 == 0
            assert instant.utcoffset() == timedelta()


@pytest.mark.surface("http", "control reaches a run through a server")
class RunControlContract(GivenARun):
    """A run of this process is cancelled and steered by its id."""

    def test_it_is_cancelled_with_the_reason(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        held = Held()
        show(memory, control=held)
        hf.runs.cancel(memory.run_id, "enough")
        hf.runs.cancel(memory.run_id)

        assert held.asked == [("cancel", "enough"), ("cancel", "cancelled")]

    def test_its_running_steps_are_told_something(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        held = Held("a", "b")
        show(memory, control=held)

        assert hf.runs.steer(memory.run_id, "hurry") == ["a", "b"]
        assert hf.runs.steer(memory.run_id, "stay", step="c") == ["c"]
        assert held.asked == [("steer", "hurry", "a", "b"), ("steer", "stay", "c")]

    def test_what_is_over_is_reached_no_more(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory, control=Held())()
        hf.runs.retrieve(memory.run_id)

        for ask in (
            lambda: hf.runs.cancel(memory.run_id),
            lambda: hf.runs.steer(memory.run_id, "hurry"),
        ):
            with pytest.raises(Conflict) as caught:
                ask()
            assert caught.value.reason == "ended"

    def test_a_run_that_nobody_holds_is_not_reached(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)
        hf.runs.retrieve(memory.run_id)

        with pytest.raises(Conflict) as caught:
            hf.runs.cancel(memory.run_id)
        assert caught.value.reason == "not_held"

    def test_nothing_is_said_in_blank_words(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory, control=Held("a"))

        with invalid("text"):
            hf.runs.steer(memory.run_id, " ")
        with invalid("reason"):
            hf.runs.cancel(memory.run_id, "")


class SavedRunsContract(GivenAStore):
    """Each result of a successful task becomes a memory, or is skipped with its error."""

    @pytest.fixture
    def memory(self) -> RunMemory:
        """Give the memory of a run with two results."""
        memory = RunMemory(run_id="run_1")
        memory.set("task:report", "# Findings\n")
        memory.set("task:rows", {"n": [1, "ü"]})
        memory.set("task:broken", "no", failed=True)
        memory.set("step:s", "no result of a task")
        return memory

    def test_text_is_kept_as_it_is_and_other_values_as_json(
        self, hf: Holdfast, store: Store, memory: RunMemory
    ) -> None:
        saved = hf.save_run(memory, store.id)

        assert [each.path for each in saved.memories] == [
            "/runs/run_1/report.md",
            "/runs/run_1/rows.json",
        ]
        assert saved.skipped == ()
        at = hf.memory_stores.memories.at
        report, rows = (at(store.id, each.path) for each in saved.memories)
        assert report is not None
        assert rows is not None
        assert report.content == "# Findings\n"
        assert rows.content == '{\n  "n": [\n    1,\n    "ü"\n  ]\n}\n'

    def test_what_is_there_is_updated(self, hf: Holdfast, store: Store, memory: RunMemory) -> None:
        first = hf.save_run(memory, store.id)
        memory.set("task:report", "# More\n")
        second = hf.save_run(memory, store.id)

        assert [each.id for each in second.memories] == [each.id for each in first.memories]
        found = hf.memory_stores.memories.at(store.id, "/runs/run_1/report.md")
        assert found is not None
        assert found.content == "# More\n"

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_breaks_a_limit_is_skipped_with_its_error(
        self, hf: Holdfast, store: Store, memory: RunMemory
    ) -> None:
        memory.set("task:large", "x" * 102_401)
        memory.set("task:a//b", "no path")
        saved = hf.save_run(memory, store.id)

        assert len(saved.memories) == 2
        assert [each.key for each in saved.skipped] == ["task:large", "task:a//b"]
        assert all(isinstance(each.error, InvalidInput) for each in saved.skipped)

    def test_they_are_below_the_prefix_that_is_given(
        self, hf: Holdfast, store: Store, memory: RunMemory
    ) -> None:
        saved = hf.save_run(memory, store.id, prefix="/kept/")

        assert saved.memories[0].path == "/kept/run_1/report.md"
        with invalid("prefix"):
            hf.save_run(memory, store.id, prefix="kept")

    def test_what_is_wrong_with_the_store_is_raised(
        self, hf: Holdfast, store: Store, memory: RunMemory
    ) -> None:
        with pytest.raises(NotFound):
            hf.save_run(memory, "memstore_none")
        hf.memory_stores.archive(store.id)
        with pytest.raises(StoreArchived):
            hf.save_run(memory, store.id)
