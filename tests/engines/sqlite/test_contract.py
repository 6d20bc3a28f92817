"""The contract of the engine on SQLite, random writes, and many threads."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace as Row

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import (
    SCRATCH,
    EngineContract,
    Wanted,
    happened,
    make_scratch,
)
from holdfast.testing.fakes import FrozenClock


class TestOnAFile(EngineContract):
    pass


class TestInMemory(EngineContract):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = SQLiteEngine.open(":memory:", clock=FrozenClock())
        make_scratch(engine)
        yield engine
        engine.close()


KEYS = st.sampled_from(["a", "b", "c", "ä"])
NUMBERS = st.integers(-(2**63), 2**63 - 1)
ACTS = st.lists(st.tuples(KEYS, st.none() | NUMBERS), max_size=4)


class EngineAgainstADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "a.db"
        self.model: dict[str, int] = {}
        self.noted = 0
        self.engine = SQLiteEngine.open(self.path, clock=FrozenClock())
        make_scratch(self.engine)
        self.sql = self.engine.queries(SCRATCH)
        self.feed = self.engine.feed()

    def act(self, tx: Transaction, acts: list[tuple[str, int | None]]) -> None:
        for key, number in acts:
            if number is None:
                tx.run(self.sql.delete, key=key)
            else:
                tx.run(self.sql.put_number, key=key, number=number)
        tx.note(happened())

    def apply(self, acts: list[tuple[str, int | None]]) -> None:
        for key, number in acts:
            if number is None:
                self.model.pop(key, None)
            else:
                self.model[key] = number
        self.noted += 1

    @rule(acts=ACTS)
    def write(self, acts: list[tuple[str, int | None]]) -> None:
        self.engine.write(lambda tx: self.act(tx, acts))
        self.apply(acts)

    @rule(writes=st.lists(st.tuples(ACTS, st.booleans()), min_size=2, max_size=6))
    def submit_many(self, writes: list[tuple[list[tuple[str, int | None]], bool]]) -> None:
        def work(tx: Transaction, acts: list[tuple[str, int | None]], *, fails: bool) -> None:
            self.act(tx, acts)
            if fails:
                raise Wanted

        futures = [
            self.engine.submit(lambda tx, acts=acts, fails=fails: work(tx, acts, fails=fails))
            for acts, fails in writes
        ]
        for future, (acts, fails) in zip(futures, writes, strict=True):
            assert isinstance(future.exception(), Wanted) == fails
            if not fails:
                self.apply(acts)

    @rule()
    def close_and_open(self) -> None:
        cursor = self.feed.cursor
        self.engine.close()
        self.engine = SQLiteEngine.open(self.path, clock=FrozenClock())
        self.feed = self.engine.feed(cursor)

    @invariant()
    def the_rows_are_those_of_the_dict(self) -> None:
        found = {row.key: row.number for row in self.engine.all(Row, self.sql.list)}
        assert found == self.model

    @invariant()
    def the_feed_gives_each_change_once(self) -> None:
        self.noted -= len(self.feed.poll())
        assert self.noted == 0

    def teardown(self) -> None:
        self.engine.close()
        self.folder.cleanup()


TestEngineAgainstADict = EngineAgainstADict.TestCase


WRITES = 100
"""How many writes each thread makes, of which one in ten raises."""


def test_sixty_four_threads_of_writes_keep_exactly_what_did_not_raise(
    engine: SQLiteEngine, sql: Row
):
    all_wait = Barrier(65)

    def live(thread: int) -> list[str]:
        kept: list[str] = []
        for turn in range(WRITES):
            key = f"{thread:02} {turn:04}"
            fails = (thread + turn) % 10 == 3

            def work(tx: Transaction, key: str = key, *, fails: bool = fails) -> str:
                tx.run(sql.put_number, key=key, number=1)
                if fails:
                    raise Wanted
                return key

            try:
                if turn == 0:
                    first = engine.submit(work)
                    all_wait.wait()
                    kept.append(first.result())
                else:
                    kept.append(engine.write(work))
            except Wanted:
                continue
        return kept

    # The first writes of all threads wait behind this one, so they are in one or two groups.
    held = engine.submit(lambda _: all_wait.wait())
    with ThreadPoolExecutor(64) as pool:
        kept = sorted(key for keys in pool.map(live, range(64)) for key in keys)
    held.result()

    assert len(kept) == 64 * WRITES * 9 // 10
    assert [row.key for row in engine.all(Row, sql.list)] == kept
    metrics = engine.status().metrics
    assert metrics["group_size_sum"] - metrics["groups_total"] >= 63
