"""A server that goes away and comes back, while it is written to."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace as Row

import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import SCRATCH, happened
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer

ROUNDS, THREADS = 4, 6


@pytest.fixture
def engine(own_server: PostgresServer) -> Iterator[PostgresEngine]:
    engine = PostgresEngine.open(own_server.url("own"), clock=FrozenClock())
    yield engine.scoped(EVERYBODY)
    engine.close()


@pytest.fixture
def sql(engine: PostgresEngine) -> Row:
    return engine.queries(SCRATCH)


class Writer(threading.Thread):
    """Writes one key after the other until told to stop, and remembers what became of each."""

    def __init__(self, engine: PostgresEngine, sql: Row, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.engine, self.sql, self.stop = engine, sql, stop
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self.strange: list[BaseException] = []

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            self.write(f"{self.name}_{number:06}", number)

    def write(self, key: str, number: int) -> None:
        def work(tx: Transaction) -> None:
            tx.run(self.sql.put_new, key=key, number=number)
            tx.note(happened())

        try:
            self.engine.write(work)
        except Unavailable as error:
            (self.unknown if error.written is None else self.refused).append(key)
        except BaseException as error:
            self.strange.append(error)
            raise
        else:
            self.acknowledged.append(key)


def test_a_server_that_crashes_under_load_loses_nothing_acknowledged(
    own_server: PostgresServer, engine: PostgresEngine, sql: Row
) -> None:
    stop = threading.Event()
    writers = [Writer(engine, sql, f"w{number}", stop) for number in range(THREADS)]
    for writer in writers:
        writer.start()
    counted = Row(before=0)
    for _ in range(ROUNDS):
        wait_for(lambda: sum(len(w.acknowledged) for w in writers) > counted.before + 200)
        counted.before = sum(len(w.acknowledged) for w in writers)
        own_server.stop("immediate")
        own_server.start()
    wait_for(lambda: sum(len(w.acknowledged) for w in writers) > counted.before + 200)
    stop.set()
    for writer in writers:
        writer.join()

    there = {row.key for row in engine.all(Row, sql.list)}
    assert [error for writer in writers for error in writer.strange] == []
    for writer in writers:
        assert set(writer.acknowledged) <= there
        assert not set(writer.refused) & there
        assert writer.unknown == []
    assert engine.status().metrics["reconnects_total"] >= 1


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


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)
