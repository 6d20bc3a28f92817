from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.base import Engine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import EngineContract, make_scratch
from holdfast.testing.fakes import FrozenClock


class TestOnAFile(EngineContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = SQLiteEngine.open(tmp_path / "a.db", clock=FrozenClock())
        make_scratch(engine)
        yield engine
        engine.close()


class TestInMemory(EngineContract):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = SQLiteEngine.open(":memory:", clock=FrozenClock())
        make_scratch(engine)
        yield engine
        engine.close()
