"""Contract of forks of runs and of comparing them."""

import pytest

from contracts.run_records import tell, telling
from contracts.runs import GivenARun, Show
from contracts.stores import invalid
from holdfast.ground.errors import Conflict, LimitExceeded, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory

FORK = "fork_1"


@pytest.mark.surface("http", "forks are made by a request with a body")
class RunForksContract(GivenARun):
    """A fork is a new run that names its origin; the original stays as it is."""

    def test_a_fork_names_its_origin_and_waits_for_an_owner(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)("failed")
        fork = hf.runs.fork(memory.run_id, set={"shared:a": [1, None]}, name="Again")

        assert fork == hf.runs.retrieve(fork.id)
        assert (fork.forked_from, fork.status) == ((memory.run_id, 0), "queued")
        assert (fork.name, fork.kind, fork.queue, fork.fence) == ("Again", "memory", None, 0)
        assert hf.runs.entry(fork.id, "shared:a").value == [1, None]

    def test_its_event_says_what_it_changes(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()
        fork = hf.runs.fork(memory.run_id, set={"input:b": 1, "shared:a": 2}, run_id=FORK)
        forked = next(hf.runs.follow(fork.id))

        assert (fork.id, forked.type, forked.seq) == (FORK, "run.forked", 1)
        assert forked.data["from"] == {"run": memory.run_id, "version": 0}
        assert forked.data["changed"] == ["input:b", "shared:a"]
        hf.runs.cancel(FORK, "enough")
        hf.runs.delete(FORK)

    def test_an_id_is_of_one_run(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        show(memory)()

        with pytest.raises(Conflict):
            hf.runs.fork(memory.run_id, run_id=memory.run_id)

    def test_what_is_not_there_is_not_found(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        with pytest.raises(NotFound):
            hf.runs.fork("run_none")
        show(memory)()
        with pytest.raises(NotFound):
            hf.runs.fork(memory.run_id, version=3)
        with pytest.raises(NotFound):
            hf.runs.fork(memory.run_id, before="write")
        with pytest.raises(NotFound):
            hf.runs.fork(memory.run_id, rerun=["write"])
        with pytest.raises(NotFound):
            hf.runs.fork(memory.run_id, delete=["shared:none"])

    def test_no_other_changes_are_taken(self, hf: Holdfast, memory: RunMemory, show: Show) -> None:
        show(memory)()

        with invalid("version"):
            hf.runs.fork(memory.run_id, version=-1)
        with invalid("before"):
            hf.runs.fork(memory.run_id, version=0, before="a")
        with invalid("delete"):
            hf.runs.fork(memory.run_id, set={"shared:a": 1}, delete=["shared:a"])
        with invalid("rerun"):
            hf.runs.fork(memory.run_id, rerun="all")  # pyright: ignore[reportArgumentType] - what a caller might give

    def test_a_value_of_a_fork_has_the_limit_of_run_memory(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()

        with pytest.raises(LimitExceeded):
            hf.runs.fork(memory.run_id, set={"shared:a": "x" * 4_194_304})

    def test_its_event_names_500_keys_and_counts_the_others(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()
        fork = hf.runs.fork(memory.run_id, set={f"shared:{number}": 1 for number in range(502)})
        forked = next(hf.runs.follow(fork.id))

        assert (len(forked.data["changed"]), forked.data["more"]) == (500, 2)
        assert fork.entries == 502

    def test_parts_of_a_fork_without_a_version_are_pending(
        self, hf: Holdfast, memory: RunMemory
    ) -> None:
        writer = telling(hf, memory)
        tell(writer, "step.completed", "read", task="t")
        writer.end("completed")
        fork = hf.runs.fork(memory.run_id)

        assert fork.parts == {"pending": 1}
        assert [(part.id, part.state) for part in hf.runs.parts(fork.id)] == [("read", "pending")]

    def test_runs_are_compared_key_by_key(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        other = RunMemory()
        for each, value in ((memory, "rain"), (other, "sun")):
            each.set("shared:same", 1)
            each.set("shared:weather", value)
        memory.set("shared:mine", [1])
        other.set("shared:other", "x" * 70_000)
        show(memory)()
        show(other)()

        found = hf.runs.compare(memory.run_id, other.run_id)
        changes = {key: each.change for key, each in found.entries.items()}
        assert changes == {
            "shared:weather": "changed",
            "shared:mine": "only_a",
            "shared:other": "only_b",
        }
        weather, large = found.entries["shared:weather"], found.entries["shared:other"].b
        assert weather.a is not None
        assert weather.b is not None
        assert (weather.a.value, weather.b.value, weather.a.value_bytes) == ("rain", "sun", 6)
        assert large is not None
        assert (len(large.value), large.value_bytes) == (65_536, 70_002)
        assert found.values == found.parts == {}

    def test_parts_and_usage_are_compared(self, hf: Holdfast, memory: RunMemory) -> None:
        other = RunMemory()
        for each, type in ((memory, "step.completed"), (other, "step.failed")):
            writer = telling(hf, each)
            tell(writer, type, "read", task="t", cause="why")
            writer.end("completed", usage={"requests": 2})
        found = hf.runs.compare(memory.run_id, other.run_id)

        (part,) = found.parts.items()
        assert part[0] == "step:read"
        assert part[1].b is not None
        assert part[1].b.value == {"state": "failed", "cause": "why"}
        assert [each.requests for each in found.usage] == [2, 2]

    def test_no_run_is_compared_with_one_that_is_not_there(
        self, hf: Holdfast, memory: RunMemory, show: Show
    ) -> None:
        show(memory)()

        with pytest.raises(NotFound):
            hf.runs.compare(memory.run_id, "run_none")
        with pytest.raises(NotFound):
            hf.runs.compare(memory.run_id, memory.run_id, version_b=7)
