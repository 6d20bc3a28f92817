import ctypes
import os
from pathlib import Path

import pytest
from doors.mount.fuse.conftest import Mounted, names
from doors.mount.fuse.toy import Toy

pytestmark = pytest.mark.fuse

MANY = 3_000


def renameat2(old: Path, new: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def test_a_listing_has_types_and_inodes_of_its_own(mounted: Mounted, toy: Toy) -> None:
    toy.put("/s/d", None)

    with os.scandir(mounted.store) as entries:
        shown = {each.name: (each.inode(), each.is_dir()) for each in entries}

    assert shown == {
        "a.md": (toy.nodes["/s/a.md"].inode, False),
        "d": (toy.nodes["/s/d"].inode, True),
    }


def test_a_long_listing_has_each_name_once(mounted: Mounted, toy: Toy) -> None:
    made = {f"{each:05}-{'long' * (each % 50)}.md" for each in range(MANY)}
    for name in made:
        toy.put(f"/s/{name}", b"x")

    listed = names(mounted.store)

    assert len(listed) == MANY + 1
    assert set(listed) == made | {"a.md"}


def test_what_was_listed_needs_no_further_question(mounted: Mounted, toy: Toy) -> None:
    for each in range(MANY):
        toy.put(f"/s/{each}.md", b"x" * each)
    listed = [*mounted.store.iterdir()]
    toy.calls.clear()

    sizes = [each.stat().st_size for each in listed]

    assert len(sizes) == MANY + 1
    assert toy.asked("getattr") == []


def test_one_reading_of_the_core_serves_a_whole_listing(mounted: Mounted, toy: Toy) -> None:
    for each in range(MANY):
        toy.put(f"/s/{each}.md", b"x")

    assert len([*mounted.store.iterdir()]) == MANY + 1
    assert len(toy.asked("readdir")) == 1


def test_a_listing_bears_what_others_do_meanwhile(mounted: Mounted, toy: Toy) -> None:
    for each in range(MANY):
        toy.put(f"/s/{each:05}.md", b"x")
    with os.scandir(mounted.store) as entries:
        listed = [next(entries).name for _ in range(3)]
        for each in range(0, MANY, 3):
            toy.drop(f"/s/{each:05}.md")
        toy.put("/s/new.md", b"x")
        toy.replace("/s/02998.md", b"longer")
        listed += [each.name for each in entries]

    kept = {f"{each:05}.md" for each in range(MANY) if each % 3}
    assert len(listed) == len(set(listed))
    assert kept <= set(listed)
    # What had gone before its page was read is not shown, let alone remembered.
    assert "02997.md" not in listed
    assert not (mounted.store / "02997.md").exists()
    assert (mounted.store / "02998.md").stat().st_size == 6


def test_a_listing_read_again_from_its_start_is_fresh(mounted: Mounted, toy: Toy) -> None:
    descriptor = os.open(mounted.store, os.O_RDONLY | os.O_DIRECTORY)
    with os.scandir(descriptor) as entries:
        first = {each.name for each in entries}
    toy.put("/s/b.md", b"x")
    with os.scandir(descriptor) as entries:
        again = {each.name for each in entries}
    os.close(descriptor)

    assert (first, again) == ({"a.md"}, {"a.md", "b.md"})


def test_a_name_that_is_not_utf8_reaches_the_core(mounted: Mounted, toy: Toy) -> None:
    name = os.fsdecode(b"\xff\xe9.md")

    (mounted.store / name).write_bytes(b"x")

    assert "/s/\udcff\udce9.md" in toy.nodes
    assert name in names(mounted.store)


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_the_flags_of_rename_reach_the_core(mounted: Mounted, toy: Toy, flags: int) -> None:
    toy.put("/s/b.md", b"x")
    new = mounted.store / ("b.md" if flags == 2 else "c.md")

    renameat2(mounted.store / "a.md", new, flags)

    assert toy.asked("rename") == [f"/s/a.md /s/{new.name} {flags}"]


def test_the_flags_of_creating_reach_the_core(mounted: Mounted, toy: Toy) -> None:
    os.close(os.open(mounted.store / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND))

    (flags,) = toy.flags.values()
    assert flags & os.O_ACCMODE == os.O_RDWR
    assert flags & os.O_EXCL
    assert flags & os.O_APPEND


def test_an_exchange_is_not_taken_for_a_rename(mounted: Mounted, toy: Toy) -> None:
    toy.put("/s/b.md", b"x")
    toy.refusals["rename"] = OSError(22, "no exchange")

    with pytest.raises(OSError, match="renameat2"):
        renameat2(mounted.store / "a.md", mounted.store / "b.md", 2)

    assert (mounted.store / "a.md").read_bytes() == b"hello\n"
    assert (mounted.store / "b.md").read_bytes() == b"x"


def test_an_open_directory_may_be_renamed(mounted: Mounted, toy: Toy) -> None:
    toy.put("/s/d", None)
    toy.put("/s/d/f.md", b"x")
    descriptor = os.open(mounted.store / "d", os.O_RDONLY | os.O_DIRECTORY)

    (mounted.store / "d").rename(mounted.store / "e")

    with os.scandir(descriptor) as entries:
        assert [each.name for each in entries] == ["f.md"]
    os.fsync(descriptor)
    os.close(descriptor)
    assert toy.asked("fsyncdir") == ["/s/e"]


def test_a_file_is_opened_where_it_is_now(mounted: Mounted) -> None:
    first, second = mounted.store / "a.md", mounted.store / "b.md"
    for turn in range(3):
        assert first.read_bytes() == b"hello\n"
        assert first.read_bytes() == b"hello\n"
        first.rename(second)
        first.write_bytes(b"new %d" % turn)

        assert second.read_bytes() == b"hello\n"
        assert first.read_bytes() == b"new %d" % turn
        second.rename(first)


def test_a_file_is_opened_where_its_directory_is_now(mounted: Mounted) -> None:
    for name in ("d", "e"):
        (mounted.store / name).mkdir()
        (mounted.store / name / "f.md").write_text(name)
        assert (mounted.store / name / "f.md").read_text() == name
    (mounted.store / "d").rename(mounted.store / "g")
    (mounted.store / "e").rename(mounted.store / "d")

    assert (mounted.store / "d" / "f.md").read_text() == "e"
    assert (mounted.store / "g" / "f.md").read_text() == "d"


def test_a_name_that_is_taken_again_is_another_file(mounted: Mounted) -> None:
    path = mounted.store / "a.md"
    with path.open("rb", buffering=0) as old:
        path.unlink()
        path.write_bytes(b"another")

        assert path.read_bytes() == b"another"
        assert old.read() == b"hello\n"
        assert os.fstat(old.fileno()).st_size == 6
