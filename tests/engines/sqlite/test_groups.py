"""Groups of writes under one commit: what fails, what is run again, and what that costs."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace as Row
from typing import NoReturn, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import WRITES, BatchedWork, Engine, Kin, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.group_commit import CAREFUL
from holdfast.engines.sqlite.transaction import INSERT_CHANGE
from holdfast.engines.sqlite.write_queue import Slot, gathered
from holdfast.ground.errors import EngineFault
from holdfast.ground.scope import Scope
from holdfast.testing.contracts.engine import SCRATCH, Wanted, happened, make_scratch, putting
from holdfast.testing.fakes import FrozenClock

T = TypeVar("T")

STATEMENTS = 3


def grouped(
    engine: SQLiteEngine, works: list[Callable[[Transaction], object]]
) -> list[Future[object]]:
    """Submit *works* while the writer is busy, so that they share a group, and run them."""
    inside, go = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        inside.set()
        go.wait()

    first = engine.submit(work)
    inside.wait()
    futures = [engine.submit(work) for work in works]
    go.set()
    first.result()
    for future in futures:
        future.exception()
    return futures


def spoilt(engine: SQLiteEngine) -> float:
    return engine.status().metrics['retries_total{reason="spoilt"}']


def numbers(engine: SQLiteEngine, sql: Row) -> dict[str, int]:
    return {row.key: row.number for row in engine.all(Row, sql.list)}


class Statements:
    """The engine's own statements that the writer runs, by their text."""

    def __init__(self, engine: SQLiteEngine) -> None:
        self.seen: Counter[str] = Counter()
        engine.core.writer.group.connection().raw.exec_trace = self._trace

    def _trace(self, _cursor: object, sql: str, _bindings: object) -> bool:
        self.seen[sql] += 1
        return True


@pytest.mark.parametrize("size", [1, 2, 64])
@pytest.mark.parametrize("fault", range(STATEMENTS + 1))
def test_a_fault_at_a_statement_undoes_its_own_write_alone(
    engine: SQLiteEngine, sql: Row, size: int, fault: int
):
    def failing(tx: Transaction) -> None:
        for number in range(STATEMENTS):
            if number == fault:
                tx.run(sql.put_new, key="taken", number=0)
            tx.run(sql.put_number, key=f"fails {number}", number=number)
        raise Wanted

    engine.write(putting(sql, "taken", 7))
    place = size // 2
    works: list[Callable[[Transaction], object]] = [
        failing if number == place else putting(sql, f"{number}", number) for number in range(size)
    ]

    futures = grouped(engine, works)

    kept = {f"{number}": number for number in range(size) if number != place}
    assert futures[place].exception() is not None
    assert numbers(engine, sql) == {"taken": 7, **kept}
    seqs = [future.result() for number, future in enumerate(futures) if number != place]
    assert seqs == sorted({int(str(seq)) for seq in seqs})


def test_a_group_that_nothing_spoils_uses_no_savepoint(engine: SQLiteEngine, sql: Row):
    def refused(tx: Transaction) -> NoReturn:
        tx.first(Row, sql.get, key="0")
        tx.run(sql.delete, key="is not there")
        raise Wanted

    ran = Statements(engine)

    futures = grouped(engine, [*(putting(sql, f"{n}", n) for n in range(9)), refused])

    assert isinstance(futures[-1].exception(), Wanted)
    assert len(numbers(engine, sql)) == 9
    assert ran.seen["savepoint one"] == 0
    assert spoilt(engine) == 0


def test_a_spoilt_group_runs_each_work_at_most_twice_and_is_counted(engine: SQLiteEngine, sql: Row):
    calls: Counter[int] = Counter()

    def counted(number: int) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            calls[number] += 1
            tx.run(sql.put_number, key=f"{number}", number=number)
            if number in (5, 20):
                raise Wanted
            return number

        return work

    futures = grouped(engine, [counted(number) for number in range(30)])

    assert [number for number, each in enumerate(futures) if each.exception()] == [5, 20]
    assert set(numbers(engine, sql)) == {f"{n}" for n in range(30) if n not in (5, 20)}
    assert set(calls.values()) == {1, 2}
    assert spoilt(engine) == 1


def test_the_groups_after_a_spoilt_one_use_savepoints_for_a_while(engine: SQLiteEngine, sql: Row):
    def failing(tx: Transaction) -> NoReturn:
        tx.run(sql.put_number, key="fails", number=0)
        raise Wanted

    grouped(engine, [putting(sql, "a", 1), failing])
    ran = Statements(engine)

    grouped(engine, [putting(sql, "a", 1), failing])
    assert ran.seen["savepoint one"] == 2
    assert spoilt(engine) == 1

    for number in range(CAREFUL):
        engine.write(putting(sql, "a", number))
    ran.seen.clear()
    grouped(engine, [putting(sql, "a", 1), putting(sql, "b", 1)])
    assert ran.seen["savepoint one"] == 0


def test_each_of_many_callers_gets_its_own_outcome(engine: SQLiteEngine, sql: Row):
    def refused(tx: Transaction) -> NoReturn:
        tx.first(Row, sql.get, key="a")
        raise Wanted

    def late(tx: Transaction) -> NoReturn:
        tx.run(sql.put_number, key="late", number=0)
        raise Wanted

    def caller(me: int) -> list[str]:
        kept: list[str] = []
        for number in range(25):
            key, mark = f"{me} {number}", me * 25 + number
            work = refused if mark % 10 == 0 else late if mark % 50 == 1 else putting(sql, key, 1)
            try:
                engine.write(lambda tx, work=work: (work(tx), tx.note(happened())))
                kept.append(key)
            except Wanted:
                continue
        return kept

    with ThreadPoolExecutor(64) as pool:
        kept = [key for keys in pool.map(caller, range(64)) for key in keys]

    assert set(numbers(engine, sql)) == set(kept)
    assert len(kept) == 64 * 25 - 160 - 32
    assert engine.one(Row, COUNT_EVENTS).n == len(kept)


COUNT_EVENTS = "select count(*) as n from changes"


def test_the_events_of_a_group_are_written_by_one_statement(engine: SQLiteEngine):
    ran, before = Statements(engine), engine.statements

    grouped(engine, [lambda tx: tx.note(happened()) for _ in range(20)])

    assert engine.statements == before + 1
    assert ran.seen[INSERT_CHANGE] == 20
    assert engine.one(Row, COUNT_EVENTS).n == 20


class Puts:
    """Puts of numbers under keys, brought together by kin; they record their batches."""

    def __init__(self, sql: Row) -> None:
        self.sql = sql
        self.batches: list[list[tuple[str, int]]] = []

    def put(
        self, key: str, number: int, *, act: str = "put", part: str | None = "a"
    ) -> BatchedWork[tuple[str, int], int]:
        return BatchedWork(Kin("scratch", part, act), (key, number), self.work)

    def work(self, tx: Transaction, items: Sequence[tuple[str, int]]) -> list[int | Exception]:
        self.batches.append(list(items))
        results: list[int | Exception] = [Wanted() if number < 0 else number for _, number in items]
        for key, number in items:
            if number >= 0:
                tx.run(self.sql.put_number, key=key, number=number)
            if number >= 1000:
                raise Wanted
        return results


def test_waiting_writes_of_a_kin_are_one_call(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)

    futures = grouped(engine, [puts.put(f"{number}", number) for number in range(50)])

    assert [future.result() for future in futures] == list(range(50))
    assert [len(batch) for batch in puts.batches] == [50]
    assert len(numbers(engine, sql)) == 50


def test_a_batch_ends_after_64_writes(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)

    grouped(engine, [puts.put(f"{number}", number) for number in range(150)])

    assert [len(batch) for batch in puts.batches] == [64, 64, 22]


def test_a_refusal_in_a_batch_is_its_own_alone_and_undoes_nothing(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)
    ran = Statements(engine)

    futures = grouped(engine, [puts.put("a", 1), puts.put("b", -1), puts.put("c", 3)])

    assert isinstance(futures[1].exception(), Wanted)
    assert (futures[0].result(), futures[2].result()) == (1, 3)
    assert numbers(engine, sql) == {"a": 1, "c": 3}
    assert [len(batch) for batch in puts.batches] == [3]
    assert ran.seen["savepoint one"] == 0


@pytest.mark.parametrize("others", [0, 1, 70])
def test_a_batch_that_raises_runs_each_alone(engine: SQLiteEngine, sql: Row, others: int):
    puts = Puts(sql)
    plain = [putting(sql, f"other {number}", number) for number in range(others)]

    futures = grouped(engine, [*plain, puts.put("a", 1), puts.put("b", 1000), puts.put("c", 3)])

    a, b, c = futures[-3:]
    assert (a.result(), c.result()) == (1, 3)
    assert isinstance(b.exception(), Wanted)
    found = numbers(engine, sql)
    assert {key for key in found if not key.startswith("other")} == {"a", "c"}
    assert len(found) == others + 2
    assert puts.batches == [
        [("a", 1), ("b", 1000), ("c", 3)],
        [("a", 1)],
        [("b", 1000)],
        [("c", 3)],
    ]


def test_a_batch_that_gives_too_few_results_fails_each_of_its_writes(engine: SQLiteEngine):
    kin = Kin("scratch", "a", "none")
    wrong: BatchedWork[int, int] = BatchedWork(kin, 1, lambda _tx, items: [0] * (len(items) + 1))

    futures = grouped(engine, [wrong, wrong])

    assert all(isinstance(future.exception(), (EngineFault, ValueError)) for future in futures)


def test_only_writes_of_one_owner_are_brought_together(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)
    ada, bob = (engine.scoped(Scope(workspace="default", agent=name)) for name in ("ada", "bob"))

    with ThreadPoolExecutor(1) as pool, engine.core.database.turn:
        first = pool.submit(engine.write, putting(sql, "first", 0))
        futures = [each.submit(puts.put("a", 1)) for each in (ada, bob, ada, bob)]
    first.result()

    assert [future.result() for future in futures] == [1] * 4
    assert max(len(batch) for batch in puts.batches) == 1


def test_a_loop_s_writes_of_a_kin_are_brought_together(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)

    async def both() -> list[int]:
        return await asyncio.gather(*(awaited(engine, puts.put(f"{n}", n)) for n in range(20)))

    assert asyncio.run(both()) == list(range(20))
    assert len(puts.batches) < 20


def test_a_write_put_in_place_of_another_is_done_alone(engine: SQLiteEngine, sql: Row):
    puts = Puts(sql)

    def wrap(work: Callable[[Transaction], T], _: Engine) -> Callable[[Transaction], T]:
        def replaced(tx: Transaction) -> T:
            return work(tx)

        return replaced

    token = WRITES.set(wrap)
    try:
        assert engine.write(puts.put("a", 1)) == 1
        with pytest.raises(Wanted):
            engine.write(puts.put("b", -1))
    finally:
        WRITES.reset(token)
    assert numbers(engine, sql) == {"a": 1}


def slot(kin: Kin | None) -> Slot:
    def refuse(_tx: Transaction, _items: Sequence[int]) -> list[int | Exception]:
        raise Wanted

    def alone(_: Transaction) -> None: ...

    return Slot(alone if kin is None else BatchedWork(kin, 0, refuse), {}, None, lambda: None)


def test_nothing_moves_past_a_write_of_its_own_subject():
    def layout(text: str) -> str:
        """Return how `set` and `forget` of agents a and b, of all, and others are grouped."""
        kins: dict[str, Kin | None] = {
            "a": Kin("w", "a", "set"),
            "A": Kin("w", "a", "forget"),
            "b": Kin("w", "b", "set"),
            "*": Kin("w", None, "set"),
            "x": Kin("v", "a", "set"),
            "-": None,
        }
        slots = [slot(kins[letter]) for letter in text]
        letters = {id(each): letter for each, letter in zip(slots, text, strict=True)}
        return " ".join("".join(letters[id(each)] for each in batch) for batch in gathered(slots))

    assert layout("abab") == "aa bb"
    assert layout("aAaA") == "a A a A"
    assert layout("abAb") == "a bb A"
    assert layout("a-a") == "a - a"
    assert layout("ab*ab") == "a b * a b"
    assert layout("*a*") == "* a *"
    assert layout("ax*x") == "a xx *"
    assert layout("aabb*") == "aa bb *"


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "plain", "all"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(-1, 9),
    ),
    min_size=1,
    max_size=90,
)


@settings(max_examples=60, deadline=None)
@given(acts=ACTS)
def test_the_writes_of_one_caller_take_effect_in_their_order(acts: list[tuple[str, str, int]]):
    engine = SQLiteEngine.open(":memory:", clock=FrozenClock())
    make_scratch(engine)
    sql = engine.queries(SCRATCH)
    puts, model, refused = Puts(sql), dict[str, int](), list[bool]()

    def drop(tx: Transaction, keys: Sequence[str]) -> list[int | Exception]:
        return [tx.run(sql.delete, key=key) for key in keys]

    works: list[Callable[[Transaction], object]] = []
    for act, key, number in acts:
        refused.append(act in ("put", "all") and number < 0)
        if act == "drop":
            works.append(BatchedWork(Kin("scratch", key, "drop"), key, drop))
            model.pop(key, None)
            continue
        if act == "plain":
            works.append(putting(sql, key, number))
        else:
            part = None if act == "all" else key
            works.append(puts.put(key, number, act=act, part=part))
        if not refused[-1]:
            model[key] = number

    futures = grouped(engine, works)

    assert [future.exception() is not None for future in futures] == refused
    assert numbers(engine, sql) == model
    engine.close()
