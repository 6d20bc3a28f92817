"""A call on a file that fails gives the right error, harms no neighbour and loses nothing."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Event, Thread

import httpx
import msgspec
import pytest
from served import SERVE, Served
from torture.counts import counted
from torture.fault_scenarios import LARGE, SCENARIOS, Acts, Outcomes, Report, filled, stored
from torture.faults import (
    HOLD,
    LASTING,
    Call,
    Fault,
    FaultPlan,
    built_faults,
    faults_of,
    faulty,
)

import holdfast
from holdfast.ground.errors import HoldfastError, Unavailable
from holdfast.library.holdfast import Holdfast

FAULTS = int(os.environ.get("HOLDFAST_TORTURE_FAULTS", "60"))
"""Faults of all scenarios together; each scenario has a share."""
TESTS = Path(__file__).parent.parent
SERVER_SHARE = 4
"""The part of the faults that the server has, as a divisor."""
GROUPS = [
    ("writes", "alone", "joining", "forking"),
    ("opening", "creating", "migrating", "closing"),
    ("backup", "restore"),
    ("spool", "checkpoints", "export"),
]


MEMORY = Path("/dev/shm")
"""Where files are that are synced often."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else tmp_path_factory.mktemp("root")
    with TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def plan(files: Path) -> FaultPlan:
    return FaultPlan(files / "plan")


@pytest.fixture(scope="module")
def environment(files: Path, root: Path, plan: FaultPlan) -> dict[str, str]:
    del plan
    return faulty(built_faults(files), root, files / "plan")


def until(condition: Callable[[], bool]) -> None:
    """Wait until *condition* is true."""
    while not condition():
        Event().wait(0.002)


def test_every_scenario_is_run() -> None:
    assert sorted(SCENARIOS) == sorted(name for group in GROUPS for name in group)


Run = Callable[[int, Iterable[str]], None]


@pytest.fixture
def run(environment: dict[str, str], root: Path, files: Path) -> Run:
    """Give the function that runs scenarios under a number of faults each; none may go wrong."""

    def run(most: int, names: Iterable[str]) -> None:
        program = [sys.executable, "-m", "torture.fault_scenarios"]
        folder = mkdtemp(dir=root)
        child = subprocess.run(
            [*program, folder, str(files / "plan"), str(most), "1", *names],
            cwd=TESTS,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        reports = [msgspec.json.decode(line, type=Report) for line in child.stdout.splitlines()]
        for report in reports:
            counted("faults", report.faults, scenario=report.scenario, of=report.of)
        assert [line for report in reports for line in report.wrong] == []
        assert [report.scenario for report in reports if not report.faults] == []

    return run


@pytest.mark.timeout(120 + FAULTS)
@pytest.mark.parametrize("names", GROUPS, ids=["-".join(names) for names in GROUPS])
def test_no_fault_of_a_file_breaks_a_promise_of_the_library(
    run: Run, names: tuple[str, ...]
) -> None:
    run(max(1, FAULTS // len(SCENARIOS)), names)


ALL = 100_000
BROKEN = (
    "writes=SYNC:EIO:0",
    "alone=SYNC:EIO:0",
    "opening=OPEN:EMFILE:1",
    "joining=SIZE:EIO",
    "creating=OPEN:EIO:1",
    "migrating=OPEN:EMFILE:1",
    "forking=OPEN:EMFILE:1",
    "export=OPEN:EMFILE:1",
    "spool=REMOVE",
)
"""Scenarios and faults that had a wrong outcome once."""


def test_faults_that_broke_a_promise_before_break_none(run: Run) -> None:
    run(ALL, BROKEN)


@contextmanager
def serving(path: Path, environment: dict[str, str], log: Path) -> Generator[Served]:
    """Serve the database *path* until the block ends; what the server logs goes to a file."""
    command = [sys.executable, "-c", SERVE, str(path), "127.0.0.1", "0", "1", ""]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stderr=file, env=environment, text=True) as process,
    ):
        try:
            until(lambda: process.poll() is not None or b"\n" in log.read_bytes())
            yield Served(process, log.read_text().splitlines()[0])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(environment: dict[str, str], root: Path, files: Path) -> Iterator[Served]:
    with serving(root / "h.db", environment, files / "log") as server:
        yield server


@pytest.fixture
def hf(server: Served, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """Give a handle on a workspace of the test's own."""
    workspace = request.node.name.removeprefix("test_")[:40]
    with holdfast.open(server.url, workspace=workspace) as hf:
        filled(hf)
        yield hf


def verified(path: Path) -> None:
    """Verify the database at *path*."""
    with holdfast.open(path) as hf:
        assert hf.verify().findings == ()


def descriptors(server: Served) -> int:
    """Return how many files, without sockets, the server has open."""
    found = 0
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(each.readlink()).startswith("/")
    return found


def ready(server: Served) -> bool:
    return httpx.get(f"{server.url}/readyz").status_code == 200


def check_after(server: Served, hf: Holdfast, outcomes: Outcomes) -> None:
    """Check that the next write succeeds, and what is stored."""
    hf.durable("agent").set("same", "written", category="note")
    outcomes.known["d/same"] = "written"
    outcomes.compare(stored(hf))
    assert ready(server)


@pytest.mark.timeout(120 + FAULTS)
def test_no_fault_of_a_file_breaks_a_promise_of_a_server(
    server: Served, root: Path, plan: FaultPlan
) -> None:
    chance, wrong, fired = random.Random(1), list[str](), 0

    def run(number: int, fault: Fault | None) -> None:
        with holdfast.open(server.url, workspace=f"w{number}") as hf:
            filled(hf)
            acts, outcomes = Acts(hf), Outcomes(fault, stored(hf), plan)
            if fault is None:
                plan.count()
            else:
                plan.arm(fault)
            try:
                acts.neighbours(outcomes)
                acts.write(outcomes)
            finally:
                plan.heal()
                if fault is not None and fault.call == Call.READ:
                    # A file that showed damage is checked before the next write.
                    until(lambda: ready(server))
            check_after(server, hf, outcomes)

    run(0, None)
    faults, opened = list(faults_of(plan.counts)), descriptors(server)
    most = max(8, FAULTS // SERVER_SHARE)
    for number, fault in enumerate(chance.sample(faults, min(most, len(faults))), 1):
        try:
            run(number, fault)
        except (AssertionError, HoldfastError) as error:
            wrong.append(f"{fault}, {plan.last}: {error!r}"[:1500])
        fired += plan.fired > 0

    counted("faults", fired, scenario="server", of=len(faults))
    assert wrong == []
    assert fired
    assert descriptors(server) <= opened + 2 * 16 + 3, "more than all readers have open"
    verified(root / "h.db")


class FullDisk:
    """A disk that a server writes to, which fills up and is freed again."""

    def __init__(self, folder: Path, plan: FaultPlan) -> None:
        self._folder, self._plan, self._filler = folder, plan, folder / "filler"
        command = ["mount", "-t", "tmpfs", "-o", "size=8m", "holdfast-test", str(folder)]
        done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
        self.is_real = done.returncode == 0

    def fill(self) -> None:
        """Use all space: on a small file system if one may be mounted, else by a fault."""
        if not self.is_real:
            self._plan.arm(Fault(Call.WRITE, 1, errno.ENOSPC, LASTING))
            return
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        """Free the space."""
        self._plan.heal()
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        if self.is_real:
            subprocess.run(["umount", "--lazy", str(self._folder)], check=True)


@pytest.fixture
def small(root: Path) -> Path:
    small = root / "small"
    small.mkdir()
    return small


@pytest.fixture
def disk(small: Path, plan: FaultPlan) -> Iterator[FullDisk]:
    disk = FullDisk(small, plan)
    yield disk
    disk.close()


def written_until_full(acts: Acts, outcomes: Outcomes, prefix: str) -> int:
    """Set 20 entries; return how many were refused."""
    refused = 0
    for number in range(20):
        key, text = f"{prefix}-{number}", LARGE[:9_000]
        do = partial(acts.durable.set, key, text, category="note")
        refused += outcomes.act({f"d/{key}": text}, do) is None
        outcomes.compare(stored(acts.hf))
    return refused


def test_a_server_on_a_full_disk_reads_and_goes_on_when_there_is_space(
    disk: FullDisk, environment: dict[str, str], small: Path, files: Path
) -> None:
    full = Fault(Call.WRITE, 1, errno.ENOSPC, LASTING)
    with (
        serving(small / "h.db", environment, files / "small") as server,
        holdfast.open(server.url) as hf,
    ):
        filled(hf)
        for number in range(3):
            acts, outcomes = Acts(hf), Outcomes(full, stored(hf))
            disk.fill()
            refused = written_until_full(acts, outcomes, str(number))
            assert refused
            assert outcomes.doubts == []
            outcomes.act({"d/old": None}, partial(acts.durable.forget, "old"))
            disk.free()
            acts.durable.set("old", "again", category="note")
            outcomes.known["d/old"] = "again"
            outcomes.compare(stored(hf))
            assert ready(server)
            counted("faults", refused, scenario="full disk")
    verified(small / "h.db")


def test_a_server_without_descriptors_goes_on_when_it_has_some(
    server: Served, hf: Holdfast
) -> None:
    acts, pid = Acts(hf), server.process.pid
    acts.longterm.remember("The first fact lets the server read its word lists.")
    outcomes = Outcomes(Fault(Call.OPEN, 1, errno.EMFILE, LASTING), stored(hf))
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    acts.write(outcomes)
    with httpx.Client() as fresh, suppress(httpx.TransportError):
        fresh.get(f"{server.url}/readyz", timeout=0.2)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)

    check_after(server, hf, outcomes)

    counted("faults", 1, scenario="no descriptors")


def a_write(hf: Holdfast, key: str) -> Thread:
    """Begin to set an entry, in a thread."""
    write = Thread(target=partial(hf.durable("agent").set, key, "x", category="note"))
    write.start()
    return write


A_SYNC_OF_THE_LOG = Fault(Call.SYNC, 1, HOLD, 1)


def test_a_commit_that_waits_for_the_disk_blocks_neither_readers_nor_health(
    server: Served, plan: FaultPlan, hf: Holdfast
) -> None:
    before = stored(hf)
    plan.arm(A_SYNC_OF_THE_LOG, ending="-wal")
    writes = [a_write(hf, f"slow{n}") for n in range(4)]
    until(lambda: plan.held == 1)

    assert stored(hf) == before
    assert ready(server)

    plan.heal()
    for write in writes:
        write.join()
    assert stored(hf) == before | {f"d/slow{n}": "x" for n in range(4)}


def test_a_writer_that_is_stopped_is_busy_for_others_and_then_goes_on(
    server: Served, plan: FaultPlan, root: Path, hf: Holdfast
) -> None:
    before = stored(hf)
    with holdfast.open(root / "h.db", workspace=hf.workspace) as other:
        plan.arm(A_SYNC_OF_THE_LOG, ending="-wal")
        write = a_write(hf, "stopped")
        until(lambda: plan.held == 1)
        server.tell(signal.SIGSTOP)

        with pytest.raises(Unavailable) as refused:
            other.engine.write(lambda tx: tx.seq, timeout=0.3)

        assert (refused.value.reason, refused.value.written) == ("busy", False)
        assert stored(other) == before
        plan.heal()
        server.tell(signal.SIGCONT)
        other.durable("agent").set("other", "x", category="note")
        write.join()
        assert stored(other) == before | {"d/stopped": "x", "d/other": "x"}
        assert other.verify().findings == ()


YEAR = 365 * 24 * 3600
STEPS = (-1, 0, -YEAR, 0, YEAR, -YEAR, 3600, -3600, 0)
"""Seconds that the clock is ahead, one after another."""


def test_steps_of_the_clock_change_no_order_and_lose_nothing(
    plan: FaultPlan, root: Path, hf: Holdfast
) -> None:
    acts, known, ids = Acts(hf), stored(hf), list[str]()
    memories, durable = hf.memory_stores.memories, hf.durable("agent")
    for number, ahead in enumerate(STEPS):
        plan.set_clock(ahead)
        text = f"text {number}"
        durable.set("old", text, category="core")
        memories.update(acts.ids["/a"], memory_store_id=acts.store, content=text)
        ids.append(memories.create(acts.store, path=f"/n{number}", content=text).id)
        known |= {"d/old": text, "m/a": text, f"m/n{number}": text}
        assert stored(hf) == known

    versions = hf.memory_stores.memory_versions.list(acts.store, memory_id=acts.ids["/a"]).all()
    changes = [each.seq for each in durable.history("old").data]
    assert [each.operation for each in versions] == ["modified"] * len(STEPS) + ["created"]
    assert changes == sorted(changes, reverse=True)
    assert ids == sorted(ids)
    verified(root / "h.db")
