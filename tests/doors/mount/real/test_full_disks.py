"""A disk that is full: the store's, so that saves are kept aside; and that of the spool as well.

What neither takes is kept in memory, and that is said.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE

import pytest
from doors.mount.real.calls import opened, quiet, refused, write
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.kept import serving
from doors.mount.real.mounting import Reaper, Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

CREATE = os.O_WRONLY | os.O_CREAT
APPEND = os.O_WRONLY | os.O_APPEND
FULL = 102_400


@contextmanager
def disk(folder: Path, size: str) -> Generator[Path]:
    """Give *folder* on a disk of its own: it takes root's right to mount one."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Give a folder on a disk of 64 KiB."""
    with disk(tmp_path / "tiny", "64k") as folder:
        yield folder


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Give a folder on a disk that has room for a database."""
    with disk(tmp_path / "small", "8m") as folder:
        yield folder


def filled(folder: Path) -> Path:
    """Fill the disk of *folder*, and return the file that does."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)
    return ballast


def test_a_full_disk_under_the_database_is_told_and_what_was_not_saved_is_saved_later(
    start: Start, tmp_path: Path, small: Path
) -> None:
    with opened_db(small / "h.db") as kept:
        target = Target(kept.db, (kept.store(),))
        with start(target, "--deadline=1", "--grace=600", spool=tmp_path / "spool") as mount:
            place = Place(mount, kept.hf)
            place.sh("echo one > log; echo old > a.md")
            ballast = filled(small)

            with refused("ENOSPC"):
                for number in range(50):
                    (place.dir / "a.md").write_text(f"{number}" * 40_000)

            assert place.sh("cat log") == "one\n"
            (entry,) = place.spooled()
            assert "-ENOSPC-" in entry.name
            shown = (place.dir / "a.md").read_text()
            assert entry.read_text() == shown
            ballast.unlink()
            eventually(mount.settled)
            assert place.content("a.md") == shown
            assert kept.hf.verify().findings == ()


def test_what_nothing_takes_stays_in_memory_and_is_saved_when_the_store_is_back(
    start: Start, reaper: Reaper, tmp_path: Path, tiny: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        target = Target(server.url, (kept.store(),))
        with start(target, "--deadline=1", "--grace=600", spool=tiny) as mount:
            place = Place(mount, kept.hf)
            place.sh("echo one > log; echo old > a.md")
            filled(tiny)
            server.kill()

            with refused("EIO"), opened(place.dir / "a.md", os.O_WRONLY | os.O_TRUNC) as fd:
                write(fd, b"new\n")
            with refused("EIO"), opened(place.dir / "log", APPEND) as fd:
                write(fd, b"two\n")

            assert mount.status().state == "unsafe"
            assert place.sh("cat a.md log") == "new\none\ntwo\n"
            assert mount.entries() == []
            server.start()
            eventually(mount.settled)
            assert place.kept() == {"a.md": "new\n", "log": "one\ntwo\n"}
            assert len(place.told()) == 4


def test_what_is_unsaved_is_spooled_when_the_disk_has_room_again(
    start: Start, reaper: Reaper, tmp_path: Path, tiny: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        target = Target(server.url, (kept.store(),))
        with start(target, "--deadline=1", "--grace=600", spool=tiny) as mount:
            place = Place(mount, kept.hf)
            place.given("a.md", "old\n")
            ballast = filled(tiny)
            server.kill()
            with refused("EIO"):
                (place.dir / "a.md").write_text("new\n")
            assert mount.status().state == "unsafe"

            ballast.unlink()

            eventually(lambda: mount.status().state != "unsafe")
            (entry,) = place.spooled()
            assert entry.read_text() == "new\n"
            server.start()
            eventually(mount.settled)
            assert place.told() == ["created a.md", "modified a.md"]


def test_a_temporary_file_that_the_spool_does_not_take_is_refused_or_kept(
    start: Start, tmp_path: Path, tiny: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept:
        target = Target(str(file), (kept.store(),))
        with start(target, "--deadline=1", "--grace=600", spool=tiny) as mount:
            place = Place(mount, kept.hf)
            filled(tiny)

            with quiet():
                (place.dir / "a.tmp").write_text("tabs")

            # A close that returned is a promise: where the spool cannot keep it, the store does.
            with suppress(FileNotFoundError):
                (place.dir / "a.tmp").rename(place.dir / "a.md")
                assert place.kept() == {"a.md": "tabs"}


HOARDER = """
import errno, os, sys
os.chdir(sys.argv[1])
fds = [os.open(str(n), os.O_WRONLY | os.O_CREAT) for n in range(700)]
try:
    for count, fd in enumerate(fds):
        os.write(fd, b"x" * 102_400)
except OSError as error:
    print(errno.errorcode[error.errno], count, flush=True)
sys.stdin.read()
for fd in fds:
    try:
        os.close(fd)
    except OSError:
        pass
"""


def test_there_is_an_end_to_what_is_kept_in_memory(
    start: Start, reaper: Reaper, tmp_path: Path, tiny: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        target = Target(server.url, (kept.store(),))
        with start(target, "--deadline=1", "--grace=600", spool=tiny) as mount:
            place = Place(mount, kept.hf)
            place.given("a.md", "old")
            filled(tiny)
            server.kill()
            with refused("EIO"):
                (place.dir / "a.md").write_text("new")

            line = [sys.executable, "-c", HOARDER, str(place.dir)]
            with subprocess.Popen(line, stdin=PIPE, stdout=PIPE) as hoarder:
                assert hoarder.stdout is not None
                name, count = hoarder.stdout.readline().split()
                assert name == b"ENOSPC"
                assert int(count) * FULL < 64 * 1024 * 1024 < (int(count) + 2) * FULL
                server.start()
                eventually(lambda: place.content("a.md") == "new")
                hoarder.communicate(timeout=60)

            eventually(mount.settled)
            sizes = {len(content or "") for name, content in place.kept().items() if name != "a.md"}
            assert sizes <= {0, FULL}
