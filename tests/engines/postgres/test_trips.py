"""Round trips, counted: what is cheap by design stays cheap."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace as Row

import pytest

import holdfast
from holdfast.engines.base import Reader, Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.testing.contracts.engine import happened, noting


def trips(engine: PostgresEngine, act: Callable[[], object]) -> int:
    """Return how many round trips *act* takes, once it was done before."""
    act()
    before = engine.round_trips
    act()
    return engine.round_trips - before


def test_a_single_look_is_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    assert trips(engine, lambda: engine.first(Row, sql.get_number, key="a")) == 1


def test_a_moment_takes_one_for_each_statement(engine: PostgresEngine, sql: Row) -> None:
    def work(reader: Reader) -> None:
        reader.first(Row, sql.get_number, key="a")
        reader.all(Row, sql.list)

    assert trips(engine, lambda: engine.read(work)) == 2


def test_reads_one_after_the_other_share_a_connection(engine: PostgresEngine) -> None:
    """Also while the rollback of the one before is in flight."""

    def backend(reader: Reader) -> int:
        return reader.one(Row, "select pg_backend_pid() as pid").pid

    assert len({engine.read(backend) for _ in range(10)}) == 1


def test_a_write_that_only_sends_is_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> None:
        tx.send(sql.put_number, key="a", number=1)
        tx.send(sql.put_number, key="b", number=2)
        tx.note(happened())
        tx.note(happened())

    assert trips(engine, lambda: engine.write(work)) == 1


def test_a_number_comes_with_the_lock_it_follows(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        tx.send(sql.put_number, key="b", number=tx.seq)

    assert trips(engine, lambda: engine.write(work)) == 2


def test_a_write_that_changed_nothing_does_not_wait_for_its_commit(
    engine: PostgresEngine, sql: Row
) -> None:
    assert trips(engine, lambda: engine.write(lambda tx: tx.first(Row, sql.list))) == 1
    assert trips(engine, lambda: engine.write(lambda _: None)) == 0


def test_many_rows_are_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    rows = [{"key": f"k{number}", "number": number} for number in range(500)]

    assert trips(engine, lambda: engine.write(lambda tx: tx.run_many(sql.put_number, rows))) == 2


def test_a_number_is_drawn_after_what_was_sent_before(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> tuple[int, int]:
        tx.run(sql.put_number, key="a", number=1)
        before = tx.one(Row, "select last_value as number from holdfast.seq").number
        return before, tx.seq

    before, seq = engine.write(work)

    assert seq > before


def test_writes_of_one_owner_are_numbered_in_the_order_they_commit(
    engine: PostgresEngine, sql: Row
) -> None:
    """Each write reads the number of the one before under the row's lock."""
    engine.write(lambda tx: tx.run(sql.put_number, key="owner", number=0))
    lock = "select number from scratch where key = 'owner' for update"

    def work(tx: Transaction) -> tuple[int, int]:
        before = tx.one(Row, lock).number
        tx.send(sql.put_number, key="owner", number=tx.seq)
        return before, tx.seq

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(engine.write, work) for _ in range(200)]
    pairs: list[tuple[int, int]] = [future.result() for future in futures]

    assert all(before < seq for before, seq in pairs)
    assert len({before for before, _ in pairs}) == 200


@pytest.mark.parametrize(
    ("call", "most"), [("create", 4), ("update", 4), ("retrieve", 1), ("at", 1)]
)
def test_memories_keep_to_their_round_trips(fresh_postgres_url: str, call: str, most: int) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        store = hf.memory_stores.create(name="a")
        memories = hf.memory_stores.memories
        one = memories.create(store.id, path="/one.md", content="some words")
        memories.update(one.id, memory_store_id=store.id, content="other words")
        acts: dict[str, Callable[[], object]] = {
            "create": lambda: memories.create(store.id, path="/two.md", content="more words"),
            "update": lambda: memories.update(one.id, memory_store_id=store.id, content="new"),
            "retrieve": lambda: memories.retrieve(one.id, memory_store_id=store.id),
            "at": lambda: memories.at(store.id, "/one.md"),
        }
        engine = hf.engine
        assert isinstance(engine, PostgresEngine)
        before = engine.round_trips

        acts[call]()

        assert engine.round_trips - before <= most


def test_feeds_cost_the_writer_nothing(engine: PostgresEngine) -> None:
    assert trips(engine, lambda: engine.write(noting("test.a"))) == 1
