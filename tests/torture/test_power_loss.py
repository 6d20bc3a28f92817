"""What was acknowledged is there after a power loss at any moment, whole, and fits together."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from doors.mount.real.mounting import Reaper, Target, mounting
from served import SERVE, Served
from torture.counts import counted
from torture.disks import (
    Chance,
    Disk,
    Record,
    built_recorder,
    recorded,
    records_of,
    without_syncs,
)
from torture.power_writer import OPTIONS, RUN, THREADS, Line, Values, Writer, write_all

import holdfast
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import HoldfastError
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.markdown.folder import read_folder
from holdfast.runtime.runs.checkpoints import FileCheckpoints

CUTS = int(os.environ.get("HOLDFAST_TORTURE_CUTS", "200"))
RECORDINGS = max(1, CUTS // 500)
"""Recordings of each kind: every one has other acts in another order."""
TESTS = Path(__file__).parent.parent
DATABASE = "h.db"


class Promise(NamedTuple):
    """What a thread's keys were acknowledged to be, and what its act under way gives to some."""

    held: Values
    begun: Values
    ever: dict[str, set[str]]
    """Every text that a key had."""

    @property
    def states(self) -> list[Values]:
        """All that may be there, if an act is whole or absent."""
        return [_present(self.held), _present(self.held | self.begun)]


def _present(values: Values) -> Values:
    return {key: text for key, text in values.items() if text is not None}


class Promises:
    """What is promised, line by line of the workload."""

    def __init__(self) -> None:
        self.of = {thread: Promise({}, {}, {}) for thread in range(THREADS + 1)}

    def read(self, record: Record) -> None:
        """Take account of a line; other records are no promise."""
        if record.op != "A":
            return
        line = msgspec.json.decode(record.data, type=Line)
        old = self.of[line.thread]
        if line.did:
            self.of[line.thread] = Promise(old.held | old.begun, {}, old.ever)
            return
        for key, text in line.values.items():
            old.ever.setdefault(key, set()).update([] if text is None else [text])
        self.of[line.thread] = Promise(old.held, line.values, old.ever)


Check = Callable[[Path, Promises], None]


def stored(hf: Holdfast) -> dict[int, Values]:
    """Return what the database has, by the thread that wrote it."""
    found: dict[int, Values] = {thread: {} for thread in range(THREADS + 1)}
    for store in hf.memory_stores.list().all():
        found[THREADS]["store"] = store.name
        for item in hf.memory_stores.memories.list(store.id, view="full").all():
            assert item.type == "memory"
            found[int(item.path[2])][f"m{item.path}"] = item.content
    for thread in range(THREADS):
        entries = hf.durable(f"agent_{thread}").list(limit=1000).data
        found[thread] |= {f"d{entry.key}": entry.content for entry in entries}
        ltm = hf.longterm(f"user_{thread}", enabled=True, options=OPTIONS)
        assert ltm is not None
        found[thread] |= {f"l{item.text}": item.text for item in ltm.list(limit=1000).data}
    return found


def check_database(disk: Path, promises: Promises) -> None:
    """Open the database on *disk*, compare it with the promises, verify and write to it."""
    with holdfast.open(disk / DATABASE) as hf:
        found = stored(hf)
        for thread, promise in promises.of.items():
            assert found[thread] in promise.states, f"thread {thread}"
        assert hf.verify().findings == ()
        hf.durable("after_the_loss").set("key", "is written", category="note")


def check_spool(disk: Path, promises: Promises) -> None:
    """Take all entries of the spool on *disk*: one that was removed may be there again."""
    spool, promise = Spool(disk / "spool", clock=SystemClock()), promises.of[0]
    taken = [each for store in range(3) for each in spool.take(f"memstore_{store}")]
    found = {f"s{spooled.edit_id}": content.decode() for _, spooled, content in taken}
    for entry, _, _ in taken:
        entry.release()
    assert all(text in promise.ever[key] for key, text in found.items())
    replaced = [key for key, text in promise.begun.items() if text is None]
    new = [key for key, text in promise.begun.items() if text is not None]
    for key, text in _present(promise.held).items():
        there = [key, *new] if key in replaced else [key]
        assert any(each in found for each in there), f"{key} is lost"
        assert found.get(key, text) == text


def check_mount(disk: Path, promises: Promises) -> None:
    """Seek each file of a mount on *disk*: it is saved, or in the spool for the next mount."""
    promise, files = promises.of[0], dict[str, set[str]]()
    with holdfast.open(disk / DATABASE) as hf:
        assert hf.verify().findings == ()
        for key, text in stored(hf)[0].items():
            assert text in promise.ever[key]
            files[key] = {text or ""}
        for store in hf.memory_stores.list().all():
            for entry, spooled, content in Spool(disk / "spool", clock=SystemClock()).take(
                store.id
            ):
                files.setdefault(f"m{spooled.path}", set()).add(content.decode())
                entry.release()
    for key, text in _present(promise.held).items():
        assert files.get(key, set()) & {text, promise.begun.get(key)}, f"{key} is lost"


def check_checkpoints(disk: Path, promises: Promises) -> None:
    """Load the run on *disk*: it has done the last step that was acknowledged, or the next."""
    found = FileCheckpoints(disk / "checkpoints").load(RUN.run_id)
    last = found.completed_steps[-1] if found is not None else None
    assert last in [state.get("c") for state in promises.of[0].states]


def check_exports(disk: Path, promises: Promises) -> None:
    """Read the export on *disk*, each file as acknowledged or as begun, and export once more."""
    folder, promise = disk / "exports", promises.of[0]
    files = read_folder(folder).files if folder.exists() else ()
    found = {f"e{Path(path).stem}": text for path, text in files}
    for key in {*promise.held, *promise.begun, *found}:
        text = found.get(key)
        allowed = [promise.held.get(key), promise.begun.get(key, promise.held.get(key))]
        assert any(text is each or (text and each and each in text) for each in allowed), key
    with holdfast.open(":memory:") as hf:
        hf.durable("agent").export_markdown(folder)


def losses(
    records: Sequence[Record], check: Check, folder: Path, *, cuts: int, seed: int
) -> Iterator[str]:
    """Cut the power at *cuts* moments of a recording; yield what was wrong after each."""
    chance = random.Random(seed)
    moments = sorted(chance.randrange(1, len(records) + 1) for _ in range(cuts))
    disk, promises, done = Disk(), Promises(), 0
    for number, moment in enumerate(moments):
        for record in records[done:moment]:
            disk.do(record)
            promises.read(record)
        done, target = moment, folder / "disk"
        disk.after_a_loss(Chance.of(seed * cuts + number), target)
        try:
            check(target, promises)
        except (AssertionError, HoldfastError) as error:
            yield f"seed {seed * cuts + number}, record {moment}: {error!r}"[:2000]
        finally:
            shutil.rmtree(target)


def write_file(path: Path, text: str) -> None:
    """Write a file of a mount; a temporary one survives a power loss only when it is synced."""
    with path.open("w") as file:
        file.write(text)
        if path.suffix == ".tmp":
            file.flush()
            os.fsync(file.fileno())


class Recorder:
    """Records workloads, each in folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.library = folder, built_recorder(folder)
        self.recordings, self._first = 0, dict[str, list[Record]]()

    def first(self, what: str) -> list[Record]:
        """Return the recording of *what* that tests share."""
        if what not in self._first:
            self._first[what] = self._run(what)
        return self._first[what]

    def runs(self, what: str) -> Iterator[list[Record]]:
        """Yield all recordings of a process that does *what* of `power_writer`."""
        yield self.first(what)
        for _ in range(RECORDINGS - 1):
            yield self._run(what)

    def server_run(self) -> list[Record]:
        """Record a server that is killed after its clients' last writes."""
        root, log = self._places()
        command = [sys.executable, "-c", SERVE, str(root / DATABASE), "127.0.0.1", "0", "1", ""]
        environment = recorded(self.library, root, log)
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                assert process.stderr is not None
                write_all(Served(process, process.stderr.readline()).url, log, 8, rounds=1)
            finally:
                process.kill()
        return records_of(log)

    def mount_run(self, reaper: Reaper) -> list[Record]:
        """Record a mount that is killed: files are saved, temporary ones are synced."""
        root, log = self._places()
        self._write(root, log, "library", acts=0)
        copy = shutil.copy(root / DATABASE, root.with_suffix(".db"))
        with holdfast.open(copy) as hf:
            store_id = next(iter(hf.memory_stores.list().all())).id
        target, writer = Target(str(root / DATABASE), (store_id,)), Writer(log, 0)
        with ExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in recorded(self.library, root, log).items():
                    patch.setenv(name, value)
                options = ("--grace=600",)
                mount = stack.enter_context(
                    mounting(reaper, target, root.with_suffix(".m"), *options, spool=root / "spool")
                )
            folder = mount.root() / "t0"
            folder.mkdir()
            for number in range(24):
                file = folder / f"{number % 9}.{('md', 'tmp')[number % 9 % 2]}"
                text = writer.text(number)
                writer.act({f"m/t0/{file.name}": text}, partial(write_file, file, text))
            mount.kill()
        return records_of(log)

    def _run(self, what: str) -> list[Record]:
        root, log = self._places()
        self._write(root, log, what, acts=20)
        return records_of(log)

    def _write(self, root: Path, log: Path, what: str, *, acts: int) -> None:
        name = DATABASE if what == "library" else what
        environment = recorded(self.library, root, log)
        command = [sys.executable, "-m", "torture.power_writer"]
        arguments = [what, str(root / name), str(log), str(acts)]
        subprocess.run([*command, *arguments], cwd=TESTS, env=environment, check=True, timeout=120)

    def _places(self) -> tuple[Path, Path]:
        self.recordings += 1
        root = self.folder / f"root_{self.recordings}"
        root.mkdir()
        return root, self.folder / f"log_{self.recordings}"


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(tmp_path_factory.mktemp("recorder"))


Spread = Callable[[Iterable[list[Record]], Check, int], None]


@pytest.fixture
def spread(tmp_path: Path) -> Spread:
    """Give the function that spreads cuts over recordings; nothing may be wrong after any."""

    def check_all(runs: Iterable[list[Record]], check: Check, cuts: int) -> None:
        each = max(1, cuts // RECORDINGS)
        wrong = [
            line
            for seed, run in enumerate(runs)
            for line in losses(run, check, tmp_path, cuts=each, seed=seed)
        ]
        assert wrong == []
        counted("power cuts", each * RECORDINGS, recordings=RECORDINGS)

    return check_all


@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_what_the_library_acknowledged(
    recorder: Recorder, spread: Spread
) -> None:
    spread(recorder.runs("library"), check_database, CUTS // 2)


@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_what_a_server_acknowledged(recorder: Recorder, spread: Spread) -> None:
    runs = (recorder.server_run() for _ in range(RECORDINGS))

    spread(runs, check_database, CUTS // 4)


@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_what_the_spool_secured(recorder: Recorder, spread: Spread) -> None:
    spread(recorder.runs("spool"), check_spool, CUTS // 4)


@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_what_a_run_saved(recorder: Recorder, spread: Spread) -> None:
    spread(recorder.runs("checkpoints"), check_checkpoints, CUTS)


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.mark.fuse
@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_a_file_of_a_mount_that_was_closed(
    recorder: Recorder, reaper: Reaper, spread: Spread
) -> None:
    runs = (recorder.mount_run(reaper) for _ in range(RECORDINGS))

    spread(runs, check_mount, CUTS // 4)


@pytest.mark.timeout(120 + CUTS * 2)
def test_no_power_loss_loses_what_was_exported(recorder: Recorder, spread: Spread) -> None:
    spread(recorder.runs("exports"), check_exports, CUTS // 4)


@pytest.mark.parametrize(
    ("ending", "of_folders"),
    [("", False), ("-wal", False), (".db", False), ("", True)],
    ids=["files", "log", "database", "folders"],
)
def test_losses_are_found_where_the_library_does_not_sync(
    recorder: Recorder, tmp_path: Path, ending: str, *, of_folders: bool
) -> None:
    records = without_syncs(recorder.first("library"), ending, of_folders=of_folders)

    assert any(losses(records, check_database, tmp_path, cuts=200, seed=1))


@pytest.mark.parametrize("of_folders", [False, True], ids=["files", "folders"])
def test_losses_are_found_where_files_and_folders_are_not_synced(
    recorder: Recorder, tmp_path: Path, *, of_folders: bool
) -> None:
    checks: dict[str, Check] = {
        "spool": check_spool,
        "checkpoints": check_checkpoints,
        "exports": check_exports,
    }

    for what, check in checks.items():
        records = without_syncs(recorder.first(what), "", of_folders=of_folders)
        assert any(losses(records, check, tmp_path, cuts=200, seed=1))


def test_a_file_is_lost_with_its_folder_unless_that_was_synced(tmp_path: Path) -> None:
    def disk_of(*records: Record) -> list[str]:
        disk = Disk()
        for record in records:
            disk.do(record)
        disk.after_a_loss(Chance(random.Random(1), 0.0, in_order=False, torn=False), tmp_path)
        return [f"{each.name}={each.read_text()}" for each in sorted(tmp_path.iterdir())]

    made = Record("c", 1, 0, "a", "", b"")
    wrote = Record("w", 1, 0, "a", "", b"text")
    synced = Record("s", 1, 0, "a", "", b"")
    folder = Record("s", 2, 1, "", "", b"")

    assert disk_of(made, wrote, synced) == []
    assert disk_of(made, wrote, folder) == ["a="]
    assert disk_of(made, wrote, synced, folder) == ["a=text"]
