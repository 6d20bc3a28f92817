from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace as Row

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.testing.contracts.engine import Wanted

WRITES = 100
"""How many writes each thread makes, of which one in ten raises."""


def test_sixty_four_threads_of_writes_keep_exactly_what_did_not_raise(
    engine: SQLiteEngine, sql: Row
):
    def live(thread: int) -> list[str]:
        kept: list[str] = []
        for turn in range(WRITES):
            key = f"{thread:02} {turn:04}"

            def work(tx: Transaction, key: str = key, *, fails: bool = turn % 10 == 3) -> str:
                tx.run(sql.put_number, key=key, number=1)
                if fails:
                    raise Wanted
                return key

            try:
                kept.append(engine.write(work))
            except Wanted:
                continue
        return kept

    with ThreadPoolExecutor(64) as pool:
        kept = sorted(key for keys in pool.map(live, range(64)) for key in keys)

    assert len(kept) == 64 * WRITES * 9 // 10
    assert [row.key for row in engine.all(Row, sql.list)] == kept
    metrics = engine.status().metrics
    assert metrics["groups_total"] < metrics["group_size_sum"] / 4
