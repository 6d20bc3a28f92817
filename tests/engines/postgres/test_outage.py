"""A server that goes away and comes back."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import SCRATCH, happened
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer


@pytest.fixture
def engine(own_server: PostgresServer) -> Iterator[PostgresEngine]:
    engine = PostgresEngine.open(own_server.url("own"), clock=FrozenClock())
    yield engine.scoped(EVERYBODY)
    engine.close()


@pytest.fixture
def sql(engine: PostgresEngine) -> Row:
    return engine.queries(SCRATCH)


def test_reads_and_writes_wait_for_a_server_that_is_restarting(
    own_server: PostgresServer, engine: PostgresEngine, sql: Row
) -> None:
    engine.write(lambda tx: tx.run(sql.put_number, key="kept", number=1))
    own_server.stop("fast")
    came: list[int] = []
    reader = threading.Thread(
        target=lambda: came.append(engine.one(Row, sql.get_number, key="kept").number)
    )

    reader.start()
    own_server.start()
    reader.join()

    assert came == [1]
    assert engine.write(lambda tx: tx.one(Row, sql.add, key="kept").number) == 2


def test_a_server_that_stays_away_is_unavailable_and_said_to_be(
    own_server: PostgresServer, engine: PostgresEngine, sql: Row
) -> None:
    own_server.stop("fast")
    try:
        with pytest.raises(Unavailable) as caught:
            engine.write(lambda tx: tx.run(sql.put_number, key="b", number=1), timeout=0.5)
        status = engine.status()
    finally:
        own_server.start()

    assert (caught.value.reason, caught.value.written) == ("lost", False)
    assert (status.ready, status.reason) == (False, "lost")
    assert engine.status().ready


def test_a_feed_goes_on_after_a_restart(own_server: PostgresServer, engine: PostgresEngine) -> None:
    other = PostgresEngine.open(own_server.url("own"), clock=FrozenClock()).scoped(EVERYBODY)
    feed = engine.feed()
    own_server.stop("immediate")
    own_server.start()

    other.write(lambda tx: tx.note(happened("test.after")))

    assert [event.type for event in feed.poll(30)] == ["test.after"]
    feed.close()
    other.close()
