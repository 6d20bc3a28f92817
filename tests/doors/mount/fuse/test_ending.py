import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
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
from holdfast.doors.mount.fuse.libfuse import MountFailed

pytestmark = pytest.mark.fuse

serve = cast("Callable[..., None]", adapter.serve)
"""Serves a toy as it serves a store's file system."""


def run(*command: str | Path) -> int:
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

    assert run(*command, mounted.directory) == 0

    assert mounted.ended()
    assert mounted.stop.is_set()
    assert threads() == []


def test_it_ends_when_the_connection_is_cut(mounted: Mounted) -> None:
    cut(mounted.directory)

    assert mounted.ended()
    assert mounted_at(mounted.directory) is None


def test_it_stays_while_somebody_holds_a_file(mounted: Mounted) -> None:
    with (mounted.store / "a.md").open("rb") as file:
        assert run("umount", mounted.directory) != 0

        assert file.read() == b"hello\n"
        assert (mounted.store / "a.md").exists()


@pytest.mark.parametrize("command", [("umount", "-l"), ("fusermount3", "-u", "-z")])
def test_open_files_go_on_after_a_lazy_unmount(
    mounted: Mounted, toy: Toy, command: tuple[str, ...]
) -> None:
    with (mounted.store / "a.md").open("r+b", buffering=0) as file:
        assert run(*command, mounted.directory) == 0
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
