"""What the tests of the SQLite engine are given."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import SCRATCH, make_scratch
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], SQLiteEngine]]:
    """Open the same file again, as often as it is called."""
    engines: list[SQLiteEngine] = []

    def open() -> SQLiteEngine:
        engines.append(SQLiteEngine.open(path, clock=FrozenClock()))
        return engines[-1]

    yield open
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def with_scratch(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give the content of a file with the contract's table in it."""
    path = tmp_path_factory.mktemp("scratch") / "a.db"
    engine = SQLiteEngine.open(path, clock=FrozenClock())
    make_scratch(engine)
    engine.close()
    return path.read_bytes()


@pytest.fixture
def engine(opened: Callable[[], SQLiteEngine], path: Path, with_scratch: bytes) -> SQLiteEngine:
    path.write_bytes(with_scratch)
    return opened()


@pytest.fixture
def sql(engine: SQLiteEngine) -> Row:
    return engine.queries(SCRATCH)
