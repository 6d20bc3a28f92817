"""Writes that are run again, and those of which nobody knows whether they were written."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace as Row

import psycopg
import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.engine import open_server
from holdfast.engines.postgres.pool import Pool
from holdfast.engines.postgres.protocol import PATIENCE, Answers, BoundStatement, Lost, Wire
from holdfast.engines.postgres.server import resolve
from holdfast.engines.postgres.session import COMMIT
from holdfast.ground.errors import EngineFault, Unavailable
from holdfast.ground.events import EventBus
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import happened, numbered
from holdfast.testing.fakes import FrozenClock

Opened = Callable[[str], PostgresEngine]
KILL_ME = "select pg_terminate_backend(pg_backend_pid())"


class Hanging(Wire):
    """A connection that breaks at its first commit: *after* it was done, or before it was sent."""

    after = True
    heard = True

    def exchange(
        self,
        batch: Sequence[BoundStatement],
        *,
        before_last: bool = False,
        patience: float = PATIENCE,
    ) -> Answers:
        if not batch or batch[-1] is not COMMIT:
            return super().exchange(batch, before_last=before_last, patience=patience)
        answers = super().exchange(batch if self.after else batch[:-1])
        known = answers.results[: len(batch) - 1] if self.heard else []
        cut = Answers(batch)
        cut.results = [*known, *[None] * (len(batch) - len(known))]
        self.close()
        raise Lost(cut, None)


@pytest.fixture
def breaking(
    fresh_postgres_url: str, with_scratch: Callable[[str], PostgresEngine]
) -> Iterator[Callable[[type[Wire]], PostgresEngine]]:
    """Give an engine whose first connection is of another class."""
    assert with_scratch("")
    engines: list[PostgresEngine] = []

    def open(kind: type[Wire]) -> PostgresEngine:
        target = resolve(fresh_postgres_url)
        server, _ = open_server(target, clock=FrozenClock(), events=EventBus(), migrations=True)
        kinds = iter((kind,))
        server.pool = Pool(
            lambda: next(kinds, Wire)(server.connect(), prepare=True), most=4, target=target.shown
        )
        engines.append(PostgresEngine(server, EVERYBODY))
        return engines[-1]

    yield open
    for engine in engines:
        engine.close()


def counting(sql: Row, *, noted: bool = True) -> tuple[Callable[[Transaction], int], list[int]]:
    """Return a write that adds one to "a", and how often it was run."""
    runs: list[int] = []

    def work(tx: Transaction) -> int:
        runs.append(1)
        if noted:
            tx.note(happened())
        return tx.one(Row, sql.add, key="a").number

    return work, runs


def test_a_commit_whose_answer_was_lost_is_looked_up_and_its_value_returned(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row
) -> None:
    engine = breaking(Hanging)
    work, runs = counting(sql)

    assert engine.write(work) == 1
    assert len(runs) == 1
    assert engine.one(Row, sql.get_number, key="a").number == 1


def test_a_commit_without_a_change_to_look_up_is_unknown(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row
) -> None:
    """Its transaction id proves nothing: after a crash it may be another transaction's."""
    engine = breaking(Hanging)

    with pytest.raises(Unavailable) as caught:
        engine.write(counting(sql, noted=False)[0])

    assert (caught.value.reason, caught.value.written) == ("lost", None)


def test_a_commit_that_was_rolled_back_is_run_again_though_it_noted_nothing(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row
) -> None:
    class Breaking(Hanging):
        after = False

    work, runs = counting(sql, noted=False)

    assert (breaking(Breaking).write(work), len(runs)) == (1, 2)


class Silent(Hanging):
    heard = False


@pytest.mark.parametrize("kind", [Hanging, Silent])
def test_what_was_noted_in_a_commit_that_was_looked_up_is_sent_with_its_number(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row, kind: type[Wire]
) -> None:
    engine = breaking(kind)
    feed = engine.feed()
    heard: list[object] = []
    engine.events.subscribe(heard.append)
    work, runs = counting(sql)

    def noting_twice(tx: Transaction) -> int:
        tx.note(happened("test.first"))
        return work(tx)

    assert engine.write(noting_twice) == 1
    assert len(runs) == 1
    assert heard == feed.poll(5)


def test_a_commit_that_never_happened_is_run_again(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row
) -> None:
    class Breaking(Hanging):
        after = False

    engine = breaking(Breaking)
    work, runs = counting(sql)

    assert engine.write(work) == 1
    assert len(runs) == 2
    assert engine.one(Row, sql.get_number, key="a").number == 1


def test_an_outcome_that_nobody_can_tell_is_unknown(
    breaking: Callable[[type[Wire]], PostgresEngine], sql: Row
) -> None:
    engine = breaking(Silent)

    with pytest.raises(Unavailable) as caught:
        engine.write(lambda tx: tx.send(sql.put_number, key="a", number=1))

    assert (caught.value.reason, caught.value.written) == ("lost", None)
    assert engine.status().metrics["unknown_outcomes_total"] == 1


def test_a_connection_killed_before_the_commit_is_replaced(
    engine: PostgresEngine, sql: Row, admin: psycopg.Connection
) -> None:
    admin.execute("create sequence holdfast.kills")
    admin.execute("grant usage on sequence holdfast.kills to holdfast_app")
    runs: list[int] = []

    def work(tx: Transaction) -> int:
        runs.append(1)
        number = tx.one(Row, sql.add, key="a").number
        if tx.one(Row, "select nextval('holdfast.kills') as n").n < 3:
            pid = tx.one(Row, "select pg_backend_pid() as pid").pid
            admin.execute("select pg_terminate_backend(%s)", (pid,))
            tx.first(Row, "select pg_sleep(30)")
        return number

    assert engine.write(work) == 1
    assert len(runs) == 3
    assert engine.status().metrics['retries_total{reason="lost"}'] == 2


def test_a_connection_killed_in_its_commit_is_settled(
    engine: PostgresEngine, sql: Row, admin: psycopg.Connection
) -> None:
    """The trigger runs within the commit, and ends the connection the first time."""
    for statement in (
        "create sequence holdfast.kills",
        """
        create function holdfast.kill() returns trigger language plpgsql security definer as $$
        begin
            if nextval('holdfast.kills') = 1 then
                perform pg_terminate_backend(pg_backend_pid());
                perform pg_sleep(30);
            end if;
            return null;
        end $$
        """,
        """
        create constraint trigger kill after insert on holdfast.scratch
        deferrable initially deferred for each row execute function holdfast.kill()
        """,
    ):
        admin.execute(statement.encode())
    work, runs = counting(sql)

    assert engine.write(work) == 1
    assert len(runs) == 2
    assert engine.one(Row, sql.get_number, key="a").number == 1


def test_writes_that_wait_for_each_other_are_run_again(engine: PostgresEngine, sql: Row) -> None:
    engine.write(lambda tx: tx.run_many(sql.put_number, numbered("a", "b")))
    met = threading.Barrier(2)
    first_time = {"a": True, "b": True}

    def crossing(one: str, other: str) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            tx.one(Row, sql.add, key=one)
            if first_time[one]:
                first_time[one] = False
                met.wait(60)
            return tx.one(Row, sql.add, key=other).number

        return work

    futures = [engine.submit(crossing("a", "b")), engine.submit(crossing("b", "a"))]

    assert sum(future.result(60) for future in futures) == 4
    assert engine.status().metrics['retries_total{reason="deadlock"}'] >= 1


def test_what_was_serialised_away_is_run_again_and_at_last_given_up(
    engine: PostgresEngine, admin: psycopg.Connection
) -> None:
    admin.execute("""
        create function holdfast.refuse() returns integer language plpgsql as $$
        begin raise exception 'no' using errcode = 'serialization_failure'; end $$
    """)
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        runs.append(1)
        tx.first(Row, "select holdfast.refuse() as n")

    with pytest.raises(Unavailable) as caught:
        engine.write(work)

    assert (caught.value.reason, caught.value.written, len(runs)) == ("locked", False, 5)
    assert isinstance(caught.value.__cause__, psycopg.Error)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("53100", "full"),
        ("53200", "overloaded"),
        ("58030", "io"),
        ("57014", "timeout"),
        ("25P04", "timeout"),
    ],
)
def test_what_the_server_lacks_is_said_in_our_words(
    engine: PostgresEngine, admin: psycopg.Connection, state: str, reason: str
) -> None:
    admin.execute(
        f"""
        create function holdfast.lack() returns integer language plpgsql as $$
        begin raise exception 'lacking' using errcode = '{state}'; end $$
    """.encode()
    )

    with pytest.raises(Unavailable) as caught:
        engine.write(lambda tx: tx.first(Row, "select holdfast.lack() as n"))

    assert (caught.value.reason, caught.value.written) == (reason, False)


def test_a_server_that_takes_no_writes_says_so(
    engine: PostgresEngine, sql: Row, admin: psycopg.Connection
) -> None:
    admin.execute("alter role holdfast_app set default_transaction_read_only = off")
    database = admin.info.dbname
    admin.execute(f"alter database {database} set default_transaction_read_only = on".encode())
    admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and datname = %s",
        (database,),
    )

    with pytest.raises(Unavailable) as caught:
        engine.write(lambda tx: tx.run(sql.put_number, key="a", number=1))

    assert (caught.value.reason, caught.value.written) == ("read_only", False)
    assert engine.all(Row, sql.list) == []


def test_a_statement_prepared_before_the_schema_moved_is_prepared_anew(
    engine: PostgresEngine, admin: psycopg.Connection
) -> None:
    asked = "select * from scratch"
    assert engine.all(Row, asked) == []

    admin.execute("alter table holdfast.scratch add column later integer")
    admin.execute("insert into holdfast.scratch (key, later) values ('a', 1)")

    assert engine.one(Row, asked).later == 1


def test_statements_are_no_longer_prepared_once_a_pooler_drops_them(
    engine: PostgresEngine, sql: Row, caplog: pytest.LogCaptureFixture
) -> None:
    def work(tx: Transaction) -> int:
        tx.run("deallocate all")
        return tx.one(Row, sql.add, key="a").number

    assert engine.status().details["prepare"]
    assert [engine.write(work), engine.write(work)] == [1, 2]
    assert not engine.status().details["prepare"]
    assert [record.message.count("prepare=0") for record in caplog.records] == [1]


def test_no_two_connections_prepare_statements_under_one_name(opened: Opened) -> None:
    """Behind a pooler a name of another connection would run another statement."""
    names = [
        {row.name for row in opened("").all(Row, "select name from pg_prepared_statements")}
        for _ in range(2)
    ]

    assert names[0]
    assert not names[0] & names[1]


def test_the_first_failure_of_a_trip_is_the_one_that_is_told(
    engine: PostgresEngine, sql: Row
) -> None:
    def work(tx: Transaction) -> None:
        tx.send(sql.put_new, key="a", number=1)
        tx.send(sql.put_new, key="a", number=2)
        tx.send(sql.put_new, key="b", number=3)
        tx.one(Row, sql.count)

    with pytest.raises(EngineFault) as caught:
        engine.write(work)

    assert caught.value.statement == "put_new"
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert engine.all(Row, sql.list) == []


def test_a_failure_of_what_was_sent_last_is_told_by_the_commit(
    engine: PostgresEngine, sql: Row
) -> None:
    def work(tx: Transaction) -> None:
        tx.run(sql.put_new, key="a", number=1)
        tx.send(sql.put_new, key="a", number=2)

    with pytest.raises(EngineFault) as caught:
        engine.write(work)

    assert caught.value.statement == "put_new"
    assert engine.all(Row, sql.list) == []


def test_a_failure_that_work_passes_over_undoes_the_write_all_the_same(
    engine: PostgresEngine, sql: Row
) -> None:
    def work(tx: Transaction) -> None:
        tx.run(sql.put_new, key="a", number=1)
        with pytest.raises(EngineFault):
            tx.run(sql.put_new, key="a", number=2)

    with pytest.raises(EngineFault):
        engine.write(work)

    assert engine.all(Row, sql.list) == []
