"""The engine's contract, on PostgreSQL."""

from collections.abc import Callable

import pytest

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import EngineContract


class TestOnPostgres(EngineContract):
    pass


class TestBehindAPooler(EngineContract):
    @pytest.fixture
    def engine(self, opened: Callable[..., PostgresEngine], scratch: None) -> PostgresEngine:
        return opened("&prepare=0&pool=3").scoped(EVERYBODY)
