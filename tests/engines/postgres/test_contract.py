"""The engine's contract, on PostgreSQL, and behind a pooler that hands out any connection."""

import random
from collections.abc import Callable, Iterator

import pytest

from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.engine import open_server
from holdfast.engines.postgres.pool import Pool
from holdfast.engines.postgres.protocol import Wire, bind
from holdfast.engines.postgres.server import resolve
from holdfast.ground.events import EventBus
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import EngineContract
from holdfast.testing.fakes import FrozenClock

DISCARD = bind("discard all", {})


class AnyConnection(Pool):
    """Hands out any of its connections, which forgot all that was said to them."""

    def take(self, deadline: float) -> Wire:
        held = [super().take(deadline)]
        if self.in_use < 4:
            held.append(super().take(deadline))
        random.shuffle(held)
        wire = held.pop()
        for other in held:
            self.give(other)
        assert wire.exchange((DISCARD,)).failure() is None
        return wire


class TestOnPostgres(EngineContract):
    pass


class TestBehindAPooler(EngineContract):
    @pytest.fixture
    def engine(
        self, fresh_postgres_url: str, with_scratch: Callable[[str], PostgresEngine]
    ) -> Iterator[PostgresEngine]:
        assert with_scratch("")
        target = resolve(fresh_postgres_url + "&prepare=0&pool=8")
        server, _ = open_server(target, clock=FrozenClock(), events=EventBus(), migrations=True)
        server.pool = AnyConnection(
            lambda: Wire(server.connect(), prepare=False), most=8, target=target.shown
        )
        engine = PostgresEngine(server, EVERYBODY)
        yield engine
        engine.close()
