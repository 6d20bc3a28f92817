"""Merging of files and memories: the rules, the store's heads, the agreed state."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.doors.mount.sync.files import ABSENT, FileType, LocalFile, Mark
from holdfast.doors.mount.sync.merge import FileIdentity, SyncAction, believed, decide, renamed
from holdfast.doors.mount.sync.state import Agreed, Header, Known, LocalHeads, State
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, MemoryChange, Snapshot

CONTENTS = st.sampled_from(["one", "two", "three"])
AGREED = st.none() | st.builds(Agreed, st.sampled_from(["mem_1", "mem_2"]), CONTENTS)
FILES = st.builds(LocalFile, st.just(FileType.FILE), CONTENTS)
UNFITS = st.sampled_from([27, 84])
UNFIT = st.builds(LocalFile, st.just(FileType.FILE), CONTENTS | st.none(), UNFITS)
NO_FILES = st.sampled_from([each for each in FileType if each is not FileType.FILE])
OTHERS = st.builds(LocalFile, NO_FILES)
DISKS = FILES | UNFIT | OTHERS

KEEPS = frozenset(
    {
        SyncAction.UPLOAD,
        SyncAction.KEEP_BOTH,
        SyncAction.REPORT,
        SyncAction.UNDO,
        SyncAction.WAIT,
    }
)


@given(AGREED, DISKS, AGREED, st.booleans())
def test_a_content_that_no_version_has_is_kept(
    base: Agreed | None, disk: LocalFile, head: Agreed | None, writable: bool
) -> None:
    versions = {each.sha256 for each in (base, head) if each is not None}

    act = decide(base, disk, head, writable=writable)

    if disk.type is FileType.FILE and disk.sha256 not in versions:
        assert act in KEEPS


@given(AGREED, DISKS, AGREED, st.booleans())
def test_a_head_that_was_not_seen_before_is_neither_replaced_nor_deleted(
    base: Agreed | None, disk: LocalFile, head: Agreed | None, writable: bool
) -> None:
    act = decide(base, disk, head, writable=writable)

    if head is not None and head != base:
        assert act not in (SyncAction.UPLOAD, SyncAction.DELETE_THERE, SyncAction.DELETE_HERE)
        assert act is not SyncAction.AGREE or disk.sha256 == head.sha256


@given(AGREED, DISKS, AGREED)
def test_nothing_is_asked_of_a_store_that_cannot_be_written(
    base: Agreed | None, disk: LocalFile, head: Agreed | None
) -> None:
    act = decide(base, disk, head, writable=False)

    assert act not in (SyncAction.UPLOAD, SyncAction.DELETE_THERE, SyncAction.KEEP_BOTH)


@given(AGREED, FILES | st.just(ABSENT), AGREED, st.booleans())
@example(Agreed("mem_1", "one"), ABSENT, Agreed("mem_1", "one"), True)
def test_it_comes_to_rest_with_file_and_head_equal(
    base: Agreed | None, disk: LocalFile, head: Agreed | None, writable: bool
) -> None:
    for _ in range(3):
        act = decide(base, disk, head, writable=writable)
        base, disk, head = done(act, base, disk, head)

    assert decide(base, disk, head, writable=writable) is SyncAction.AGREE
    assert base == head
    assert disk.sha256 == (head and head.sha256)


@given(AGREED, FILES | st.just(ABSENT), AGREED, st.booleans())
def test_what_was_done_and_not_noted_is_found_done(
    base: Agreed | None, disk: LocalFile, head: Agreed | None, writable: bool
) -> None:
    act = decide(base, disk, head, writable=writable)
    _, disk, head = done(act, base, disk, head)

    again = decide(base, disk, head, writable=writable)

    if act is not SyncAction.KEEP_BOTH:
        assert again is SyncAction.AGREE


def done(
    act: SyncAction, base: Agreed | None, disk: LocalFile, head: Agreed | None
) -> tuple[Agreed | None, LocalFile, Agreed | None]:
    """Return base, disk and head once *act* is done."""
    match act:
        case (
            SyncAction.AGREE
            | SyncAction.DOWNLOAD
            | SyncAction.UNDO
            | SyncAction.KEEP_BOTH
            | SyncAction.DELETE_HERE
        ):
            return head, ABSENT if head is None else LocalFile(FileType.FILE, head.sha256), head
        case SyncAction.UPLOAD:
            assert disk.sha256 is not None
            saved = Agreed("mem_new" if head is None else head.memory_id, disk.sha256)
            return saved, disk, saved
        case SyncAction.DELETE_THERE:
            return None, ABSENT, None
        case _:
            return base, disk, head


TRACED = st.builds(
    FileIdentity,
    st.sampled_from([f"/{letter}" for letter in "abcdef"]),
    CONTENTS,
    st.integers(1, 3),
    st.none() | st.integers(1, 2),
)


@given(
    st.lists(TRACED, unique_by=lambda each: each.path),
    st.lists(TRACED, unique_by=lambda each: each.path),
)
def test_each_file_is_at_most_one_other_and_only_where_something_says_so(
    gone: list[FileIdentity], new: list[FileIdentity]
) -> None:
    olds = renamed(gone, new)

    before, after = {each.path: each for each in gone}, {each.path: each for each in new}
    assert len(set(olds.values())) == len(olds)
    for path, old in olds.items():
        same = before[old].inode == after[path].inode
        assert same or before[old].sha256 == after[path].sha256


def test_the_same_file_is_preferred_to_one_of_equal_content() -> None:
    gone = [FileIdentity("/a", "one", 1, 5), FileIdentity("/b", "one", 2, 5)]

    assert renamed(gone, [FileIdentity("/c", "one", 2, 5)]) == {"/c": "/b"}


def test_equal_content_is_preferred_under_its_own_name() -> None:
    gone = [FileIdentity("/a/x", "one", 1, 5), FileIdentity("/b/y", "one", 2, 5)]

    assert renamed(gone, [FileIdentity("/c/y", "one", 9, 9)]) == {"/c/y": "/b/y"}


def test_an_inode_used_again_is_another_file() -> None:
    assert renamed([FileIdentity("/a", "one", 1, 5)], [FileIdentity("/b", "two", 1, 6)]) == {}


def test_an_inode_alone_tells_nothing_where_births_are_unknown() -> None:
    assert renamed([FileIdentity("/a", "one", 1, None)], [FileIdentity("/b", "two", 1, None)]) == {}


def test_few_missing_files_are_believed_and_many_are_not() -> None:
    assert believed(8, 8)
    assert believed(25, 100)
    assert not believed(9, 35)
    assert not believed(26, 100)


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


HEADER = Header(store_id="memstore_1", slug="notes")


def known(path: str, id: str = "mem_1", sha256: str = "aa") -> Known:
    return Known(path, id, sha256, Mark(1, 2, 3, 4), 5)


@pytest.fixture
def agreed(tmp_path: Path) -> State:
    state = State(tmp_path / "sync/s.jsonl", HEADER)
    state.open()
    return state


def read(tmp_path: Path) -> list[Known]:
    """Return what another process would know now."""
    return list(State(tmp_path / "sync/s.jsonl", HEADER))


def test_what_is_put_is_known_to_the_next_at_once(tmp_path: Path, agreed: State) -> None:
    agreed.put(known("/a"))
    agreed.put(known("/b", "mem_2"))
    agreed.forget("/a")

    assert read(tmp_path) == [known("/b", "mem_2")]


def test_a_memory_that_moved_is_known_at_both_paths_until_one_is_forgotten(
    tmp_path: Path, agreed: State
) -> None:
    agreed.put(known("/a"))
    agreed.put(known("/b"))
    assert read(tmp_path) == [known("/a"), known("/b")]
    assert agreed.of("mem_1") == known("/b")

    agreed.forget("/a")

    assert read(tmp_path) == [known("/b")]
    assert agreed.of("mem_1") == known("/b")


def test_two_memories_may_change_places(tmp_path: Path, agreed: State) -> None:
    agreed.put(known("/a", "mem_1"), known("/b", "mem_2"))
    agreed.put(known("/b", "mem_1"), known("/a", "mem_2"))

    assert {each.path: each.memory_id for each in read(tmp_path)} == {"/b": "mem_1", "/a": "mem_2"}


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_line_that_was_cut_short_does_not_count(tmp_path: Path, agreed: State, cut: int) -> None:
    agreed.put(known("/a"))
    file = tmp_path / "sync/s.jsonl"
    whole = file.read_bytes()
    agreed.put(known("/b", "mem_2"))
    longer = file.read_bytes()

    file.write_bytes(longer[: min(len(whole) + cut, len(longer) - 1)])

    assert read(tmp_path) == [known("/a")]


def test_it_does_not_grow_for_ever(tmp_path: Path, agreed: State) -> None:
    for number in range(3_000):
        agreed.put(known("/a", sha256=str(number)))
    agreed.tidy()

    assert len((tmp_path / "sync/s.jsonl").read_bytes().splitlines()) == 2
    agreed.put(known("/b", "mem_2"))
    assert len(read(tmp_path)) == 2


def test_it_knows_the_name_its_directory_had(tmp_path: Path, agreed: State) -> None:
    agreed.put(known("/a"))

    again = State(tmp_path / "sync/s.jsonl", Header(store_id="memstore_1", slug="diary"))

    assert (again.slug, again.existed) == ("notes", True)


def test_a_store_that_is_no_more_leaves_nothing(tmp_path: Path, agreed: State) -> None:
    agreed.put(known("/a"))

    agreed.remove()

    assert list((tmp_path / "sync").iterdir()) == []
    assert list(agreed) == []


def test_names_of_directories_do_not_reach_across(agreed: State) -> None:
    agreed.put(known("/a/b", "mem_1"), known("/ab", "mem_2"), known("/a", "mem_3"))

    assert agreed.below("/a") == ["/a/b"]
    assert len(agreed.below("/")) == 3
