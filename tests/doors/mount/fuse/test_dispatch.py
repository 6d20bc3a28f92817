"""Requests of the kernel: their answers, concurrency, and forgotten inodes."""

import errno
import fcntl
import logging
import os
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from doors.mount.fuse.conftest import SECONDS, Mounted, eventually, mounting, names, threads
from doors.mount.fuse.toy import BEGIN, Toy, fault

from holdfast.doors.mount.filesystem.nodes import Attributes
from holdfast.doors.mount.fuse.dispatch import THREADS

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


T = TypeVar("T")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS + 4) as pool:
        yield pool


@pytest.fixture
def other(mounted: Mounted, toy: Toy) -> Path:
    """Give a store in which nothing hangs."""
    toy.put("/t", None)
    toy.put("/t/b.md", b"other")
    return mounted.directory / "t"


def in_time(future: Future[T]) -> T:
    return future.result(SECONDS)


def work(store: Path) -> None:
    """List, read, write, rename and delete in *store*."""
    assert names(store) == ["b.md"]
    assert (store / "b.md").read_bytes() == b"other"
    (store / "c.md").write_bytes(b"new")
    (store / "c.md").rename(store / "d.md")
    (store / "d.md").unlink()


def write(path: Path) -> None:
    path.write_bytes(b"x")


def rename(path: Path) -> None:
    path.rename(path.with_name("z.md"))


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("read", Path.read_bytes),
        ("open", Path.read_bytes),
        ("flush", write),
        ("fsync", sync),
        ("unlink", Path.unlink),
        ("rename", rename),
    ],
)
def test_what_hangs_stops_nobody_else(  # noqa: PLR0917 - pytest hands them in by name
    toy: Toy,
    mounted: Mounted,
    other: Path,
    pool: ThreadPoolExecutor,
    operation: str,
    act: Callable[[Path], object],
) -> None:
    with toy.hanging(operation):
        hangs = pool.submit(act, mounted.store / "a.md")
        assert toy.waiting.acquire(timeout=SECONDS)

        for _ in range(10):
            work(other)

        assert not hangs.done()
    in_time(hangs)


def test_who_waits_for_a_name_stops_nobody_else(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    path = mounted.store / "a.md"
    path.stat()
    with toy.hanging("unlink"):
        hangs = pool.submit(path.unlink)
        assert toy.waiting.acquire(timeout=SECONDS)

        # The name is locked in libfuse: who opens it waits in there.
        waits = [pool.submit(path.open) for _ in range(3)]
        for _ in range(10):
            work(other)

        assert not any(each.done() for each in waits)
    in_time(hangs)
    for each in waits:
        with pytest.raises(FileNotFoundError):
            in_time(each)


def test_an_open_is_not_overtaken_by_two_renames(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.doors.mount.fuse.kernel.REOPEN_SECONDS", 10.0)
    path, found = mounted.store / "a.md", toy.getattr
    looked_up, go_on = threading.Event(), threading.Event()
    reading: list[Future[bytes]] = []

    def getattr(name: str, fh: int | None = None) -> Attributes:
        if reading and name == "/s/a.md" and not looked_up.is_set():
            looked_up.set()
            toy.kernel.step_aside()
            go_on.wait(SECONDS)
        return found(name, fh)

    path.stat()
    monkeypatch.setattr(toy, "getattr", getattr)
    while not looked_up.is_set():
        reading.clear()
        for name in ("b.tmp", "c.tmp"):
            (mounted.store / name).write_bytes(b"new")
        with toy.hanging("rename"):
            first = pool.submit((mounted.store / "b.tmp").rename, path)
            assert toy.waiting.acquire(timeout=SECONDS)
            # The open waits inside libfuse, and then finds its node without a name: the kernel
            # looks the name up again. If it came too late for that, the next round tries again.
            reading.append(pool.submit(path.read_bytes))
            for _ in range(10):
                (mounted.store / "c.tmp").read_bytes()
        in_time(first)
        eventually(lambda: looked_up.is_set() or reading[0].done())

    second = pool.submit((mounted.store / "c.tmp").rename, path)
    with pytest.raises(TimeoutError):
        second.result(0.5)
    go_on.set()

    assert in_time(reading[0]) == b"new"
    in_time(second)


def test_a_directory_is_renamed_once_who_reads_in_it_is_done(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    toy.put("/s/d", None)
    toy.put("/s/d/f.md", b"x")
    with toy.hanging("open"):
        hangs = pool.submit((mounted.store / "d" / "f.md").read_bytes)
        assert toy.waiting.acquire(timeout=SECONDS)
        renaming = pool.submit((mounted.store / "d").rename, mounted.store / "e")

        for _ in range(10):
            work(other)

        assert not renaming.done()
    assert in_time(hangs) == b"x"
    in_time(renaming)
    assert (mounted.store / "e" / "f.md").read_bytes() == b"x"


def test_reading_and_saving_lock_no_name(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    with toy.hanging("read"):
        hangs = pool.submit((mounted.store / "a.md").read_bytes)
        assert toy.waiting.acquire(timeout=SECONDS)

        (mounted.store / "a.md").rename(mounted.store / "b.md")
        (mounted.store / "b.md").unlink()

    assert in_time(hangs) == b"hello\n"


def test_all_but_one_thread_may_hang(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS - 1):
        toy.put(f"/s/{each}.md", b"x")
    with toy.hanging("read", times=THREADS - 1):
        hang = [
            pool.submit((mounted.store / f"{each}.md").read_bytes) for each in range(THREADS - 1)
        ]
        for _ in hang:
            assert toy.waiting.acquire(timeout=SECONDS)

        for _ in range(3):
            work(other)

        assert len(threads()) == THREADS
    assert [in_time(each) for each in hang] == [b"x"] * (THREADS - 1)


def test_what_comes_when_all_hang_is_answered_when_one_goes_on(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS):
        toy.put(f"/s/{each}.md", b"x")
    with toy.hanging("read", times=THREADS):
        hang = [pool.submit((mounted.store / f"{each}.md").read_bytes) for each in range(THREADS)]
        for _ in hang:
            assert toy.waiting.acquire(timeout=SECONDS)
        comes = pool.submit(os.listdir, other)
        assert len(threads()) == THREADS

    assert in_time(comes) == ["b.md"]
    assert [in_time(each) for each in hang] == [b"x"] * THREADS


def test_one_thread_answers_while_nothing_waits(mounted: Mounted, other: Path) -> None:
    for each in range(20):
        (mounted.store / f"{each}.md").write_bytes(b"x")
        assert (other / "b.md").read_bytes() == b"other"
        assert names(other) == ["b.md"]

    assert len(threads()) == 1


def test_threads_that_waited_are_used_again(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS):
        toy.put(f"/s/{each}.md", b"x")
        with toy.hanging("read"):
            hangs = pool.submit((mounted.store / f"{each}.md").read_bytes)
            assert toy.waiting.acquire(timeout=SECONDS)
        in_time(hangs)

    # Who has answered may not yet be in line when the next one steps aside.
    assert len(threads()) <= 3


def test_stepping_aside_twice_or_from_elsewhere_does_nothing(mounted: Mounted, toy: Toy) -> None:
    toy.kernel.step_aside()
    toy.kernel.step_aside()

    assert (mounted.store / "a.md").read_bytes() == b"hello\n"
    assert len(threads()) == 1


def test_many_programs_at_once_get_what_is_theirs(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    def program(number: int) -> None:
        for each in range(30):
            path = mounted.store / f"{number}-{each}.md"
            content = f"{number} {each} ".encode() * (each + 1)
            path.write_bytes(content)
            assert path.read_bytes() == content
            path.rename(path.with_suffix(".txt"))
            assert path.with_suffix(".txt").stat().st_size == len(content)
            path.with_suffix(".txt").unlink()
            assert not path.exists()

    with toy.hanging("flush", times=5):
        programs = [pool.submit(program, number) for number in range(8)]
        for _ in range(5):
            assert toy.waiting.acquire(timeout=SECONDS)
    for each in programs:
        in_time(each)

    eventually(lambda: names(mounted.store) == ["a.md"])


def test_what_hangs_in_one_directory_keeps_no_notice_of_another(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(20):
        toy.put(f"/s/{each}.md", b"x")
    assert len(names(mounted.store)) == 21
    (other / "b.md").stat()
    with toy.hanging("unlink"):
        hangs = pool.submit((mounted.store / "a.md").unlink)
        assert toy.waiting.acquire(timeout=SECONDS)

        for each in range(20):
            toy.drop(f"/s/{each}.md")
        toy.drop("/t/b.md")

        eventually(lambda: not (other / "b.md").exists())
        assert not hangs.done()
    in_time(hangs)
    eventually(lambda: not (mounted.store / "19.md").exists())


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
