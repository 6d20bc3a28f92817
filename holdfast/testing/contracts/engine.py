"""Contract of an engine: statements, transactions, order, the change feed."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace as Row
from typing import NoReturn

import pytest

from holdfast.engines.async_writes import awaited
from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.errors import EngineFault, InvalidInput, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor, Scope

SCRATCH = "holdfast.testing.contracts.scratch"


class Wanted(Exception):
    """Raised by a write to see that it comes back as it is."""


def make_scratch(engine: Engine) -> None:
    """Make the table that the contract plays with."""
    sql = engine.queries(SCRATCH)
    engine.write(lambda tx: tx.run(sql.create_scratch))


def happened(type: str = "store.created", *, workspace: str = "default") -> Event:
    """Return an event to be noted."""
    return Event(
        type=type,
        at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        workspace=workspace,
        owner="agent_7",
        actor=Actor.user("ada"),
        ids={"store": "memstore_1"},
        data={"bytes": 5, "kind": "a", "some": None, "yes": True, "share": 0.5},
    )


def putting(sql: Row, key: str, number: int) -> Callable[[Transaction], int]:
    """Return a write that sets *key* to *number* and returns its sequence number."""

    def work(tx: Transaction) -> int:
        tx.run(sql.put_number, key=key, number=number)
        return tx.seq

    return work


READS: dict[str, Callable[[Reader, Row], object]] = {
    "one": lambda reader, sql: reader.one(Row, sql.count),
    "first": lambda reader, sql: reader.first(Row, sql.list),
    "all": lambda reader, sql: reader.all(Row, sql.list),
    "rows": lambda reader, sql: reader.rows(sql.list),
}
"""Every use of a reader, by its name."""

USES: dict[str, Callable[[Transaction, Row], object]] = {
    **READS,
    "run": lambda tx, sql: tx.run(sql.put_number, key="b", number=1),
    "send": lambda tx, sql: tx.send(sql.put_number, key="b", number=1),
    "run_many": lambda tx, sql: tx.run_many(sql.put_number, numbered("b")),
    "each": lambda tx, sql: tx.each(sql.put_number, [("b", 1)]),
    "seq": lambda tx, _: tx.seq,
    "numbers": lambda tx, _: tx.numbers(1),
    "note": lambda tx, _: tx.note(happened()),
    "tell": lambda tx, _: tx.tell(happened(), [({}, {})]),
    "after_commit": lambda tx, _: tx.after_commit(lambda: None),
}
"""Every use of a transaction, by its name."""


class StatementContract:
    """Statements: values, rows, parameters, scopes, moments."""

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("number", 0),
            ("number", 2**63 - 1),
            ("number", -(2**63)),
            ("real", 0.1),
            ("text", ""),
            ("text", "naïve 🦑 \N{MUSICAL SYMBOL G CLEF} 'quoted' %s :name"),
            ("bytes", b""),
            ("bytes", b"\x00\xff text"),
            *((column, None) for column in ("number", "real", "text", "bytes")),
        ],
    )
    def test_a_value_comes_back_as_it_was(
        self, engine: Engine, sql: Row, column: str, value: object
    ) -> None:
        empty: dict[str, object] = {"number": None, "real": None, "text": None, "bytes": None}
        row = empty | {"key": "a", column: value}

        engine.write(lambda tx: tx.run(sql.put, **row))
        found = engine.one(dict[str, object], sql.get, key="a")

        assert found == row
        assert type(found[column]) is type(value)

    def test_rows_come_in_byte_order_each_made_once_from_its_columns(
        self, engine: Engine, sql: Row
    ) -> None:
        keys = ["b", "Z", "a", "ä", "_", "ab"]
        rows = [{"key": key, "number": number} for number, key in enumerate(keys)]
        engine.write(lambda tx: tx.run_many(sql.put_number, rows))

        found = engine.all(Row, sql.list)

        assert [row.key for row in found] == ["Z", "_", "a", "ab", "b", "ä"]
        assert [row.number for row in found] == [1, 4, 2, 5, 0, 3]

    def test_a_percent_sign_is_itself(self, engine: Engine, sql: Row) -> None:
        engine.write(lambda tx: tx.run(sql.put_number, key="x%y", number=2))

        found = engine.all(Row, sql.list_starting, prefix="%y")

        assert [row.key for row in found] == ["x%y"]

    def test_first_is_the_first_row_or_none(self, engine: Engine, sql: Row) -> None:
        assert engine.first(Row, sql.list) is None

        engine.write(lambda tx: tx.run_many(sql.put_number, numbered("b", "a")))

        assert engine.first(Row, sql.list) == Row(key="a", number=1)

    @pytest.mark.parametrize("keys", [(), ("a", "b")])
    def test_one_wants_exactly_one_row(
        self, engine: Engine, sql: Row, keys: tuple[str, ...]
    ) -> None:
        engine.write(lambda tx: tx.run_many(sql.put_number, numbered(*keys)))

        with pytest.raises(EngineFault) as caught:
            engine.one(Row, sql.list)

        assert caught.value.statement == "list"

    def test_parameters_beyond_those_named_are_passed_over(self, engine: Engine, sql: Row) -> None:
        assert engine.first(Row, sql.get_number, key="a", unused=1) is None

    def test_a_missing_parameter_is_a_fault_that_names_the_statement(
        self, engine: Engine, sql: Row
    ) -> None:
        with pytest.raises(EngineFault) as caught:
            engine.first(Row, sql.get_number)

        assert caught.value.statement == "get_number"
        assert caught.value.__cause__ is not None

    def test_wrong_sql_is_a_fault_that_names_the_statement(self, engine: Engine, sql: Row) -> None:
        with pytest.raises(EngineFault) as caught:
            engine.write(lambda tx: tx.run(sql.wrong))

        assert caught.value.statement == "wrong"
        assert caught.value.__cause__ is not None

    def test_an_unexpected_constraint_is_a_fault_and_undoes_the_write(
        self, engine: Engine, sql: Row
    ) -> None:
        def work(tx: Transaction) -> None:
            tx.run(sql.put_new, key="a", number=1)
            tx.run(sql.put_new, key="a", number=2)

        with pytest.raises(EngineFault):
            engine.write(work)

        assert engine.all(Row, sql.list) == []

    def test_reading_cannot_write(self, engine: Engine, sql: Row) -> None:
        with pytest.raises(EngineFault):
            engine.first(Row, sql.add, key="a")
        with pytest.raises(EngineFault):
            engine.read(lambda reader: reader.first(Row, sql.add, key="a"))

        assert engine.all(Row, sql.list) == []

    def test_a_scope_is_in_every_statement(self, engine: Engine, sql: Row) -> None:
        scoped = engine.scoped(Scope(workspace="acme", agent="agent_7"))
        query: Callable[[Reader], Row] = lambda reader: reader.one(Row, sql.owner)  # noqa: E731

        found = [scoped.one(Row, sql.owner), scoped.read(query), scoped.write(query)]

        assert found == [Row(workspace="acme", agent="agent_7", person=None)] * 3

    def test_reads_see_one_moment(self, engine: Engine, sql: Row) -> None:
        """The other write may end within the read, or have to wait for it."""
        engine.write(putting(sql, "a", 1))

        def work(reader: Reader) -> tuple[int, int]:
            before = reader.one(Row, sql.get_number, key="a").number
            other.start()
            other.join(0.2)
            return before, reader.one(Row, sql.get_number, key="a").number

        other = threading.Thread(target=lambda: engine.write(putting(sql, "a", 2)))
        seen = engine.read(work)
        other.join()

        assert seen == (1, 1)
        assert engine.one(Row, sql.get_number, key="a").number == 2


class WriteContract:
    """Writes: what comes back, what is undone, who may ask."""

    def test_a_write_returns_what_its_work_returned(self, engine: Engine) -> None:
        assert engine.write(lambda _: "done") == "done"

    def test_counts_of_changed_rows_come_back(self, engine: Engine, sql: Row) -> None:
        def work(tx: Transaction) -> list[int]:
            tx.send(sql.put_number, key="z", number=0)
            return [
                tx.run_many(sql.put_number, numbered("a", "b", "c")),
                tx.run(sql.delete, key="a"),
                tx.run(sql.delete, key="a"),
                tx.run_many(sql.put_number, []),
            ]

        assert engine.write(work) == [3, 1, 0, 0]
        assert engine.one(Row, sql.count).n == 3

    def test_a_write_reads_what_it_wrote(self, engine: Engine, sql: Row) -> None:
        def work(tx: Transaction) -> list[int]:
            return [tx.one(Row, sql.add, key="a").number for _ in range(3)]

        assert engine.write(work) == [1, 2, 3]

    def test_what_work_raises_comes_back_and_leaves_nothing(self, engine: Engine, sql: Row) -> None:
        calls: list[object] = []
        raised = Wanted()

        def work(tx: Transaction) -> NoReturn:
            tx.run(sql.put_number, key="a", number=1)
            tx.note(happened())
            tx.after_commit(lambda: calls.append("after"))
            raise raised

        engine.events.subscribe(calls.append)
        feed = engine.feed()
        with pytest.raises(Wanted) as caught:
            engine.write(work)

        assert caught.value is raised
        assert engine.all(Row, sql.list) == []
        assert (calls, feed.poll()) == ([], [])

    def test_a_write_inside_a_write_is_a_fault_at_once(self, engine: Engine, sql: Row) -> None:
        def work(tx: Transaction) -> None:
            tx.run(sql.put_number, key="a", number=1)
            engine.write(putting(sql, "b", 1))

        with pytest.raises(EngineFault, match="write inside a write"):
            engine.write(work)

        assert engine.all(Row, sql.list) == []

    @pytest.mark.parametrize("use", USES)
    def test_a_finished_transaction_refuses_every_use(
        self, engine: Engine, sql: Row, use: str
    ) -> None:
        ended = engine.write(lambda tx: tx)

        with pytest.raises(EngineFault, match="after its work ended"):
            USES[use](ended, sql)

        assert engine.all(Row, sql.list) == []

    @pytest.mark.parametrize("use", USES)
    def test_a_transaction_whose_work_raised_refuses_every_use(
        self, engine: Engine, sql: Row, use: str
    ) -> None:
        seen: list[Transaction] = []

        def work(tx: Transaction) -> NoReturn:
            seen.append(tx)
            raise Wanted

        with pytest.raises(Wanted):
            engine.write(work)
        with pytest.raises(EngineFault, match="after its work ended"):
            USES[use](seen[0], sql)

        assert engine.all(Row, sql.list) == []

    @pytest.mark.parametrize("use", USES)
    def test_a_call_after_the_commit_cannot_use_the_transaction(
        self, engine: Engine, sql: Row, use: str
    ) -> None:
        refused: list[EngineFault] = []

        def late(tx: Transaction) -> None:
            with pytest.raises(EngineFault, match="after its work ended") as caught:
                USES[use](tx, sql)
            refused.append(caught.value)

        def work(tx: Transaction) -> None:
            tx.run(sql.put_number, key="a", number=1)
            # A nested call within the work gets no second result after it.
            assert tx.seq > 0
            tx.after_commit(lambda: late(tx))

        engine.write(work)

        assert len(refused) == 1
        assert [row.key for row in engine.all(Row, sql.list)] == ["a"]

    @pytest.mark.parametrize("use", READS)
    def test_a_finished_reader_refuses_every_use(self, engine: Engine, sql: Row, use: str) -> None:
        ended = engine.read(lambda reader: reader)

        with pytest.raises(EngineFault, match="after its work ended"):
            READS[use](ended, sql)

    def test_a_submitted_write_is_a_future(self, engine: Engine, sql: Row) -> None:
        def fail(_: Transaction) -> NoReturn:
            raise Wanted

        stored = engine.submit(putting(sql, "a", 1))
        failed = engine.submit(fail)

        assert stored.result(timeout=30) > 0
        assert isinstance(failed.exception(timeout=30), Wanted)
        assert engine.one(Row, sql.count).n == 1

    def test_writes_are_awaited_on_an_event_loop(self, engine: Engine, sql: Row) -> None:
        def work(number: int) -> Callable[[Transaction], int]:
            def add(tx: Transaction) -> int:
                if number % 10 == 0:
                    raise Wanted
                return tx.one(Row, sql.add, key="a").number

            return add

        async def main() -> list[int | BaseException]:
            writes = (awaited(engine, work(number)) for number in range(50))
            return await asyncio.gather(*writes, return_exceptions=True)

        found = asyncio.run(main())

        assert sorted(n for n in found if isinstance(n, int)) == list(range(1, 46))
        assert sum(isinstance(one, Wanted) for one in found) == 5

    def test_many_threads_keep_what_did_not_raise_and_nothing_else(
        self, engine: Engine, sql: Row
    ) -> None:
        def write(number: int) -> str | None:
            def work(tx: Transaction) -> str:
                tx.run(sql.put_number, key=f"{number:04}", number=number)
                if number % 10 == 0:
                    raise Wanted
                return f"{number:04}"

            try:
                return engine.write(work)
            except Wanted:
                return None

        with ThreadPoolExecutor(16) as pool:
            returned = [key for key in pool.map(write, range(400)) if key]

        assert len(returned) == 360
        assert [row.key for row in engine.all(Row, sql.list)] == sorted(returned)

    def test_nobody_sees_half_a_write(self, engine: Engine, sql: Row) -> None:
        done = threading.Event()
        seen: set[int] = set()

        def work(tx: Transaction) -> None:
            tx.one(Row, sql.add, key="a")
            tx.one(Row, sql.add, key="a")

        def look() -> None:
            while not done.is_set():
                row = engine.first(Row, sql.get_number, key="a")
                seen.add(row.number % 2 if row else 0)

        looking = threading.Thread(target=look)
        looking.start()
        for _ in range(50):
            engine.write(work)
        done.set()
        looking.join()

        assert seen <= {0}
        assert engine.one(Row, sql.get_number, key="a").number == 100

    def test_a_closed_engine_says_so(self, engine: Engine, sql: Row) -> None:
        engine.close()
        engine.close()

        for act in (
            lambda: engine.write(putting(sql, "a", 1)),
            lambda: engine.submit(putting(sql, "a", 1)),
            lambda: engine.first(Row, sql.list),
        ):
            with pytest.raises(Unavailable) as caught:
                act()
            assert caught.value.reason == "closed"
        assert not engine.status().ready

    def test_status_is_ready_and_counts(self, engine: Engine, sql: Row) -> None:
        before = engine.status().metrics['writes_total{outcome="ok"}']
        engine.write(putting(sql, "a", 1))

        status = engine.status()

        assert (status.ready, status.reason, status.dialect) == (True, None, engine.dialect)
        assert status.schema >= 1
        assert status.metrics['writes_total{outcome="ok"}'] == before + 1


class OrderContract:
    """Order: numbers, what follows a commit, the change feed."""

    def test_numbers_rise(self, engine: Engine, sql: Row) -> None:
        numbers = [engine.write(putting(sql, "a", n)) for n in range(5)]

        assert numbers == sorted(set(numbers))

    def test_calls_after_the_commit_come_in_order_and_see_what_was_written(
        self, engine: Engine, sql: Row
    ) -> None:
        calls: list[object] = []

        def work(tx: Transaction) -> None:
            tx.after_commit(lambda: calls.append(engine.one(Row, sql.count).n))
            tx.after_commit(lambda: calls.append("then"))
            tx.run(sql.put_number, key="a", number=1)

        engine.write(work)

        assert calls == [1, "then"]

    def test_a_call_after_the_commit_that_fails_does_not_fail_the_write(
        self, engine: Engine, sql: Row
    ) -> None:
        calls: list[str] = []

        def fail() -> NoReturn:
            raise Wanted

        def work(tx: Transaction) -> str:
            tx.after_commit(fail)
            tx.after_commit(lambda: calls.append("still"))
            tx.run(sql.put_number, key="a", number=1)
            return "written"

        assert engine.write(work) == "written"
        assert calls == ["still"]

    def test_many_rows_are_given_in_the_order_of_the_parameters(
        self, engine: Engine, sql: Row
    ) -> None:
        def work(tx: Transaction) -> None:
            tx.each(sql.put, [("a", 1, 0.5, "text", b"1"), ("b", 2, None, None, None)])
            tx.each(sql.put_number, [])
            tx.each(sql.put_number, [("b", 3), ("c", 4)])

        engine.write(work)

        assert engine.one(dict[str, object], sql.get, key="a") == {
            "key": "a",
            "number": 1,
            "real": 0.5,
            "text": "text",
            "bytes": b"1",
        }
        assert [row.number for row in engine.all(Row, sql.list)] == [1, 3, 4]

    def test_events_that_differ_in_a_few_fields_are_told_together(
        self, engine: Engine, sql: Row
    ) -> None:
        received: list[Event] = []
        feed = engine.feed()
        engine.events.subscribe(received.append)
        like = happened("memory.created")

        def work(tx: Transaction) -> None:
            tx.run(sql.put_number, key="a", number=1)
            tx.note(happened("store.created"))
            tx.tell(like, [({"memory": "1"}, {"bytes": 5}), ({"memory": "2"}, {})])

        engine.write(work)

        changes = feed.poll(5)
        assert [change.type for change in changes] == ["store.created", *["memory.created"] * 2]
        assert [change.ids for change in changes[1:]] == [{"memory": "1"}, {"memory": "2"}]
        assert [change.data for change in changes[1:]] == [{"bytes": 5}, {}]
        assert {(change.at, change.actor) for change in changes} == {(like.at, like.actor)}
        assert [change.seq for change in changes] == sorted({change.seq for change in changes})
        assert received == changes
        feed.close()

    def test_what_is_noted_is_sent_after_the_commit_and_kept_in_the_feed(
        self, engine: Engine, sql: Row
    ) -> None:
        received: list[tuple[Event, int]] = []
        feed = engine.feed()
        engine.events.subscribe(
            lambda event: received.append((event, engine.one(Row, sql.count).n)),
            {"store.created", "memory.created"},
        )

        def work(tx: Transaction) -> int:
            tx.note(happened("store.created"))
            tx.run(sql.put_number, key="a", number=1)
            tx.note(happened("memory.created"))
            return tx.seq

        seq = engine.write(work)
        followed = feed.poll(5)

        assert [event for event, _ in received] == followed
        assert [count for _, count in received] == [1, 1]
        assert [event.type for event in followed] == ["store.created", "memory.created"]
        assert followed[0].seq == seq < followed[1].seq
        first = happened()
        assert (followed[0].at, followed[0].actor) == (first.at, first.actor)
        assert (followed[0].ids, followed[0].data) == (first.ids, first.data)

    def test_a_feed_goes_on_from_its_cursor_and_ends_with_nothing_new(self, engine: Engine) -> None:
        feed = engine.feed()
        for number in range(5):
            engine.write(noting(f"test.n{number}"))
        seen = feed.poll(5)

        again = engine.feed(seen[1].cursor).poll(5)

        assert [event.type for event in seen] == [f"test.n{number}" for number in range(5)]
        assert again == seen[2:]
        assert (feed.poll(), engine.feed(feed.cursor).poll()) == ([], [])

    def test_a_feed_waits_for_what_is_to_come(self, engine: Engine) -> None:
        feed = engine.feed()
        writer = threading.Thread(target=lambda: engine.write(noting("test.later")))

        writer.start()
        came = next(iter(feed))
        writer.join()

        assert came.type == "test.later"

    def test_closing_a_feed_ends_its_waiting(self, engine: Engine) -> None:
        feed = engine.feed()
        seen: list[Event] = []
        listener = threading.Thread(target=lambda: seen.extend(feed))

        listener.start()
        feed.close()
        listener.join(timeout=30)

        assert (listener.is_alive(), seen) == (False, [])

    def test_a_scoped_feed_gives_its_workspace_alone(self, engine: Engine) -> None:
        ours = Scope(workspace="ours", agent="*")
        feed = engine.scoped(ours).feed()

        engine.scoped(Scope(workspace="theirs", agent="*")).write(noting("test.a", "theirs"))
        engine.scoped(ours).write(noting("test.b", "ours"))

        assert [event.type for event in feed.poll(5)] == ["test.b"]

    @pytest.mark.parametrize("cursor", ["", "nonsense", "chg_", "chg_-1", "page_1"])
    def test_what_is_no_cursor_is_refused(self, engine: Engine, cursor: str) -> None:
        with pytest.raises(InvalidInput):
            engine.feed(cursor)

    def test_scrubbing_a_quiet_engine_is_done_at_once(self, engine: Engine) -> None:
        engine.write(noting("test.a"))

        assert engine.scrub().done


class EngineContract(StatementContract, WriteContract, OrderContract):
    """The whole contract of an engine.

    A subclass provides an `engine` fixture: open, with the scratch table.
    """

    @pytest.fixture
    def sql(self, engine: Engine) -> Row:
        """The contract's statements, as the engine spells them."""
        return engine.queries(SCRATCH)


def numbered(*keys: str) -> Iterable[dict[str, object]]:
    """Return a row for each of *keys*, numbered from 0."""
    return [{"key": key, "number": number} for number, key in enumerate(keys)]


def noting(type: str, workspace: str = "default") -> Callable[[Transaction], None]:
    """Return a write that notes one event."""
    return lambda tx: tx.note(happened(type, workspace=workspace))
