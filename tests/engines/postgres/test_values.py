"""Values there and back: what the other engine would give, and what cannot be sent."""

from types import SimpleNamespace as Row
from typing import LiteralString

import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import EngineFault


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sum(cast(n as bigint))", 6),
        ("avg(n)", 2),
        ("avg(n) / 4", 0.5),
        ("sum(n / 2.0)", 3),
        ("count(*)", 3),
        ('cast(\'{"b": 1, "a": "ä"}\' as jsonb)', '{"a": "ä", "b": 1}'),
        ("cast('[1, 2]' as json)", "[1, 2]"),
        ("bool_and(n > 0)", True),
        ("cast('18446744073709551615' as xid8)", 2**64 - 1),
        ("cast(null as text)", None),
    ],
)
def test_what_comes_back_is_what_the_other_engine_gives(
    engine: PostgresEngine, expression: LiteralString, value: object
) -> None:
    found = engine.all(Row, f"select {expression} as it from generate_series(1, 3) n")[0]

    assert found.it == value
    assert type(found.it) is type(value)


@pytest.mark.parametrize(
    ("given", "cast"),
    [(True, "boolean"), (2**31, "bigint"), (1.5, "float8"), (b"\0\xff", "bytea"), ("a", "text")],
)
def test_what_is_sent_arrives(engine: PostgresEngine, given: object, cast: LiteralString) -> None:
    found = engine.one(Row, f"select cast(%(it)s as {cast}) as it", it=given)

    assert found.it == given


def test_a_list_is_sent_as_an_array(engine: PostgresEngine) -> None:
    asked = "select n from unnest(cast(%(them)s as text[])) n order by n"

    assert [row.n for row in engine.all(Row, asked, them=["b", "a\"'", "ä"])] == ["a\"'", "b", "ä"]


@pytest.mark.parametrize("value", ["a\0b", "\ud800", object()])
def test_what_cannot_be_sent_is_a_fault_and_the_transaction_goes_on(
    engine: PostgresEngine, sql: Row, value: object
) -> None:
    def work(tx: Transaction) -> None:
        with pytest.raises(EngineFault) as caught:
            tx.run(sql.put_number, key=value, number=1)
        assert caught.value.__cause__ is not None
        tx.run(sql.put_number, key="a", number=1)

    engine.write(work)

    assert engine.one(Row, sql.count).n == 1


def test_large_statements_go_both_ways_at_once(engine: PostgresEngine, sql: Row) -> None:
    """More than the buffers between us and the server hold, in both directions."""
    rows = [{"key": f"{n:04}", "number": n, "real": None, "text": "x" * 20_000} for n in range(900)]

    changed = engine.write(
        lambda tx: tx.run_many(sql.put, [row | {"bytes": b"\0" * 20_000} for row in rows])
    )
    found = engine.all(Row, "select key, text, bytes from scratch order by key")

    assert changed == 900
    assert all(len(row.text) == len(row.bytes) == 20_000 for row in found)
