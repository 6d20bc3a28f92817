"""What a mount tells people and models of itself: the ready line, the status, the note, the end."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors.mount.real.calls import listing, opened, quiet, refused, write
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import HOLDFAST, Start, Target, environment, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

APPEND = os.O_WRONLY | os.O_APPEND


def run(*line: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of ours."""
    return subprocess.run(
        [HOLDFAST, *line],
        env=environment(None),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


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
