"""The process of a FUSE session: its start, its names, and its end."""

import ctypes
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from doors.mount.fuse.conftest import (
    SECONDS,
    Mounted,
    cut,
    eventually,
    mounted_at,
    mounting,
    names,
    threads,
)
from doors.mount.fuse.toy import Toy

from holdfast.doors.mount.fuse import adapter
from holdfast.doors.mount.fuse.libfuse import MountFailed, binding, find_libfuse
from holdfast.doors.mount.process.system import Machine
from holdfast.ground.errors import Refused

pytestmark = pytest.mark.fuse


TESTS = Path(__file__).parents[3]
NOBODY = 65534

# Mounts at the argument, with a handler of its own for SIGTERM; says what *says* is when ready.
SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
from doors.mount.fuse.toy import Toy
from holdfast.doors.mount.fuse.adapter import serve
from holdfast.doors.mount.fuse.libfuse import binding

def signals():
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]

toy, stop, directory, user = Toy(), threading.Event(), Path(sys.argv[1]), int(sys.argv[2])
if binding() and user != os.getuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
toy.put("/s", None)
toy.put("/s/a.md", b"hello")
signal.signal(signal.SIGTERM, lambda *_: stop.set())
# The C library takes a signal for itself when the first thread begins.
threading.Thread(target=int).start()
before = signals(), os.getcwd()

def ready():
    print({says}, flush=True)

serve(toy, directory, allow_other=False, stop=stop, ready=ready)
print("over", flush=True)
"""


def run(code: str, *arguments: str | Path) -> str:
    """Return what *code* says in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def process(
    directory: Path, says: str, user: int | None = None, base: Path | None = None
) -> Generator[subprocess.Popen[str]]:
    """Mount a toy at *directory* in a process of its own, which surely ends.

    With *base* everybody may open /dev/fuse in there, whatever this machine permits.
    """
    who = str(os.getuid() if user is None else user)
    command = [sys.executable, "-c", SCRIPT.format(says=says), directory, who]
    with subprocess.Popen(
        [*(permitting(base) if base else ()), *command],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            while mounted_at(directory):
                subprocess.run(["umount", "-l", directory], check=False)


def permitting(base: Path) -> list[str]:
    """Return what runs a command where /dev/fuse is everybody's."""
    device = base / "fuse"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 229))
    device.chmod(0o666)
    there = f'mount --bind {device} /dev/fuse && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", there, "sh"]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_signal_handler_and_no_directory_is_changed(tmp_path: Path) -> None:
    with process(tmp_path, "before == (signals(), os.getcwd())") as mount:
        assert line(mount) == "True"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_do_what_they_did(tmp_path: Path, number: signal.Signals) -> None:
    with process(tmp_path, "'ready'") as mount:
        assert line(mount) == "ready"
        assert (tmp_path / "s" / "a.md").read_bytes() == b"hello"

        mount.send_signal(number)

        assert line(mount) == ("over" if number == signal.SIGTERM else "")
        assert mount.wait(SECONDS) == (0 if number == signal.SIGTERM else -signal.SIGKILL)


@pytest.fixture
def public() -> Iterator[Path]:
    """Give a directory that everybody reaches: pytest's own it closes again at any time."""
    with TemporaryDirectory(prefix="holdfast-") as folder:
        Path(folder).chmod(0o755)
        directory = Path(folder) / "m"
        directory.mkdir()
        yield directory


def test_who_is_not_root_mounts_through_fusermount3(tmp_path: Path, public: Path) -> None:
    os.chown(public, NOBODY, NOBODY)

    with process(public, "os.lstat(directory / 's').st_uid", NOBODY, tmp_path) as mount:
        assert line(mount) == str(NOBODY)
        mount.terminate()
        assert line(mount) == "over"
        assert mount.wait(SECONDS) == 0


def test_who_may_not_mount_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    directory.mkdir()

    with process(directory, "'ready'", NOBODY) as mount:
        assert line(mount) == ""
        assert mount.wait(SECONDS) == 1


def test_others_may_read_what_is_shared_with_them(toy: Toy, public: Path) -> None:
    with mounting(toy, public, allow_other=True) as mounted:
        path = mounted.store / "a.md"

        reading = as_nobody("cat", path)
        writing = as_nobody("tee", path)

    assert reading.stdout == "hello\n"
    assert "Permission denied" in writing.stderr


def test_others_see_nothing_of_what_is_not(toy: Toy, public: Path) -> None:
    with mounting(toy, public) as mounted:
        reading = as_nobody("cat", mounted.store / "a.md")

    assert "Permission denied" in reading.stderr


def test_shared_memory_is_written_back(mounted: Mounted, toy: Toy) -> None:
    code = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as memory:\n"
        "    memory[:5] = b'HELLO'\n"
    )

    run(code, mounted.store / "a.md")

    assert toy.nodes["/s/a.md"].data == b"HELLO\n"


def as_nobody(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        env={"LC_ALL": "C"},
        input="",
        text=True,
        user=NOBODY,
        cwd="/",
    )


def test_the_device_is_not_handed_to_programs(mounted: Mounted) -> None:
    descriptors = Path("/proc/self/fd")

    devices = [each for each in descriptors.iterdir() if leads_to(each) == "/dev/fuse"]

    assert devices
    for device in devices:
        assert fcntl.fcntl(int(device.name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert (mounted.store / "a.md").exists()


def leads_to(descriptor: Path) -> str | None:
    """Return what *descriptor* is of, if it is still open."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return None


def test_the_binding_is_imported_when_it_is_needed() -> None:
    code = (
        "import sys, holdfast.doors.mount.fuse.adapter; print('mfusepy' in sys.modules);"
        "holdfast.doors.mount.fuse.libfuse.binding(); print('mfusepy' in sys.modules)"
    )

    assert run(code).split() == ["False", "True"]


def test_libfuse_3_is_chosen_and_the_environment_left_alone() -> None:
    code = (
        "import os; from holdfast.doors.mount.fuse.libfuse import bindings;"
        "print(bindings().fuse_version_major, 'FUSE_LIBRARY_PATH' in os.environ)"
    )

    assert run(code) == "3 False"


def test_the_binding_says_what_it_is() -> None:
    name, version, library, number = binding().replace(",", "").split()

    assert (name, library) == ("mfusepy", "libfuse")
    assert version.startswith("3.")
    assert number.startswith("3.")


def nothing(name: str) -> object:
    raise OSError(name)


def test_a_missing_libfuse_is_said_with_what_to_do() -> None:
    with pytest.raises(Refused, match="libfuse3 is not installed") as refused:
        find_libfuse(Machine(load=nothing))

    assert "apt install libfuse3-3 fuse3" in str(refused.value.next)
    assert "--mode sync" in str(refused.value.next)


serve = cast("Callable[..., None]", adapter.serve)
"""Serves a toy as it serves a store's file system."""


def exit_code(*command: str | Path) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


def test_a_stop_unmounts(mounted: Mounted) -> None:
    mounted.stop.set()

    assert mounted.ended()
    assert mounted_at(mounted.directory) is None
    assert threads() == []
    assert names(mounted.directory) == []


@pytest.mark.parametrize(
    "command", [("umount",), ("fusermount3", "-u"), ("umount", "-l"), ("fusermount3", "-u", "-z")]
)
def test_it_ends_when_unmounted_from_outside(mounted: Mounted, command: tuple[str, ...]) -> None:
    (mounted.store / "a.md").read_bytes()

    assert exit_code(*command, mounted.directory) == 0

    assert mounted.ended()
    assert mounted.stop.is_set()
    assert threads() == []


def test_it_ends_when_the_connection_is_cut(mounted: Mounted) -> None:
    cut(mounted.directory)

    assert mounted.ended()
    assert mounted_at(mounted.directory) is None


def test_it_stays_while_somebody_holds_a_file(mounted: Mounted) -> None:
    with (mounted.store / "a.md").open("rb") as file:
        assert exit_code("umount", mounted.directory) != 0

        assert file.read() == b"hello\n"
        assert (mounted.store / "a.md").exists()


@pytest.mark.parametrize("command", [("umount", "-l"), ("fusermount3", "-u", "-z")])
def test_open_files_go_on_after_a_lazy_unmount(
    mounted: Mounted, toy: Toy, command: tuple[str, ...]
) -> None:
    with (mounted.store / "a.md").open("r+b", buffering=0) as file:
        assert exit_code(*command, mounted.directory) == 0
        assert mounted_at(mounted.directory) is None

        file.write(b"HELLO")
        assert os.pread(file.fileno(), 10, 0) == b"HELLO\n"
        assert mounted.thread.is_alive()

    assert mounted.ended()
    assert toy.asked("flush")


def test_a_stop_waits_not_for_who_holds_a_file(mounted: Mounted) -> None:
    gone = os.strerror(errno.ENOTCONN)
    descriptor = os.open(mounted.store / "a.md", os.O_RDWR)

    mounted.stop.set()

    assert mounted.ended()
    with pytest.raises(OSError, match=gone):
        os.write(descriptor, b"late")
    with pytest.raises(OSError, match=gone):
        os.close(descriptor)
    eventually(lambda: not threads())


def test_a_stop_waits_not_for_what_hangs(mounted: Mounted, toy: Toy) -> None:
    with toy.hanging("read"):
        reading = threading.Thread(target=attempt, args=(mounted.store / "a.md",))
        reading.start()
        assert toy.waiting.acquire(timeout=SECONDS)

        mounted.stop.set()
        assert mounted.ended()

    reading.join(SECONDS)
    eventually(lambda: not threads())


def attempt(path: Path) -> None:
    """Read *path*, or fail."""
    try:
        path.read_bytes()
    except OSError:
        return


def test_it_is_ready_when_the_first_listing_works(toy: Toy, tmp_path: Path) -> None:
    listed: list[str] = []
    stop = threading.Event()

    def ready() -> None:
        listed.extend(names(tmp_path / "s"))
        stop.set()

    serve(toy, tmp_path, allow_other=False, stop=stop, ready=ready)

    assert listed == ["a.md"]
    assert mounted_at(tmp_path) is None


def test_the_same_directory_can_be_mounted_again(toy: Toy, tmp_path: Path) -> None:
    for _ in range(3):
        with mounting(toy, tmp_path) as mounted:
            assert (mounted.store / "a.md").read_bytes() == b"hello\n"


def test_two_mounts_do_not_mix(toy: Toy, tmp_path: Path) -> None:
    other = Toy()
    other.put("/s", None)
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    with mounting(toy, first) as one, mounting(other, second) as two:
        (one.store / "b.md").write_bytes(b"one")
        (two.store / "b.md").write_bytes(b"two")

        assert (one.store / "b.md").read_bytes() == b"one"
        assert names(two.store) == ["b.md"]


def test_what_cannot_be_mounted_says_so(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(MountFailed, match=r"not there: .*No such file or directory"):
        serve(
            toy,
            tmp_path / "not there",
            allow_other=False,
            stop=threading.Event(),
            ready=lambda: None,
        )

    assert threads() == []


def test_what_fails_when_it_is_ready_leaves_nothing_mounted(toy: Toy, tmp_path: Path) -> None:
    def ready() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        serve(toy, tmp_path, allow_other=False, stop=threading.Event(), ready=ready)

    assert mounted_at(tmp_path) is None
    assert threads() == []


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
