"""What the store has, told by its feed and by its answers, in whatever order they come."""

from datetime import UTC, datetime

from holdfast.doors.mount.sync.heads import LocalHeads
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, MemoryChange, Snapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def memory(path: str, id: str = "mem_1", sha256: str = "aa") -> Memory:
    return Memory(
        id=id,
        memory_store_id="memstore_1",
        memory_version_id="memver_1",
        path=path,
        content=None,
        content_sha256=sha256,
        content_size_bytes=1,
        created_at=NOW,
        updated_at=NOW,
    )


def changes(seq: int, *changed: tuple[int, str, Memory | None]) -> ChangesPage:
    told = tuple(
        MemoryChange(
            seq=at,
            memory_id=id,
            operation="deleted" if head is None else "modified",
            memory=head,
        )
        for at, id, head in changed
    )
    return ChangesPage(seq=seq, changes=told, cap=10, archived_at=None)


def answer(seq: int, *memories: Memory, deleted: tuple[str, ...] = ()) -> Applied:
    return Applied(seq=seq, changed=True, memories=memories, deleted=deleted)


def test_changes_tell_at_which_paths_something_else_is() -> None:
    heads = LocalHeads()

    assert heads.absorb(changes(1, (1, "mem_1", memory("/a")))) == {"/a"}
    assert heads.absorb(changes(2, (2, "mem_1", memory("/b")))) == {"/a", "/b"}
    assert heads.absorb(changes(3, (3, "mem_1", None))) == {"/b"}
    assert len(heads) == 0


def test_what_is_told_twice_is_told_once() -> None:
    heads = LocalHeads()
    heads.absorb(changes(2, (2, "mem_1", memory("/b"))))

    assert heads.absorb(changes(1, (1, "mem_1", memory("/a")))) == set()
    assert heads.at("/b") == memory("/b")
    assert heads.seq == 2


def test_an_answer_is_not_undone_by_what_is_told_later_of_before() -> None:
    heads = LocalHeads()
    heads.answered(answer(5, memory("/a", sha256="ours")))

    heads.absorb(changes(4, (4, "mem_1", memory("/a", sha256="older"))))

    assert heads.at("/a") == memory("/a", sha256="ours")


def test_a_deletion_that_was_answered_is_not_undone() -> None:
    heads = LocalHeads()
    heads.absorb(changes(1, (1, "mem_1", memory("/a"))))
    heads.answered(answer(3, memory("/a")))
    heads.answered(answer(3, deleted=("mem_1",)))

    heads.absorb(changes(2, (2, "mem_1", memory("/a", sha256="older"))))

    assert heads.at("/a") is None


def test_what_is_told_after_an_answer_counts() -> None:
    heads = LocalHeads()
    heads.answered(answer(5, memory("/a", sha256="ours")))

    heads.absorb(changes(6, (6, "mem_1", memory("/a", sha256="newer"))))

    assert heads.at("/a") == memory("/a", sha256="newer")


def test_two_memories_that_change_places_in_one_moment_do() -> None:
    heads = LocalHeads()
    heads.absorb(changes(2, (1, "mem_1", memory("/a")), (2, "mem_2", memory("/b", "mem_2"))))

    heads.absorb(changes(3, (3, "mem_1", memory("/b")), (3, "mem_2", memory("/a", "mem_2"))))

    assert (heads.at("/b"), heads.at("/a")) == (memory("/b"), memory("/a", "mem_2"))


def test_a_snapshot_takes_the_place_of_all_but_newer_answers() -> None:
    heads = LocalHeads()
    heads.absorb(changes(2, (1, "mem_1", memory("/a")), (2, "mem_2", memory("/b", "mem_2"))))
    heads.answered(answer(9, memory("/c", "mem_3")))

    touched = heads.reset(
        Snapshot(seq=5, memories=(memory("/a", sha256="new"),), cap=10, archived_at=None)
    )

    assert touched == {"/a", "/b"}
    assert sorted(heads.paths()) == ["/a", "/c"]


def test_what_has_no_place_on_disk_is_counted_and_not_shown() -> None:
    heads = LocalHeads()
    heads.absorb(
        changes(
            3,
            (1, "mem_1", memory("/" + "x" * 256)),
            (2, "mem_2", memory("/.memory-errors", "mem_2")),
            (3, "mem_3", memory("/a", "mem_3")),
        )
    )

    assert heads.paths() == ["/a"]
    assert (len(heads), heads.unfit) == (3, ["mem_1", "mem_2"])
    assert heads.at("/.memory-errors") is None
