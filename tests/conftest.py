"""How every test runs, and the databases and servers that tests share."""

import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import Server, new_workspace, serving

pytest.register_assert_rewrite("holdfast.testing.contracts")
pytest_plugins = ["holdfast.testing.postgres", "waivers", "fuse_needs", "browser_needs"]

# Without deadlines, and with the same examples in every run of CI.
_BASE = settings(deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", _BASE, max_examples=25, stateful_step_count=15)
settings.register_profile("full", _BASE, max_examples=300, stateful_step_count=50)
settings.load_profile(os.environ.get("HOLDFAST_EXAMPLES", "quick"))


SLOW = (
    *("torture", "bench", "docs", "wire"),
    *("doors/mount/real", "doors/console/browser", "contracts"),
)
"""Folders whose tests start processes or wait: first, so that workers end at the same time."""


MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 1024**3:
    # Each write of a test is synced, and few tests are about the disk.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class FileScheduling(LoadFileScheduling):
    """Give each file to a worker, as `--dist loadfile` does.

    A file that is done is put aside: xdist counts what is left in all of them after each test,
    which took a processor 40 seconds in a whole run.
    """

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Note that a test is done, and put its file aside if it was the last one of it."""
        super().mark_test_complete(node, item_index, duration)
        files = self.assigned_work[node]
        file = self._split_scope(self.registered_collections[node][item_index])
        if all(files[file].values()):
            del files[file]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """Begin each worker's collection at another folder.

    Each compiles what the others have not come to yet, where all would compile the same files.
    """
    worker, tests = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), config.rootpath / "tests"
    if config.args == ["tests"] and (number := int(worker.removeprefix("gw"))):
        folders = sorted(str(each) for each in tests.glob("[a-z]*/") if each.name != "hosts")
        begin = number * len(folders) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        files = [str(each) for each in sorted(tests.glob("test_*.py"))]
        config.args[:] = [*folders[begin:], *folders[:begin], *files]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    first = [tests / folder for folder in SLOW]
    ranks = {
        path: next((n for n, folder in enumerate(first) if path.is_relative_to(folder)), len(first))
        for path in {item.path for item in items}
    }
    items.sort(key=lambda item: (ranks[item.path], str(item.path)))
    there = {
        "model": find_spec("all_minilm_l6_v2") is not None,
        "locomo": "HOLDFAST_LOCOMO" in os.environ,
    }
    missing = {name for name, is_there in there.items() if not is_there}
    left = [item for item in items if any(map(item.get_closest_marker, missing))]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


def pytest_collection() -> None:
    """Spare the garbage collector the modules and tests, which stay until the end of the run."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report a test once, where xdist sends five messages of one that passes to its main process.

    They took a processor 3 seconds for 5,000 tests. A report for JUnit needs them all.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ or item.config.getoption("xmlpath"):
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Detach what a test left mounted, and say so: pytest could not remove its folder."""
    yield
    mounts = Path("/proc/mounts")
    base = f" {tmp_path_factory.getbasetemp()}/"
    lines = mounts.read_text().splitlines() if mounts.exists() else []
    left = [line.split()[1] for line in lines if base in line]
    for directory in reversed(left):
        subprocess.run(["umount", "-l", directory], check=False)
    assert left == []


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Start processes that hear signals, where this one was told to ignore them (`nohup`, `&`)."""

    def survive(*_: object) -> None:
        """Do nothing; a program that is started does not inherit a handler."""

    ignored = [
        each for each in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(each) == signal.SIG_IGN
    ]
    for each in ignored:
        signal.signal(each, survive)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what mounts leave for the next one apart from that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the tests marked `anyio` on asyncio, the only loop there is here."""
    return "asyncio"


@pytest.fixture(scope="session")
def oldest() -> Path:
    """Give the Python of the environment that has the oldest release of the SDK."""
    python = Path(sys.prefix) / "sdk-0.97" / "bin" / "python"
    if not python.exists():
        pytest.fail("The environment of the oldest SDK is missing; `make test` makes it.")
    return python


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """Give the path of a database that is not there yet."""
    return tmp_path / "h.db"


_WITHOUT_KEYS = """create trigger without_keys before insert on api_keys
begin select raise(abort, 'create keys in a database of the test''s own'); end"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a SQLite file over HTTP, open to all on this machine, for the whole run.

    The file refuses API keys: the first one would close the server to all other tests.
    """
    clock = FrozenClock()
    path = tmp_path_factory.mktemp("served") / "h.db"
    holdfast.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(_WITHOUT_KEYS)
    with holdfast.open(path, clock=clock) as hf, serving(hf, clock=clock) as url:
        yield Server(url, hf, clock)


@pytest.fixture
def remote(server: Server) -> Iterator[Holdfast]:
    """Give a handle through `server` to a workspace of its own."""
    with holdfast.open(server.url, workspace=new_workspace()) as hf:
        yield hf
