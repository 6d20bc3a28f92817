"""A killed mount, and a full disk: no byte is lost whose close returned."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from subprocess import PIPE
from typing import cast

import msgspec
import pytest
from doors.mount.real.calls import listing, opened, quiet, refused, write
from doors.mount.real.kept import Kept, serving
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.mounting import Mount, Reaper, Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse


CREATE = os.O_WRONLY | os.O_CREAT
LONG = "--grace=600"
LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))

WRITER = """
import os, sys
from itertools import count
os.chdir(sys.argv[1])
for n in count():
    name = f"{sys.argv[2]}-{n % 7}" + (".tmp" if n % 3 == 0 else "")
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, f"{n}".encode())
        os.close(fd)
    except OSError:
        break
    os.write(1, f"{name} {n}\\n".encode())
"""


def test_everything_whose_close_returned_is_there(kept: Kept, start: Start, tmp_path: Path) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, LONG, base=base) as mount:
        place = Place(mount, kept.hf)
        place.sh("echo saved > a.md; echo one >> log; echo two >> log; echo waits > t.tmp")
        place.sh("mkdir d; echo again > u.tmp; mv u.tmp d/a.md; echo x > s.tmp; echo y > .v.swp")
        mount.kill()

    assert place.kept() == {"a.md": "saved\n", "log": "one\ntwo\n", "d/a.md": "again\n"}
    with start(target, "--grace=0.2", base=base) as mount:
        place = Place(mount, kept.hf)
        wanted = {
            *(("a.md", "saved\n"), ("log", "one\ntwo\n"), ("d/a.md", "again\n")),
            *(("t.tmp", "waits\n"), ("s.tmp", "x\n")),
        }
        eventually(lambda: set(place.kept().items()) == wanted)
        eventually(mount.settled)
        assert listing(place.dir) == ["a.md", "d", "log", "s.tmp", "t.tmp"]
    assert place.told().count("created t.tmp") == 1


def test_a_program_with_an_open_file_is_told_and_its_unsaved_bytes_are_gone(
    kept: Kept, start: Start
) -> None:
    with start(Target(kept.db, (kept.store(),)), LONG) as mount:
        place = Place(mount, kept.hf)
        fd = os.open(place.given("a.md", "saved"), os.O_WRONLY | os.O_APPEND)
        write(fd, b" unsaved")

        mount.kill()

        with refused("ENOTCONN"):
            os.write(fd, b"more")
        with refused("ENOTCONN"):
            (place.dir / "a.md").read_text()
        with quiet():
            os.close(fd)

    assert place.kept() == {"a.md": "saved"}


def test_a_stale_mount_is_mounted_over_and_that_is_said(
    kept: Kept, start: Start, tmp_path: Path
) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, base=base) as dead:
        Place(dead, kept.hf).given("a.md", "tabs")
        dead.kill()
        with refused("ENOTCONN"):
            listing(dead.dir)

        with start(target, base=base) as mount:
            assert (mount.root() / "a.md").read_text() == "tabs"
            assert "stale" in mount.says()


def test_a_backup_that_waits_when_the_mount_is_killed_loses_nothing(
    kept: Kept, start: Start, tmp_path: Path
) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, LONG, base=base) as mount:
        place = Place(mount, kept.hf)
        place.sh("echo one > a; mv a a.bak; echo two > b; mv b b.bak; echo three > b")
        mount.kill()

    with start(target, "--grace=0.2", base=base) as mount:
        eventually(mount.settled)
        contents = sorted(Place(mount, kept.hf).kept().values(), key=str)
        assert contents[0] == "one\n"
        assert "three\n" in contents


def test_what_a_killed_mount_left_is_taken_by_one_of_two_new_ones(
    kept: Kept, start: Start, tmp_path: Path
) -> None:
    target, spool = Target(kept.db, (kept.store(),)), tmp_path / "spool"
    with start(target, LONG, spool=spool) as mount:
        place = Place(mount, kept.hf)
        for number in range(20):
            place.given(f"{number}.tmp", f"{number}")
        mount.kill()

    with (
        start(target, "--grace=0.2", spool=spool) as one,
        start(target, "--grace=0.2", spool=spool) as other,
    ):
        eventually(lambda: one.settled() and other.settled())

    assert sorted(place.told()) == sorted(f"created {number}.tmp" for number in range(20))


def test_of_what_was_kept_twice_when_the_mount_was_killed_the_newer_is_saved(
    kept: Kept, start: Start, tmp_path: Path
) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, LONG, base=base) as mount:
        place = Place(mount, kept.hf)
        place.given("a.tmp", "older")
        (older,) = place.spooled()
        both = {each: each.read_bytes() for each in older.parent.iterdir()}
        place.given("a.tmp", "newer")
        mount.kill()
    # As if it had been killed before it removed what the newer took the place of.
    for each, content in both.items():
        each.write_bytes(content)

    with start(target, "--grace=0.2", base=base) as mount:
        eventually(mount.settled)
        assert Place(mount, kept.hf).kept() == {"a.tmp": "newer"}
        assert "left in the spool" not in mount.says()


def live_and_be_killed(place: Place, chance: random.Random) -> dict[str, int]:
    """Let programs write until they have said so much; return what was acknowledged."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place.dir), f"w{number}"], stdout=subprocess.PIPE
        )
        for number in range(4)
    ]
    outputs = [cast("BufferedReader", each.stdout) for each in writers]
    first = [output.readline() for output in outputs for _ in range(chance.choice([0, 1, 10, 30]))]
    os.kill(place.mount.process.pid, signal.SIGKILL)
    with ThreadPoolExecutor(len(outputs)) as pool:
        said = list(pool.map(BufferedReader.readlines, outputs))
    place.mount.process.wait(30)
    for writer, output in zip(writers, outputs, strict=True):
        writer.wait(30)
        output.close()
    rest = [line for each in said for line in each if line.endswith(b"\n")]
    lines = [line.split() for line in [*first, *rest]]
    return {name.decode(): int(number) for name, number in lines}


def description(entry: Path) -> bytes:
    """Return what the spool says of *entry*, which may be gone."""
    try:
        return entry.with_name(f"{entry.name}.json").read_bytes()
    except FileNotFoundError:
        return b""


@pytest.mark.parametrize("life", range(LIVES))
def test_no_acknowledged_close_is_lost_however_often_it_is_killed(
    kept: Kept, start: Start, tmp_path: Path, life: int
) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, LONG, base=base) as mount:
        acknowledged = live_and_be_killed(Place(mount, kept.hf), random.Random(life))

    with start(target, "--grace=0.1", base=base) as mount:
        # What was being put into the spool when the end came has no description yet.
        eventually(lambda: not any(map(description, mount.entries())))
        place = Place(mount, kept.hf)
        there = {name: int(content or 0) for name, content in place.kept().items()}

    # A write that was under way when the end came may be there: the next of its file.
    assert {name for name, number in acknowledged.items() if there.get(name, -1) < number} == set()
    assert kept.hf.verify().findings == ()


def test_what_the_spool_says_of_an_entry(kept: Kept, start: Start) -> None:
    with start(Target(kept.db, (kept.store(),)), LONG) as mount:
        place = Place(mount, kept.hf)
        place.sh("mkdir d; printf waits > d/a.tmp")
        (entry,) = place.spooled()

        said = msgspec.json.decode(entry.with_name(f"{entry.name}.json").read_bytes())
        fields = "store_id memory_id path base_sha256 kind errno message edit_id at session_id"
        assert set(said) == {"type", "content_sha256", *fields.split()}
        assert (said["type"], said["kind"]) == ("spooled", "transient")
        assert (said["path"], said["store_id"]) == ("/d/a.tmp", place.store_id)
        assert entry.name.endswith("a.tmp")
        assert entry.stat().st_mode & 0o777 == 0o600
        assert entry.parent.stat().st_mode & 0o777 == 0o700
        assert entry.parent.name == place.store_id


def held(mount: Mount) -> dict[str, int]:
    """Return what the mount's process has open, with the flags of each."""
    fds = Path(f"/proc/{mount.process.pid}/fd")
    found: dict[str, int] = {}
    for each in fds.iterdir():
        with quiet():
            info = Path(f"/proc/{mount.process.pid}/fdinfo/{each.name}").read_text()
            found[str(each.readlink())] = int(info.split("flags:")[1].split()[0], 8)
    return found


def test_a_mount_holds_nothing_through_itself_and_hands_nothing_on(
    kept: Kept, start: Start
) -> None:
    with start(Target(kept.db, (kept.store(),))) as mount:
        place = Place(mount, kept.hf)
        place.given("a.md", "tabs")
        with opened(place.dir / "b.md", CREATE) as fd:
            write(fd, b"unsaved")
            found = held(mount)

        assert found["/dev/fuse"] & os.O_CLOEXEC
        assert [each for each in found if each.startswith(str(mount.dir))] == []
        assert Path(f"/proc/{mount.process.pid}/cwd").readlink() != mount.dir


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
# What is gone is not saved when it is closed: a few are enough of that.
for n in range(20, 700):
    os.unlink(str(n))
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
