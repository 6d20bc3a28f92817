"""The databases that outlive their process, for what must hold on each of them."""

import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest

import holdfast
from holdfast.ground.clock import Clock, SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import new_workspace

Opened = Callable[[Clock], AbstractContextManager[Holdfast]]

_certificates = cache(ssl.create_default_context)


@pytest.fixture(scope="module", autouse=True)
def certificates() -> Iterator[None]:
    """Load the certificates of authorities once; each HTTP client would, and no server has TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", _certificates)
        yield


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give the content of a SQLite file as a first opening leaves it, which takes 20 ms."""
    path = tmp_path_factory.mktemp("migrated") / "h.db"
    holdfast.open(path).close()
    return path.read_bytes()


@pytest.fixture
def sqlite_file(sqlite_file: Path, migrated: bytes) -> Path:
    """Give the path of a database of the test's own, migrated and empty."""
    sqlite_file.write_bytes(migrated)
    return sqlite_file


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give what to open: a SQLite file of the test's own, or the PostgreSQL that all share."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("postgres_url")


class SwitchedClock:
    """The clock of the test that runs."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()

    def now(self) -> datetime:
        return self.clock.now()


@pytest.fixture(scope="module")
def on_postgres(postgres_url: str) -> Iterator[tuple[Holdfast, SwitchedClock]]:
    """Give the handle whose connections the tests of a module share on `postgres_url`."""
    clock = SwitchedClock()
    with holdfast.open(postgres_url, clock=clock) as hf:
        yield hf, clock


@pytest.fixture
def opened_by(target: str, request: pytest.FixtureRequest) -> Opened:
    """Give what opens a workspace of the test's own in `target`, by the clock it is given."""

    @contextmanager
    def opened(clock: Clock) -> Generator[Holdfast]:
        if target.startswith("postgresql:") and target == request.getfixturevalue("postgres_url"):
            hf, switched = request.getfixturevalue("on_postgres")
            switched.clock = clock
            yield hf.acting(workspace=new_workspace())
        else:
            with holdfast.open(target, workspace=new_workspace(), clock=clock) as hf:
                yield hf

    return opened


@pytest.fixture
def kept(opened_by: Opened) -> Iterator[Holdfast]:
    """Give a handle to a workspace of the test's own in `target`."""
    with opened_by(SystemClock()) as hf:
        yield hf
