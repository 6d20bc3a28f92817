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


@pytest.fixture
def engine(opened: Callable[[], SQLiteEngine]) -> SQLiteEngine:
    engine = opened()
    make_scratch(engine)
    return engine


@pytest.fixture
def sql(engine: SQLiteEngine) -> Row:
    return engine.queries(SCRATCH)
