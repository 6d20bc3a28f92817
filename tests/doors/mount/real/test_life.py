"""The process of a real mount: its status, its note, its signals, and its end."""

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

import pytest
from doors.mount.real.calls import listing, opened, quiet, refused, write
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import (
    HOLDFAST,
    SECONDS,
    Reaper,
    Start,
    Target,
    environment,
    eventually,
)
from doors.mount.real.place import Place
from fork_server import ForkedHoldfast, forked

from holdfast.doors.mount.process.system import at, mounts

pytestmark = pytest.mark.fuse


WITHOUT_FUSE = Path(__file__).parents[1] / "without_fuse.py"


@contextmanager
def locked(db: str) -> Generator[None]:
    """Keep everybody else from writing to a database."""
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield


@pytest.mark.usefixtures("default_signals")
def test_a_person_is_told_in_one_line(kept: Kept, tmp_path: Path) -> None:
    session = kept.session(kept.store("User Preferences"), read_only=(kept.store("Team Rules"),))
    ours, theirs = pty.openpty()
    line = [HOLDFAST, "mount", "m", "--session", session, "--db", kept.db, "--spool", "spool"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=theirs, env=environment(None)) as process:
        os.close(theirs)
        try:
            said = os.read(ours, 4096).decode()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
            os.close(ours)

    assert said == (
        f"mounted {tmp_path}/m: user-preferences (read-write), team-rules (read-only)\r\n"
    )
    assert process.returncode == 0


def test_told_to_end_while_it_begins_it_leaves_nothing_mounted(
    kept: Kept, reaper: Reaper, tmp_path: Path
) -> None:
    dir, store = tmp_path / "m", kept.store()
    line = [HOLDFAST, "mount", str(dir), f"--store={store}", f"--db={kept.db}", "--spool=spool"]
    for number in range(16):
        with subprocess.Popen(
            line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=DEVNULL, env=environment(None)
        ) as process:
            reaper.say(f"watch {process.pid} {dir}")
            # At another moment each time, until it is ready at the latest.
            assert process.stdout is not None
            select.select([process.stdout], [], [], number * 0.05)
            process.terminate()
            process.wait(30)
            reaper.say(f"leave {process.pid}")

        assert at(dir) is None


def started(line: list[str]) -> tuple[ForkedHoldfast, IO[bytes]]:
    """Start a command line of ours; return what it says as well."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as out, Path(os.devnull).open("wb") as err:
        process = ForkedHoldfast(*line, env=environment(None), out=out.fileno(), err=err.fileno())
    return process, os.fdopen(read, "rb")


def test_of_several_that_begin_on_one_directory_at_once_one_is_there(
    kept: Kept, reaper: Reaper, tmp_path: Path
) -> None:
    dir, store = tmp_path / "m", kept.store()
    line = [
        "mount",
        str(dir),
        f"--store={store}",
        f"--db={kept.db}",
        f"--spool={tmp_path / 'spool'}",
    ]
    several = [started(line) for _ in range(3)]
    for process, _ in several:
        reaper.say(f"watch {process.pid} {dir}")

    lines = [said.readline() for _, said in several]

    (one,) = [process for (process, _), line in zip(several, lines, strict=True) if line]
    found = [each for each in mounts() if each.directory == dir]
    assert [each.pid for each in found] == [one.pid]
    one.terminate()
    assert sorted(process.wait(30) for process, _ in several) == [0, 1, 1]
    assert at(dir) is None
    for process, said in several:
        said.close()
        reaper.say(f"leave {process.pid}")


def test_one_that_was_unmounted_lazily_leaves_what_took_its_place(
    kept: Kept, start: Start, tmp_path: Path
) -> None:
    target, base = Target(kept.db, (kept.store(),)), tmp_path / "mount"
    with start(target, base=base) as old:
        file = os.open(old.root() / "a.md", os.O_WRONLY | os.O_CREAT)
        assert run("unmount", str(old.dir), "--lazy").returncode == 0
        with start(target, base=base) as new:
            write(file, b"one")
            os.close(file)
            assert old.stop() == 0

            eventually((new.root() / "a.md").exists)
            assert new.status().pid == new.process.pid
            assert run("mount", str(new.dir), "--note").returncode == 0


@pytest.mark.usefixtures("default_signals")
def test_a_closed_terminal_ends_it_like_any_signal(kept: Kept, start: Start) -> None:
    with start(Target(kept.db, (kept.store(),)), "--grace=600") as mount:
        (mount.root() / "a.tmp").write_text("one")

        mount.process.send_signal(signal.SIGHUP)

        assert mount.process.wait(30) == 0
        assert kept.hf.memory_stores.memories.at(mount.ready.stores[0].id, "/a.tmp") is not None


def test_a_second_signal_ends_it_at_once_and_names_where_the_bytes_are(
    kept: Kept, start: Start
) -> None:
    with start(Target(kept.db, (kept.store(),)), "--deadline=0.5") as mount:
        with locked(kept.db):
            with refused("EIO"), opened(mount.root() / "a.md", os.O_WRONLY | os.O_CREAT) as file:
                write(file, b"one")
            mount.process.terminate()
            eventually(lambda: mount.status().state == "stopping")
            mount.process.terminate()
            code = mount.process.wait(SECONDS)

        assert code == 1
        assert str(mount.spool) in mount.says()
        assert [each.read_bytes() for each in mount.entries()] == [b"one"]
        assert at(mount.dir) is None


def test_what_cannot_be_saved_in_time_is_spooled_and_that_is_the_exit_code(
    kept: Kept, start: Start
) -> None:
    store = kept.store()
    with start(Target(kept.db, (store,)), "--deadline=0.5") as mount:
        file = os.open(mount.root() / "a.md", os.O_WRONLY | os.O_CREAT)
        write(file, b"one")
        with locked(kept.db):
            assert mount.stop() == 1
        with quiet():
            os.close(file)

        assert [each.read_bytes() for each in mount.entries()] == [b"one"]
        assert str(mount.spool) in mount.says()
        with start(Target(kept.db, (store,)), spool=mount.spool) as again:
            eventually(again.settled)
            assert (again.root() / "a.md").read_text() == "one"


def run(*line: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of ours."""
    return subprocess.run(
        forked(*line),
        env=environment(None),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_unmount_says_when_something_could_not_be_saved(kept: Kept, start: Start) -> None:
    with start(Target(kept.db, (kept.store(),)), "--deadline=0.5") as mount:
        with locked(kept.db):
            with refused("EIO"), opened(mount.root() / "a.md", os.O_WRONLY | os.O_CREAT) as file:
                write(file, b"one")
            ran = run("unmount", str(mount.dir))

        assert ran.returncode == 1
        assert str(mount.spool) in ran.stderr


def test_one_that_does_not_answer_is_left_alone_unless_it_is_to_go_at_once(
    kept: Kept, start: Start
) -> None:
    with start(Target(kept.db, (kept.store(),))) as mount:
        mount.process.send_signal(signal.SIGSTOP)
        try:
            asked = [
                run("mount", str(mount.dir), "--status"),
                run("mount", str(mount.dir), "--store=Notes", f"--db={kept.db}"),
                run("unmount", str(mount.dir)),
            ]
            lazily = run("unmount", str(mount.dir), "--lazy")
        finally:
            mount.process.send_signal(signal.SIGCONT)

        assert [each.returncode for each in asked] == [1, 1, 1]
        assert all(f"process {mount.process.pid}" in each.stderr for each in asked)
        assert lazily.returncode == 0
        assert mount.process.wait(30) == 0


def test_a_missing_libfuse_is_said_before_anything_is_mounted(kept: Kept, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, WITHOUT_FUSE, kept.db, kept.store(), tmp_path / "m", "fuse"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 1
    assert ran.stderr == (
        "libfuse3 is not installed. Debian, Ubuntu: apt install libfuse3-3 fuse3."
        " Or use --mode sync.\n"
    )
    assert not (tmp_path / "m").exists()


APPEND = os.O_WRONLY | os.O_APPEND


@pytest.fixture
def alone(kept: Kept, start: Start) -> Iterator[Place]:
    """Give a store in a mount of its own."""
    with start(Target(kept.db, (kept.store("User Preferences"),)), "--grace=600") as mount:
        yield Place(mount, kept.hf)


def test_when_it_is_ready_it_says_what_is_mounted(alone: Place) -> None:
    ready = alone.mount.ready

    assert (ready.type, ready.mode, ready.state) == ("mount", "fuse", "ok")
    assert (ready.dir, ready.pid) == (str(alone.mount.dir), alone.mount.process.pid)
    assert ready.session_id is None
    assert Path(ready.spool) == alone.mount.spool
    assert ready.binding.startswith("mfusepy ")
    assert "libfuse 3." in ready.binding
    (store,) = ready.stores
    assert (store.name, store.slug) == ("User Preferences", "user-preferences")
    assert store.path == str(alone.dir)
    assert (store.access, store.cap, store.memories, store.saves) == ("read_write", 10_000, 0, 0)


def test_the_status_counts_what_happened(alone: Place) -> None:
    alone.sh("echo one > a.md; echo two >> a.md")
    with refused("EFBIG"):
        alone.given("big", "x" * 102_401)
    with refused("EILSEQ"):
        (alone.dir / "bad").write_bytes(b"\xff")
    with refused("ESTALE"), opened(alone.dir / "a.md", os.O_RDWR) as fd:
        write(fd, b"ONE")
        alone.put("a.md", "elsewhere")

    eventually(lambda: alone.mount.store().memories == 1)
    store = alone.mount.store()

    assert store.saves == 2
    assert store.refused == {"EFBIG": 1, "EILSEQ": 1}
    assert store.failed == {"ESTALE": 1}
    assert (store.conflicts, store.hidden, store.retrying, store.promoted) == (1, 0, 0, 0)
    assert store.spooled == 1


def test_the_status_counts_what_is_not_saved(alone: Place) -> None:
    alone.given("a.md", "one")
    with opened(alone.dir / "a.md", APPEND) as fd:
        write(fd, b" two")
        assert alone.mount.store().unsaved == 1

    assert alone.mount.store().unsaved == 0
    assert alone.mount.status().feed_lag_seconds < 60


def test_the_command_shows_the_status_that_the_mount_tells(alone: Place) -> None:
    ran = run("mount", str(alone.mount.dir), "--status")

    assert (ran.returncode, ran.stderr) == (0, "")
    shown, told = (
        json.loads(ran.stdout),
        json.loads(os.getxattr(alone.mount.dir, "user.holdfast.status")),
    )
    for each in (shown, told):
        each.pop("feed_lag_seconds")
    assert shown == told


def test_the_status_of_a_killed_mount_is_stale(alone: Place) -> None:
    dir = str(alone.mount.dir)
    alone.mount.kill()

    ran = run("mount", dir, "--status")

    assert ran.returncode == 1
    assert json.loads(ran.stdout)["state"] == "stale"
    assert run("unmount", dir).returncode == 0
    assert f" {dir} " not in Path("/proc/mounts").read_text()


def test_a_live_mount_is_not_mounted_over(alone: Place, kept: Kept) -> None:
    ran = run("mount", str(alone.mount.dir), "--store", "User Preferences", "--db", kept.db)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert str(alone.mount.process.pid) in ran.stderr
    assert ran.stderr.count("\n") == 1
    alone.sh("echo tabs > a.md")


def test_the_note_says_where_each_store_is_and_how_to_use_it(kept: Kept, start: Start) -> None:
    session = kept.session(kept.store("Notes"), read_only=(kept.store("Team Rules"),))
    with start(Target(kept.db, session=session)) as mount:
        ran = run("mount", str(mount.dir), "--note")

        assert (ran.returncode, ran.stderr) == (0, "")
        assert f"{mount.dir}/notes" in ran.stdout
        assert f"{mount.dir}/team-rules" in ran.stdout
        assert "read-only" in ran.stdout.lower().replace("read_only", "read-only")
        assert "/mnt/memory" not in ran.stdout


def test_unmount_waits_until_all_is_saved_and_the_process_is_gone(alone: Place) -> None:
    alone.sh("echo waits > a.tmp; echo one > b.md")
    dir = alone.mount.dir

    ran = run("unmount", str(dir))

    assert (ran.returncode, ran.stderr) == (0, "")
    assert alone.mount.process.wait(30) == 0
    assert listing(dir) == []
    assert alone.kept() == {"a.tmp": "waits\n", "b.md": "one\n"}


def test_a_mount_that_is_used_is_not_unmounted_and_goes_on(alone: Place) -> None:
    with opened(alone.given("a.md", "one"), APPEND) as fd:
        ran = run("unmount", str(alone.mount.dir), "--timeout=2")

        assert ran.returncode == 1
        assert str(os.getpid()) in ran.stderr
        write(fd, b" two")
        assert (alone.dir / "a.md").read_text() == "one two"

    assert alone.content("a.md") == "one two"
    assert alone.mount.status().state == "ok"


def test_a_lazy_unmount_is_out_of_the_way_and_open_files_are_still_saved(alone: Place) -> None:
    with opened(alone.given("a.md", "one"), APPEND) as fd:
        ran = run("unmount", str(alone.mount.dir), "--lazy")

        assert ran.returncode == 0
        assert listing(alone.mount.dir) == []
        assert alone.mount.process.poll() is None
        write(fd, b" two")

    assert alone.content("a.md") == "one two"
    assert alone.mount.process.wait(30) == 0


def test_what_is_no_mount_of_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")

    ran = run("unmount", str(tmp_path))

    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert (tmp_path / "a").read_text() == "mine"


def test_df_shows_the_budget(alone: Place) -> None:
    alone.sh("echo one > a.md; echo two > b.md")

    shown = alone.sh("df --output=itotal,iavail,target . | tail -n1").split()

    assert shown == ["10000", "9998", str(alone.mount.dir)]


def test_a_signal_saves_what_is_open(alone: Place) -> None:
    fd = os.open(alone.given("a.md", "one"), APPEND)
    write(fd, b" two")

    assert alone.mount.stop() == 0

    with quiet():
        os.close(fd)
    assert alone.content("a.md") == "one two"
    assert alone.mount.entries() == []


def test_what_is_no_text_is_spooled_when_the_mount_ends(alone: Place) -> None:
    fd = os.open(alone.given("a.md", "one"), os.O_WRONLY | os.O_TRUNC)
    write(fd, b"caf\xc3")

    code = alone.mount.stop()

    with quiet():
        os.close(fd)
    assert alone.content("a.md") == "one"
    assert (code, len(alone.mount.entries())) in {(1, 1), (0, 0)}
