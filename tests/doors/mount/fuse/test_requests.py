import errno
import fcntl
import logging
import os
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from doors.mount.fuse.conftest import Mounted
from doors.mount.fuse.toy import BEGIN, Toy, fault

pytestmark = pytest.mark.fuse


def refusal(act: Callable[[], object]) -> int | None:
    """Return the errno with which *act* fails, or None."""
    try:
        act()
    except OSError as error:
        return error.errno
    return None


def test_what_is_written_is_read_again(mounted: Mounted) -> None:
    (mounted.store / "new.md").write_bytes(b"one\ntwo\n")

    assert (mounted.store / "new.md").read_bytes() == b"one\ntwo\n"


def test_a_large_file_comes_whole(mounted: Mounted) -> None:
    content = os.urandom(300_001)

    (mounted.store / "large").write_bytes(content)

    assert subprocess.check_output(["cat", mounted.store / "large"]) == content


def test_stat_shows_what_the_core_says_to_the_nanosecond(mounted: Mounted, toy: Toy) -> None:
    node = toy.nodes["/s/a.md"]

    shown = (mounted.store / "a.md").stat()

    assert (shown.st_ino, shown.st_mode, shown.st_nlink) == (node.inode, 0o100644, 1)
    assert (shown.st_size, shown.st_blocks, shown.st_blksize) == (6, 1, 4096)
    assert (shown.st_mtime_ns, shown.st_ctime_ns) == (node.mtime_ns, node.mtime_ns)
    assert node.mtime_ns > BEGIN


def test_everything_belongs_to_who_mounted(mounted: Mounted) -> None:
    shown = (mounted.store / "a.md").stat()

    assert (shown.st_uid, shown.st_gid) == (os.getuid(), os.getgid())


def test_the_flags_of_open_reach_the_core(mounted: Mounted, toy: Toy) -> None:
    descriptor = os.open(mounted.store / "a.md", os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
    os.close(descriptor)

    (flags,) = toy.flags.values()
    assert flags & (os.O_ACCMODE | os.O_APPEND | os.O_TRUNC) == (
        os.O_WRONLY | os.O_APPEND | os.O_TRUNC
    )


def test_closing_what_was_only_read_saves_nothing(mounted: Mounted, toy: Toy) -> None:
    (mounted.store / "a.md").read_bytes()

    assert toy.asked("flush") == []


def test_closing_what_was_written_saves_before_it_returns(mounted: Mounted, toy: Toy) -> None:
    descriptor = os.open(mounted.store / "a.md", os.O_WRONLY)
    os.write(descriptor, b"x")
    os.close(descriptor)

    assert len(toy.asked("flush")) == 1


def test_a_cut_by_name_and_one_by_handle_both_reach_the_core(mounted: Mounted, toy: Toy) -> None:
    os.truncate(mounted.store / "a.md", 4)
    with (mounted.store / "a.md").open("r+b") as file:
        file.truncate(2)

    assert toy.asked("truncate") == ["/s/a.md", ""]
    assert (mounted.store / "a.md").read_bytes() == b"he"


def test_a_change_of_mode_or_times_is_asked_by_path(mounted: Mounted, toy: Toy) -> None:
    (mounted.store / "a.md").chmod(0o600)
    os.utime(mounted.store / "a.md")

    assert toy.asked("change_attributes") == ["/s/a.md", "/s/a.md"]


def test_df_shows_the_space(mounted: Mounted) -> None:
    space = os.statvfs(mounted.store)

    assert (space.f_bsize, space.f_blocks, space.f_bfree) == (4096, 2500, 2475)
    assert (space.f_files, space.f_ffree, space.f_namemax) == (100, 99, 255)


def test_access_is_asked_of_the_core(mounted: Mounted, toy: Toy) -> None:
    toy.refusals["access"] = fault(errno.EROFS)

    assert not os.access(mounted.store / "a.md", os.W_OK)


def test_extended_attributes_are_read(mounted: Mounted) -> None:
    assert os.getxattr(mounted.store / "a.md", "user.holdfast.id") == b"mem_1"
    assert os.listxattr(mounted.store / "a.md") == ["user.holdfast.id", "user.holdfast.version"]


@pytest.mark.parametrize(
    ("name", "number"), [("user.other", errno.ENODATA), ("security.capability", errno.ENODATA)]
)
def test_an_attribute_that_is_not_there_says_so(mounted: Mounted, name: str, number: int) -> None:
    assert refusal(lambda: os.getxattr(mounted.store / "a.md", name)) == number


ACTS: dict[str, tuple[Callable[[Path], object], int]] = {
    "symlink": (lambda store: (store / "link").symlink_to("a.md"), errno.EPERM),
    "link": (lambda store: (store / "hard").hardlink_to(store / "a.md"), errno.EPERM),
    "mkfifo": (lambda store: os.mkfifo(store / "fifo"), errno.EPERM),
    "setxattr": (lambda store: os.setxattr(store / "a.md", "user.x", b"1"), errno.ENOTSUP),
    "removexattr": (lambda store: os.removexattr(store / "a.md", "user.x"), errno.ENOTSUP),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_the_core_refuses_is_refused_with_its_errno(mounted: Mounted, act: str) -> None:
    call, number = ACTS[act]

    assert refusal(lambda: call(mounted.store)) == number


def test_a_plain_file_by_mknod_is_not_made(mounted: Mounted, toy: Toy) -> None:
    with pytest.raises(PermissionError):
        os.mknod(mounted.store / "plain")

    assert toy.asked("create") == []
    assert toy.asked("mknod") == ["/s/plain"]


def test_space_cannot_be_allocated_ahead(mounted: Mounted) -> None:
    allocating = subprocess.run(
        ["fallocate", "--length=10", mounted.store / "a.md"],
        capture_output=True,
        env={"LC_ALL": "C"},
        text=True,
        check=False,
    )

    assert os.strerror(errno.EOPNOTSUPP) in allocating.stderr


def test_a_file_is_no_terminal(mounted: Mounted) -> None:
    with (mounted.store / "a.md").open("rb") as file:
        assert refusal(lambda: fcntl.ioctl(file.fileno(), termios.TCGETS)) == errno.ENOTTY


def test_locks_are_held_by_the_kernel(mounted: Mounted) -> None:
    path = mounted.store / "a.md"
    with path.open("r+b") as first, path.open("r+b") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(first, fcntl.LOCK_EX)


def test_a_file_that_was_unlinked_goes_on(mounted: Mounted, toy: Toy) -> None:
    with (mounted.store / "a.md").open("r+b") as file:
        (mounted.store / "a.md").unlink()
        file.write(b"HELLO")
        file.flush()

        assert os.fstat(file.fileno()).st_size == 6
        assert os.pread(file.fileno(), 10, 0) == b"HELLO\n"
        os.fchmod(file.fileno(), 0o600)
        os.utime(file.fileno())
        os.ftruncate(file.fileno(), 1)
        assert os.fstat(file.fileno()).st_size == 1
    assert toy.asked("rename") == []


def test_a_new_file_may_be_unlinked_before_it_is_used(mounted: Mounted) -> None:
    descriptor = os.open(mounted.store / "t", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    (mounted.store / "t").unlink()

    assert os.fstat(descriptor).st_size == 0
    assert (mounted.store / "a.md").stat().st_size == 6
    os.write(descriptor, b"abc")
    assert os.fstat(descriptor).st_size == 3
    os.close(descriptor)


def test_a_file_that_was_renamed_over_goes_on(mounted: Mounted) -> None:
    (mounted.store / "b.md").write_bytes(b"other")
    with (mounted.store / "a.md").open("rb") as file:
        (mounted.store / "b.md").rename(mounted.store / "a.md")

        assert os.fstat(file.fileno()).st_size == 6
        assert (mounted.store / "a.md").stat().st_size == 5


def test_an_unknown_exception_is_eio_with_its_traceback(
    mounted: Mounted, toy: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    toy.refusals["getattr"] = ZeroDivisionError("what happened")

    with caplog.at_level(logging.ERROR):
        assert refusal((mounted.store / "b.md").stat) == errno.EIO

    assert "what happened" in caplog.text
    toy.refusals.clear()
    assert (mounted.store / "a.md").read_bytes() == b"hello\n"


@pytest.mark.parametrize("failure", [OSError("no errno"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("operation", ["read", "open", "readdir", "flush", "write", "statfs"])
def test_no_exception_ends_the_mount(
    mounted: Mounted, toy: Toy, failure: BaseException, operation: str
) -> None:
    toy.refusals[operation] = failure

    assert refusal(lambda: use(mounted.store)) == errno.EIO
    toy.refusals.clear()
    assert (mounted.store / "a.md").read_bytes() == b"hello\n"


def use(store: Path) -> None:
    """List, read, write and measure *store*."""
    assert [*store.iterdir()]
    assert (store / "a.md").read_bytes()
    (store / "b.md").write_bytes(b"x")
    os.statvfs(store)
