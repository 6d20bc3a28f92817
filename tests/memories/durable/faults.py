"""Engines that fail on demand: at the n-th statement of a write, or at a row of some table."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from typing import Protocol

import apsw
import psycopg
from memories.durable.beneath import tables

from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.engine import open_server
from holdfast.engines.postgres.pool import Pool
from holdfast.engines.postgres.protocol import Answers, BoundStatement, Wire
from holdfast.engines.postgres.server import resolve
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.events import EventBus
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.fakes import FrozenClock

_FULL = "do $$ begin raise exception 'no space' using errcode = '53100'; end $$"
_BOOM = """
create table holdfast.boom (at text);
insert into holdfast.boom values ('');
create table holdfast.touched (at text);
create function holdfast.boom() returns trigger language plpgsql security definer as $$
declare
  boom text := (select at from holdfast.boom);
begin
  if boom = 'note' then
    insert into holdfast.touched values (lower(tg_table_name || ' ' || tg_op));
  elsif boom = lower(tg_table_name || ' ' || tg_op) then
    raise exception 'boom';
  end if;
  return case tg_op when 'DELETE' then old else new end;
end $$;
"""

Fired = list[str]
"""The statement that was made to fail, if it came to that."""

ACTS = ("insert", "update", "delete")
Touched = set[tuple[str, str]]
"""Tables, each with an act on a row of it."""


class Failing(Protocol):
    """An engine, and how to have it fail."""

    @property
    def engine(self) -> SQLiteEngine | PostgresEngine:
        """What fails."""
        ...

    def at(self, number: int) -> AbstractContextManager[Fired]:
        """Have the statement of that *number* fail, counted from the first of the next write."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...

    def touched(self) -> AbstractContextManager[Touched]:
        """Learn which acts on which tables there are within the block."""
        ...

    def on(self, table: str, act: str) -> AbstractContextManager[None]:
        """Have every *act*, an `insert`, `update` or `delete`, on *table* fail."""
        ...


class FailingSQLite:
    """Has SQLite itself answer with *code*, from `begin` to `commit`."""

    def __init__(self, engine: SQLiteEngine, code: int) -> None:
        self.engine, self._code = engine, code

    @property
    def _raw(self) -> apsw.Connection:
        return self.engine.core.writer.group.connection().raw

    def _run(self, statement: str) -> None:
        self.engine.core.writer.group.connection().do(statement)

    @contextmanager
    def at(self, number: int) -> Generator[Fired]:
        seen, writing = 0, False
        fired: Fired = []

        def trace(_: object, sql: str, __: object) -> bool:
            nonlocal seen, writing
            writing = (writing or sql == "begin immediate") and sql != "rollback"
            if writing and not fired:
                seen += 1
                if seen == number:
                    fired.append(sql)
                    raise apsw.exception_for(self._code)
            writing = writing and sql != "commit"
            return True

        self._raw.exec_trace = trace
        try:
            yield fired
        finally:
            self._raw.exec_trace = None

    def close(self) -> None:
        """Let go of the engine."""
        self.engine.close()

    @contextmanager
    def touched(self) -> Generator[Touched]:
        touched = Touched()
        self._run("create temp table touched (name text, act text)")
        every = list(product((*tables(self.engine), "changes"), ACTS))
        for table, act in every:
            self._run(
                f"create temp trigger {act}_{table} before {act} on main.{table}"
                f" begin insert into touched values ('{table}', '{act}'); end"
            )
        yield touched
        for table, act in every:
            self._run(f"drop trigger {act}_{table}")
        rows = self.engine.core.writer.group.connection().execute("select * from touched")
        touched.update((str(name), str(act)) for name, act in rows.fetchall())
        self._run("drop table touched")

    @contextmanager
    def on(self, table: str, act: str) -> Generator[None]:
        self._run(
            f"create temp trigger boom before {act} on main.{table}"
            " begin select raise(rollback, 'boom'); end"
        )
        try:
            yield
        finally:
            self._run("drop trigger if exists boom")


class _Plan:
    """At which statement the server is to fail, and what it meets there: nothing, or an error."""

    def __init__(self, lose: Callable[[int], None] | None) -> None:
        self.lose, self.number, self.seen = lose, 0, 0
        self.fired: Fired = []


class _Replacing(Wire):
    """A connection that is lost before one of its statements, or sends another in its place."""

    def __init__(self, connection: "psycopg.Connection[object]", plan: _Plan) -> None:
        super().__init__(connection, prepare=True)
        self._plan = plan

    def leave(self, last: BoundStatement) -> None:
        # The end of a read, whose answer nobody waits for: no server fails there and lives on.
        number, self._plan.number = self._plan.number, 0
        super().leave(last)
        self._plan.number = number

    def _send_one(self, answers: Answers, place: int, statement: BoundStatement) -> None:
        plan = self._plan
        plan.seen += 1
        if plan.seen == plan.number and not plan.fired:
            plan.fired.append(statement.name or statement.text.decode())
            if plan.lose is None:
                statement = BoundStatement(statement.name, _FULL.encode())
            else:
                plan.lose(self.raw.info.backend_pid)
        super()._send_one(answers, place, statement)


class FailingPostgres:
    """Has the server answer with an error, or with *lost* close the connection."""

    def __init__(self, url: str, clock: FrozenClock, *, lost: bool) -> None:
        self._owner = psycopg.connect(url, autocommit=True)
        self._plan = _Plan(self._lose if lost else None)
        target = resolve(url)
        server, _ = open_server(target, clock=clock, events=EventBus(), migrations=True)
        server.pool = Pool(
            lambda: _Replacing(server.connect(), self._plan), most=2, target=target.shown
        )
        self.engine = PostgresEngine(server, EVERYBODY)
        self._owner.execute(_BOOM.encode())
        for table in (*tables(self.engine), "changes"):
            self._owner.execute(
                f"create trigger boom before insert or update or delete on holdfast.{table}"
                " for each row execute function holdfast.boom()".encode()
            )

    def close(self) -> None:
        """Let go of the engine, and of what stands beside it."""
        self.engine.close()
        self._owner.close()

    @contextmanager
    def at(self, number: int) -> Generator[Fired]:
        plan = self._plan
        plan.number, plan.seen, plan.fired = number, 0, []
        try:
            yield plan.fired
        finally:
            plan.number = 0

    @contextmanager
    def touched(self) -> Generator[Touched]:
        touched = Touched()
        with self._booming("note"):
            yield touched
        rows = self._owner.execute("select distinct at from holdfast.touched").fetchall()
        touched.update((name, act) for name, act in (at.split() for (at,) in rows))
        self._owner.execute("truncate holdfast.touched")

    @contextmanager
    def on(self, table: str, act: str) -> Generator[None]:
        with self._booming(f"{table} {act}"):
            yield

    @contextmanager
    def _booming(self, at: str) -> Generator[None]:
        boom = "update holdfast.boom set at = %s"
        self._owner.execute(boom, [at])
        try:
            yield
        finally:
            self._owner.execute(boom, [""])

    def _lose(self, pid: int) -> None:
        self._owner.execute("select pg_terminate_backend(%s, 60000)", [pid])


def numbers_until(untouched: Callable[[int], bool], most: int = 200) -> Sequence[int]:
    """Call *untouched* with 1, 2, … until it says that the fault did not come; return those."""

    def tried() -> Iterator[int]:
        for number in range(1, most):
            if untouched(number):
                return
            yield number
        raise AssertionError(f"still failing at {most}")

    return list(tried())
