"""The changes of a run's memory since they were last taken."""

from holdfast import RunMemory


def test_what_is_there_counts_as_written() -> None:
    memory = RunMemory()
    memory.set("shared:a", 1)

    written, removed = memory.changes().take()

    assert [entry.key for entry in written] == ["shared:a"]
    assert removed == []


def test_only_what_changed_since_is_taken() -> None:
    memory = RunMemory()
    memory.set("shared:a", 1)
    memory.set("shared:b", 1)
    changes = memory.changes()
    changes.take()

    memory.set("shared:b", 2)
    memory.set("shared:c", 1)
    memory.set("shared:b", 3)

    written, removed = changes.take()
    assert [(entry.key, entry.value) for entry in written] == [("shared:b", 3), ("shared:c", 1)]
    assert removed == []
    assert changes.take() == ([], [])


def test_a_key_that_is_written_again_was_removed_before() -> None:
    memory = RunMemory()
    memory.set("shared:a", 1)
    memory.set("shared:b", 1)
    changes = memory.changes()
    changes.take()

    memory.set("shared:a", 2)
    memory.delete("shared:a")
    memory.clear(keys=["shared:b"])
    memory.set("shared:c", 1)
    memory.set("shared:a", 3)

    written, removed = changes.take()
    assert removed == ["shared:a", "shared:b"]
    assert [entry.key for entry in written] == ["shared:c", "shared:a"]


def test_restored_entries_are_changes_and_with_replace_all_others_are_removed() -> None:
    memory = RunMemory()
    memory.set("shared:a", 1)
    kept = memory.snapshot()
    memory.set("shared:b", 1)
    changes = memory.changes()
    changes.take()

    memory.restore(kept)
    assert changes.take() == (kept, [])

    memory.restore(kept, replace=True)
    assert changes.take() == (kept, ["shared:a", "shared:b"])


def test_closed_changes_record_nothing_more() -> None:
    memory = RunMemory()
    changes = memory.changes()
    changes.close()

    memory.set("shared:a", 1)

    assert changes.take() == ([], [])
