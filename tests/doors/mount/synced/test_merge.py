"""The rules of merging: no content is lost, no head overlooked, and it comes to rest."""

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.doors.mount.sync.files import ABSENT, FileType, LocalFile
from holdfast.doors.mount.sync.merge import FileIdentity, SyncAction, believed, decide, renamed
from holdfast.doors.mount.sync.state import Agreed

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
