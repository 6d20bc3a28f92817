"""The real process: started, asked, killed and started again, on a real file."""

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doors.mount.synced.directories import eventually
from fork_server import ForkedProcess, forked

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Version

SECONDS = 60


class Process:
    """`holdfast mount --mode sync` on one directory, through all its lives."""

    def __init__(self, base: Path) -> None:
        self.base, self.db, self.directory = base, base / "h.db", base / "m"
        own = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
        self._environment = own | {"XDG_STATE_HOME": str(base / "state")}
        self._running: ForkedProcess[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            forked(*words),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def start(self) -> "Process":
        words = ["mount", str(self.directory), "--store=Notes", f"--db={self.db}", "--json"]
        process = self._running = ForkedProcess(
            forked(*words, "--mode=sync", "--grace=0.3"),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], SECONDS)[0]
        self.ready = msgspec.json.decode(process.stdout.readline())
        return self

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self._end(lambda process: process.kill())

    def stop(self) -> int:
        """Ask the process to end, and return how it did."""
        return self._end(lambda process: process.terminate())

    def wait(self) -> int:
        return self._end(lambda _: None)

    def _end(self, how: Callable[[ForkedProcess[bytes]], None]) -> int:
        process, self._running = self._running, None
        if process is None:
            return 0
        how(process)
        try:
            return process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    @property
    def root(self) -> Path:
        return self.directory / "notes"


class Kept:
    """The store of a file, seen from this process."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf, self.id = hf, hf.memory_stores.create(name="Notes").id

    def heads(self) -> dict[str, str]:
        page = self.hf.memory_stores.memories.list(self.id, view="full", limit=20)
        return {each.path: each.content or "" for each in page.all() if isinstance(each, Memory)}

    def history(self) -> set[str]:
        page = self.hf.memory_stores.memory_versions.list(self.id, view="full", limit=20)
        every: list[Version] = list(page.all())
        return {each.content for each in every if each.content is not None}

    def put(self, path: str, content: str) -> None:
        memories = self.hf.memory_stores.memories
        memory = memories.at(self.id, path)
        if memory is None:
            memories.create(self.id, path=path, content=content)
        else:
            memories.update(memory.id, memory_store_id=self.id, content=content)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def kept(process: Process) -> Iterator[Kept]:
    with holdfast.open(process.db) as hf:
        yield Kept(hf)


def files(process: Process) -> dict[str, str]:
    return {f"/{each.name}": each.read_text() for each in process.root.iterdir() if each.is_file()}


def test_it_tells_what_it_is_and_ends_when_it_is_asked_to(process: Process, kept: Kept) -> None:
    kept.put("/a.md", "one")
    process.start()
    assert (process.ready["mode"], process.ready["state"]) == ("sync", "ok")
    assert process.ready["reason"] == "requested by --mode sync"
    assert files(process) == {"/a.md": "one"}

    (process.root / "bad").write_bytes(b"\xff")
    eventually((process.root / ".memory-errors").exists)

    def status() -> dict[str, Any]:
        said = process.run("mount", str(process.directory), "--status")
        assert said.returncode == 0, said.stderr
        return msgspec.json.decode(said.stdout)

    eventually(lambda: status()["errors"])
    (store,) = status()["stores"]
    assert store["refused"] == {"EILSEQ": 1}
    assert status()["errors"][0].startswith("/notes: EILSEQ /bad ")
    note = process.run("mount", str(process.directory), "--note").stdout
    assert str(process.root) in note
    assert ".memory-errors" in note

    other = process.run(
        "mount", str(process.directory), "--store=Notes", f"--db={process.db}", "--mode=sync"
    )
    assert other.returncode == 1
    assert f"by process {process.ready['pid']}" in other.stderr

    (process.root / "late.md").write_text("late")
    ended = process.run("unmount", str(process.directory))
    assert (ended.returncode, process.wait()) == (0, 0)
    assert kept.heads() == {"/a.md": "one", "/late.md": "late"}
    assert (process.root / "a.md").read_text() == "one"


def test_one_that_was_killed_is_stale_and_can_be_started_again(
    process: Process, kept: Kept
) -> None:
    process.start()
    process.kill()

    said = process.run("mount", str(process.directory), "--status")
    assert (said.returncode, msgspec.json.decode(said.stdout)["state"]) == (1, "stale")
    (process.root / "a.md").write_text("meanwhile")

    process.start()
    eventually(lambda: kept.heads() == {"/a.md": "meanwhile"})
    assert process.stop() == 0


def test_a_directory_with_other_files_is_refused_in_one_line(process: Process, kept: Kept) -> None:
    assert kept.heads() == {}
    process.directory.mkdir()
    (process.directory / "mine").write_text("mine")

    said = process.run(
        "mount", str(process.directory), "--store=Notes", f"--db={process.db}", "--mode=sync"
    )

    assert said.returncode == 1
    assert "was not synced with these stores before" in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert [each.name for each in process.directory.iterdir()] == ["mine"]


def test_whenever_it_is_killed_nothing_is_lost_and_nothing_made_up(
    process: Process, kept: Kept
) -> None:
    here: set[str] = set()
    for life in range(5):
        process.start()
        for number in range(8):
            content = f"here {life} {number}"
            (process.root / f"h{number}").write_text(content)
            kept.put(f"/t{number}", f"there {life} {number}")
            if number == life:
                eventually(lambda content=content: content in kept.history())
        here |= {f"here {life} {number}" for number in range(8)}
        process.kill()

    process.start()
    assert process.stop() == 0

    expected = {f"/h{number}": f"here 4 {number}" for number in range(8)}
    expected |= {f"/t{number}": f"there 4 {number}" for number in range(8)}
    assert kept.heads() == expected == files(process)
    assert kept.history() <= here | {
        f"there {life} {number}" for life in range(5) for number in range(8)
    } | {""}
