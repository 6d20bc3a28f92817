"""What the store has, told by its feed and by its answers, in whatever order they come."""

from datetime import UTC, datetime

from holdfast.doors.mount.sync.state import LocalHeads
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


def test_a_result_is_not_undone_by_an_older_page_once_the_heads_caught_up() -> None:
    heads = LocalHeads()
    heads.put(answer(5, memory("/a", sha256="ours")))
    heads.absorb(changes(5, (5, "mem_1", memory("/a", sha256="ours"))))

    assert heads.absorb(changes(4, (4, "mem_1", memory("/a", sha256="older")))) == set()

    assert heads.at("/a") == memory("/a", sha256="ours")


def test_a_deletion_is_not_undone_by_an_older_page_once_the_heads_caught_up() -> None:
    heads = LocalHeads()
    heads.absorb(changes(1, (1, "mem_1", memory("/a"))))
    heads.put(answer(3, deleted=("mem_1",)))
    assert heads.absorb(changes(3, (3, "mem_1", None))) == set()

    heads.absorb(changes(2, (2, "mem_1", memory("/a", sha256="older"))))

    assert heads.at("/a") is None


def test_a_change_after_a_result_counts() -> None:
    heads = LocalHeads()
    heads.put(answer(5, memory("/a", sha256="ours")))

    heads.absorb(changes(6, (6, "mem_1", memory("/a", sha256="newer"))))

    assert heads.at("/a") == memory("/a", sha256="newer")


def test_two_memories_that_change_places_in_one_moment_do() -> None:
    heads = LocalHeads()
    heads.absorb(changes(2, (1, "mem_1", memory("/a")), (2, "mem_2", memory("/b", "mem_2"))))

    heads.absorb(changes(3, (3, "mem_1", memory("/b")), (3, "mem_2", memory("/a", "mem_2"))))

    assert (heads.at("/b"), heads.at("/a")) == (memory("/b"), memory("/a", "mem_2"))


def test_a_snapshot_replaces_all_heads_unless_it_is_older() -> None:
    heads = LocalHeads()
    heads.absorb(changes(2, (1, "mem_1", memory("/a")), (2, "mem_2", memory("/b", "mem_2"))))
    snapshot = Snapshot(seq=5, memories=(memory("/a", sha256="new"),), cap=10, archived_at=None)

    assert heads.reset(snapshot) == {"/a", "/b"}
    assert heads.paths() == ["/a"]

    older = Snapshot(seq=4, memories=(), cap=10, archived_at=None)
    assert heads.reset(older) == set()
    assert heads.paths() == ["/a"]


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
