"""What must hold of results of tasks that are kept as memories of a store."""

import pytest

from contracts.stores import GivenAStore, invalid
from holdfast.ground.errors import InvalidInput, NotFound, StoreArchived
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.stores.records import Store


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
