"""A synced directory in a process of its own: what it says, and how it ends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.doors.mount import Mount, mounted
from holdfast.doors.mount.process.registry import Register, note_of, status_of
from holdfast.doors.mount.process.unmount import unmount
from holdfast.ground.errors import NotFound, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import JSONObject, Memory, Store

WITHOUT_FUSE = Path(__file__).with_name("without_fuse.py")


@pytest.fixture
def hf(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.memory_stores.create(name="Notes", description="What was said")


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """Give a directory that the tests of this module share: they change nothing."""
    folder = tmp_path_factory.mktemp("synced")
    with holdfast.open(folder / "h.db") as hf:
        hf.memory_stores.create(name="Notes", description="What was said")
        with mounted(hf, folder / "m", stores=["Notes"], mode="sync") as mount:
            yield mount


def contents(hf: Holdfast, store: Store) -> dict[str, str | None]:
    listed = hf.memory_stores.memories.list(store.id, view="full")
    return {each.path: each.content for each in listed if isinstance(each, Memory)}


def end(mount: Mount, *, lazy: bool = False) -> str:
    return unmount(mount.directory, Register(), lazy=lazy, timeout=30)


def test_it_says_what_it_is_and_why(synced: Mount) -> None:
    for told in (synced.ready, synced.status()):
        assert (told["type"], told["mode"], told["state"]) == ("mount", "sync", "ok")
        assert told["reason"] == "requested by --mode sync"
        assert told["stores"][0]["path"] == str(synced.paths["notes"])


def test_the_note_says_so_too_and_what_was_agreed(synced: Mount) -> None:
    told = note_of(synced.directory, Register())

    assert f"mount_path: {synced.paths['notes']}\n" in told
    assert "description: What was said\n" in told
    assert "synced copies (requested by --mode sync)" in told


def test_its_end_saves_what_was_written_just_before(
    hf: Holdfast, store: Store, tmp_path: Path
) -> None:
    with mounted(hf, tmp_path / "m", stores=[store.id], mode="sync") as mount:
        (mount.paths["notes"] / "a.md").write_text("one\n")

        assert end(mount) == f"unmounted {mount.directory}"

        assert mount.process.wait(30) == 0
    assert contents(hf, store) == {"/a.md": "one\n"}
    assert (mount.paths["notes"] / "a.md").read_text() == "one\n"
    with pytest.raises(NotFound):
        status_of(mount.directory, Register())


def test_one_at_a_time(synced: Mount, hf: Holdfast, store: Store) -> None:
    for mode in ("sync", "auto"):
        with (
            pytest.raises(Unavailable, match=f"mounted already, by process {synced.process.pid}"),
            mounted(hf, synced.directory, stores=[store.id], mode=mode),
        ):
            pass


def killed_and_told(mount: Mount) -> JSONObject:
    mount.process.kill()
    mount.process.wait(30)
    return {**status_of(mount.directory, Register()), "said": end(mount)}


def test_one_whose_process_was_killed_is_stale_and_leaves_its_files(
    hf: Holdfast, store: Store, tmp_path: Path
) -> None:
    hf.memory_stores.memories.create(store.id, path="/a.md", content="one")
    told: JSONObject = {}

    with (
        pytest.raises(Unavailable, match="was killed"),
        mounted(hf, tmp_path / "m", stores=[store.id], mode="sync") as mount,
    ):
        told = killed_and_told(mount)

    assert (told["state"], told["pid"]) == ("stale", mount.process.pid)
    assert "its files were left" in told["said"]
    assert (tmp_path / "m" / "notes" / "a.md").read_text() == "one"


def test_where_fuse_cannot_be_it_takes_its_place_and_says_why(
    sqlite_file: Path, store: Store, tmp_path: Path
) -> None:
    line = [sys.executable, WITHOUT_FUSE, sqlite_file, store.id, tmp_path / "m"]
    with subprocess.Popen([*line, "auto"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said, ready = process.stdout.readline(), json.loads(process.stdout.readline())
        finally:
            process.terminate()

    assert said == "libfuse3 is not installed: a synced directory takes the place of a mount.\n"
    assert (ready["mode"], ready["reason"]) == ("sync", "libfuse3 is not installed")
    assert process.returncode == 0
    assert [each.name for each in (tmp_path / "m").iterdir()] == ["notes"]
