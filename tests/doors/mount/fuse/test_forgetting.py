import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from doors.mount.fuse.conftest import Mounted, eventually, mounting, names
from doors.mount.fuse.toy import Toy, fault

pytestmark = pytest.mark.fuse


def create(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def create_anew(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def known(path: Path) -> None:
    """Have the kernel know *path*."""
    path.stat()


def listed(path: Path) -> None:
    """Have the kernel know *path* from a listing alone."""
    assert path.name in names(path.parent)


@pytest.mark.parametrize("again", [create, create_anew, Path.mkdir])
@pytest.mark.parametrize("learn", [known, listed])
def test_a_name_deleted_elsewhere_can_be_made_again(
    mounted: Mounted, toy: Toy, learn: Callable[[Path], None], again: Callable[[Path], None]
) -> None:
    path = mounted.store / "a.md"
    learn(path)

    toy.drop("/s/a.md")

    eventually(lambda: not path.exists())
    again(path)
    assert path.exists()


def test_a_name_deleted_elsewhere_is_gone_deep_down(mounted: Mounted, toy: Toy) -> None:
    toy.put("/s/d", None)
    toy.put("/s/d/e", None)
    toy.put("/s/d/e/f.md", b"x")
    path = mounted.store / "d" / "e" / "f.md"
    path.stat()

    toy.drop("/s/d/e/f.md")

    eventually(lambda: not path.exists())
    create_anew(path)


def test_a_name_is_forgotten_where_its_directory_is_now(mounted: Mounted, toy: Toy) -> None:
    toy.put("/s/d", None)
    toy.put("/s/d/e", None)
    toy.put("/s/d/e/f.md", b"x")
    (mounted.store / "d" / "e" / "f.md").stat()
    (mounted.store / "d").rename(mounted.store / "moved")
    path = mounted.store / "moved" / "e" / "f.md"
    path.stat()

    toy.drop("/s/moved/e/f.md")

    eventually(lambda: not path.exists())
    create_anew(path)


def test_a_store_can_go_from_the_root(mounted: Mounted, toy: Toy) -> None:
    toy.put("/other", None)
    known(mounted.directory / "other")

    toy.drop("/other")

    eventually(lambda: not (mounted.directory / "other").exists())


def test_a_name_nobody_asked_for_is_forgotten_without_fuss(mounted: Mounted, toy: Toy) -> None:
    toy.kernel.forget_name("/s/never", "seen")
    toy.kernel.forget_content("/s/never/seen")
    toy.kernel.forget_name("/s", "nor this")

    assert (mounted.store / "a.md").read_bytes() == b"hello\n"


def test_content_changed_elsewhere_is_read_at_once(mounted: Mounted, toy: Toy) -> None:
    path = mounted.store / "a.md"
    assert path.read_bytes() == b"hello\n"

    toy.replace("/s/a.md", b"something longer\n")

    eventually(lambda: path.read_bytes() == b"something longer\n")
    assert path.stat().st_size == 17


def test_content_changed_elsewhere_is_read_through_an_open_file(mounted: Mounted, toy: Toy) -> None:
    with (mounted.store / "a.md").open("rb", buffering=0) as file:
        assert file.read() == b"hello\n"

        toy.replace("/s/a.md", b"other\n")

        eventually(lambda: os.pread(file.fileno(), 10, 0) == b"other\n")


def test_opening_finds_a_change_that_nobody_told_of(mounted: Mounted, toy: Toy) -> None:
    path = mounted.store / "a.md"
    assert path.read_bytes() == b"hello\n"
    node = toy.nodes["/s/a.md"]

    node.data, node.mtime_ns = bytearray(b"HELLO\n"), node.mtime_ns + 1

    assert path.read_bytes() == b"HELLO\n"


def test_what_has_not_changed_is_asked_for_once(mounted: Mounted, toy: Toy) -> None:
    for _ in range(3):
        assert (mounted.store / "a.md").read_bytes() == b"hello\n"

    assert len(toy.asked("read")) == 1


def test_attributes_are_asked_for_once(mounted: Mounted, toy: Toy) -> None:
    (mounted.store / "a.md").stat()
    toy.calls.clear()

    (mounted.store / "a.md").stat()

    assert toy.calls == []


def test_a_name_that_was_not_there_is_found_when_it_comes(mounted: Mounted, toy: Toy) -> None:
    path = mounted.store / "b.md"
    assert not path.exists()

    toy.put("/s/b.md", b"x")

    assert path.exists()


class Refusing(Toy):
    """Takes new files back when they are saved."""

    def flush(self, fh: int) -> None:
        super().flush(fh)
        path = next(each for each, node in self.nodes.items() if node is self.handles[fh])
        self.drop(path)
        raise fault(errno.EFBIG)


def test_a_new_file_that_was_refused_is_gone_when_close_returns(tmp_path: Path) -> None:
    toy = Refusing()
    toy.put("/s", None)
    with mounting(toy, tmp_path) as mounted:
        for each in range(50):
            path = mounted.store / f"{each}.md"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, b"x")
            with pytest.raises(OSError, match="File too large"):
                os.close(descriptor)

            assert not path.exists()
            create_anew_or_refused(path)


def create_anew_or_refused(path: Path) -> None:
    """Make *path*; that closing it is refused as well is not the point."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with pytest.raises(OSError, match="File too large"):
        os.close(descriptor)


def test_a_flood_of_changes_is_told_in_the_end(mounted: Mounted, toy: Toy) -> None:
    for each in range(500):
        toy.put(f"/s/{each}.md", b"old")
    assert all(path.stat().st_size for path in mounted.store.iterdir())

    for each in range(500):
        if each % 2:
            toy.drop(f"/s/{each}.md")
        else:
            toy.replace(f"/s/{each}.md", b"newer")

    def as_it_is() -> bool:
        sizes = [path.stat().st_size for path in mounted.store.iterdir() if path.name != "a.md"]
        gone = not any((mounted.store / f"{each}.md").exists() for each in range(1, 500, 2))
        return gone and sizes == [5] * 250

    eventually(as_it_is)
