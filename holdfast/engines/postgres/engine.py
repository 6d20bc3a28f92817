"""The storage port on PostgreSQL."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from types import SimpleNamespace
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors

from holdfast.engines import queries
from holdfast.engines.base import (
    WRITES,
    BatchedWork,
    ChangeFeed,
    Dialect,
    EngineStatus,
    Make,
    Reader,
    Row,
    Scrubbed,
    Transaction,
    check_outside,
)
from holdfast.engines.migrate import AppliedMigration, Migration, known, migrate, release
from holdfast.engines.postgres.batches import PendingWrite
from holdfast.engines.postgres.faults import chained, fault_of, refused_at_connect
from holdfast.engines.postgres.feed import CHANNEL
from holdfast.engines.postgres.protocol import Lost
from holdfast.engines.postgres.retry import Attempts
from holdfast.engines.postgres.server import (
    PostgresServer,
    PostgresTarget,
    ServerFacts,
    resolve,
    scrub,
    scrub_full,
    scrub_later,
)
from holdfast.engines.postgres.session import APP_ROLE, become_app, grant, preamble
from holdfast.engines.postgres.transaction import Owner
from holdfast.engines.queries import only
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import EngineFault, InvalidInput, NotFound, Unavailable
from holdfast.ground.events import Event, EventBus
from holdfast.ground.scope import EVERYBODY, Scope

_PATIENCE = 2.0


def status_of(server: PostgresServer) -> EngineStatus:
    """Return the status of *server*, after a round trip to it."""
    reason = _fault_reason(server)
    found, pool = server.found, server.pool
    return EngineStatus(
        dialect="postgres",
        target=server.target.shown,
        ready=reason is None,
        reason=reason,
        schema=found.schema,
        details={
            "postgres": found.version,
            "synchronous_commit": found.durability,
            "runs_as": APP_ROLE if found.as_app else "login",
            "prepare": server.prepare,
            "pool": server.target.most,
        },
        metrics={
            **server.metrics.flat(),
            "queue": len(server.lane) + pool.waiting + len(server.batches),
            "readers": len(pool),
            "wal_bytes": 0,
            "pool_in_use": pool.in_use,
            "erasure_pending": int(server.erasure.pending),
        },
    )


def _fault_reason(server: PostgresServer) -> str | None:
    try:
        wire = server.pool.take(monotonic() + _PATIENCE)
    except Unavailable as error:
        return error.reason
    try:
        wire.exchange((), patience=_PATIENCE)
    except Lost:
        return "lost"
    finally:
        server.pool.give(wire)
    return None


OLDEST_VERSION = 140000
_LOCK = 0x484F4C44
"""Key of the advisory lock for migrations: `HOLD`."""

# Queried from the catalogue itself: the connection's cache still lacks a name that was created
# while it waited for the lock.
_OURS = """
select exists (
    select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'holdfast' and c.relname = 'migrations')
"""
_FOREIGN = """
select exists (
        select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'holdfast' and c.relkind in ('r', 'p', 'v', 'm', 'f'))
    and (
        select count(*) from pg_attribute a
            join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'holdfast' and c.relname = 'migrations'
            and a.attname in ('number', 'name', 'sha256', 'at', 'release')) <> 5
"""
_RECORDED = "select number, name, sha256 from holdfast.migrations order by number"
_RECORD = """
insert into holdfast.migrations (number, name, sha256, at, release)
values (%s, %s, %s, %s, %s)
"""


def open_server(
    target: PostgresTarget, *, clock: Clock, events: EventBus, migrations: bool, create: bool = True
) -> tuple[PostgresServer, list[Migration]]:
    """Connect to *target*, migrated to this release; return what was applied.

    Raises InvalidInput for another program's schema, NotFound without *create* if our schema does
    not exist, NotPermitted for a login that can bypass row-level security, TooNew, and Unavailable
    with the reason.
    """
    try:
        connection = psycopg.connect(target.conninfo, autocommit=True)
    except psycopg.Error as error:
        raise chained(refused_at_connect(error, target.shown), error) from error
    try:
        durability = _check_fit(connection, target)
        if not create and not _one(connection, _OURS):
            raise NotFound(
                "database",
                target.shown,
                next="It is there, without Holdfast's schema; only holdfast serve, mount and"
                " commands that write create that.",
            )
        as_app = become_app(connection)
        applied = _migrate(connection, clock, allowed=migrations)
        grant(connection, always=bool(applied))
        found = ServerFacts(
            version=connection.info.server_version,
            schema=max(migration.number for migration in known("postgres")),
            as_app=as_app,
            durability=durability,
        )
    except psycopg.Error as error:
        raise fault_of(error, target=target.shown, name="open").error from error
    finally:
        connection.close()
    return PostgresServer(target, found, clock=clock, events=events), applied


def _check_fit(connection: "psycopg.Connection[Any]", target: PostgresTarget) -> str:
    """Return `synchronous_commit`; raises if the server cannot keep our promises."""
    number = connection.info.server_version
    if number < OLDEST_VERSION:
        raise Unavailable(
            f"{target.shown} is PostgreSQL {number // 10000}.",
            reason="io",
            next=f"Use PostgreSQL {OLDEST_VERSION // 10000} or newer.",
        )
    if (encoding := _one(connection, "show server_encoding")) != "UTF8":
        raise Unavailable(
            f"The database is encoded as {encoding}.",
            reason="io",
            next="Create it with the encoding UTF8.",
        )
    durability = str(_one(connection, "show synchronous_commit"))
    if durability == "off" and not target.durability_off:
        raise Unavailable(
            "The server acknowledges commits before they are safe: synchronous_commit is off.",
            reason="io",
            next="Turn it on, or accept the loss with ?durability=off in the URL.",
        )
    if _one(connection, _FOREIGN):
        raise InvalidInput(
            "target",
            "has a schema named holdfast that is another program's; it was not touched",
            given=target.shown,
            next="Choose another database.",
        )
    return durability


def _migrate(
    connection: "psycopg.Connection[Any]", clock: Clock, *, allowed: bool
) -> list[Migration]:
    ground = PostgresGround(connection, clock)
    try:
        return migrate(ground, allowed=allowed)
    except errors.InsufficientPrivilege as error:
        try:
            migrate(ground, allowed=False)
        except Unavailable as refusal:
            raise chained(refusal, error) from error
        raise


class PostgresGround:
    """The schema for the migrations."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: "psycopg.Connection[Any]", clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def recorded(self) -> list[AppliedMigration]:
        """Return the applied migrations; none for a new database."""
        if not _one(self._connection, _OURS):
            return []
        rows = self._connection.execute(_RECORDED).fetchall()
        return [AppliedMigration(number=row[0], name=row[1], sha256=row[2]) for row in rows]

    @contextmanager
    def locked(self) -> Generator[None]:
        """Return a transaction that locks out all other migrations."""
        with self._connection.transaction():
            self._connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
            self._connection.execute("set local search_path = holdfast")
            yield

    def execute(self, statement: str) -> None:
        """Run one statement within `locked`."""
        self._connection.execute(statement.encode())

    def record(self, migration: Migration) -> None:
        """Record, within `locked`, that *migration* was applied."""
        at = to_microseconds(self._clock.now())
        row = (migration.number, migration.name, migration.sha256, at, release())
        self._connection.execute(_RECORD, row)

    def keep_copy(self, number: int) -> None:
        """Do nothing: the server's owner makes backups."""


def _one(connection: "psycopg.Connection[Any]", sql: str) -> Any:
    row = cast("tuple[Any, ...]", connection.execute(sql.encode()).fetchone())
    return row[0]


T = TypeVar("T")

TIMEOUT = 30.0
"""Default seconds that a write may wait."""

_NOTIFY = f"select pg_notify('{CHANNEL}', %(workspace)s)"


class PostgresEngine:
    """Storage port on a PostgreSQL database, with a pool of connections.

    Opened by `PostgresEngine.open`. Each write runs on a connection of its own. Without a scope,
    row-level security hides all rows that have an owner and refuses to write them.
    """

    dialect: Dialect = "postgres"

    def __init__(self, server: PostgresServer, scope: Scope | None = None) -> None:
        self._server, self._scope = server, scope
        self._owner: Owner = (
            {}
            if scope is None
            else {"workspace": scope.workspace, "agent": scope.agent, "user": scope.user}
        )
        self._attempts = Attempts(server, preamble(scope, as_app=server.found.as_app), self._owner)
        self.events: EventBus = server.events

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock,
        migrate: bool = True,
        create: bool = True,
        events: EventBus | None = None,
    ) -> "PostgresEngine":
        """Open an engine on *url*, `postgresql://…`, migrated to this release's schema.

        Parameters of the query: `pool=N` (connections, 16 by default), `prepare=0` for a pooler
        in transaction mode, and `durability=off` to accept a server that acknowledges commits
        before they are durable. Without *migrate*, or the privilege to, a database that lacks
        migrations is Unavailable; without *create* one without our schema is NotFound.
        Raises InvalidInput, NotPermitted, TooNew, Unavailable.
        """
        server, applied = open_server(
            resolve(url),
            clock=clock,
            events=events or EventBus(),
            migrations=migrate,
            create=create,
        )
        engine = cls(server)
        server.notifies_by(_Upkeep(server).notify)
        if applied:
            server.publish("migrated", migrations=len(applied), schema=server.found.schema)
        server.publish("opened", schema=server.found.schema, durability=server.found.durability)
        return engine

    def queries(self, package: str) -> SimpleNamespace:
        """Return the statements of *package*'s `queries.sql` in this dialect."""
        return queries.load(package, self.dialect)

    def scoped(self, scope: Scope) -> "PostgresEngine":
        """Return this engine with *scope*'s owner in every statement.

        A parameter passed explicitly to a statement overrides the scope's; row-level security
        uses the scope's.
        """
        return PostgresEngine(self._server, scope)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        return only(self._attempts.look(make, sql, params), sql)

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        found = self._attempts.look(make, sql, params)
        return found[0] if found else None

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._attempts.look(make, sql, params)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as a tuple, in column order."""
        return self._attempts.rows(sql, params)

    def read(self, work: Callable[[Reader], T]) -> T:
        """Run *work* with a reader that sees one snapshot, and return its result."""
        return self._attempts.moment(work)

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Run *work* in a transaction; return its result once the commit is durable.

        Roll back and raise if *work* raises.
        """
        if (wrap := WRITES.get()) is not None:
            work = wrap(work, self)
        deadline = _deadline(timeout)
        if not _is_batched(work):
            return self._attempts.write(work, deadline)
        check_outside(self._server.inside, write=True)
        return self._finish(self._join(work, deadline))

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Queue *work* as `write` does; cancelling the future withdraws it if it can."""
        check_outside(self._server.inside, write=True)
        future: Future[T] = Future()
        deadline = _deadline(timeout)
        if not _is_batched(work):
            self._server.lane.put(lambda: self._attempts.write(work, deadline), deadline, future)
            return future
        batches, turn = self._server.batches, Future[object]()
        pending = self._join(work, deadline, future)

        def refused(turn: "Future[object]") -> None:
            if (error := turn.exception()) is not None:
                batches.withdraw(pending, error)

        turn.add_done_callback(refused)
        try:
            self._server.lane.put(lambda: self._finish(pending), deadline, turn)
        except Unavailable as error:
            batches.withdraw(pending, error)
            raise
        return future

    def _join(
        self, work: object, deadline: float, future: "Future[Any] | None" = None
    ) -> PendingWrite:
        """Queue *work* with the others of its kin."""
        batched = cast("BatchedWork[Any, Any]", work)
        key = (self._scope, batched.kin)
        return self._server.batches.join(key, batched, deadline, future)

    def _finish(self, pending: PendingWrite) -> Any:
        """Return the value of *pending*, which this thread may do with others of its kin."""
        attempts = self._attempts

        def write_all(batch: list[PendingWrite]) -> list[Any]:
            works = [each.work for each in batch]

            def work(tx: Transaction) -> list[Any]:
                values = list(works[0].work(tx, [each.item for each in works]))
                if len(values) != len(works):
                    raise EngineFault(f"A batch of {len(works)} writes gave {len(values)} results.")
                return values

            longest = max(each.deadline for each in batch)
            return attempts.write(work, longest, writes=len(batch))

        return self._server.batches.finish(
            pending, lambda each: attempts.write(each.work, each.deadline), write_all
        )

    def feed(self, after: str | None = None) -> ChangeFeed:
        """Return the feed of changes after the cursor *after*; None: from now on.

        Raises CursorExpired if changes after the cursor were trimmed.

        A scoped engine follows its workspace's changes, an unscoped one follows all.
        """
        sql = self.queries("holdfast.engines")
        return ChangeFeed(_Upkeep(self._server), sql, after, self._scope)

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Vacuum deleted content out of tables and indexes.

        The server recycles its log itself.
        """
        return scrub(self._server, timeout)

    def scrub_later(self) -> None:
        """Scrub in a thread, at most once a minute."""
        scrub_later(self._server)

    def scrub_full(self) -> Scrubbed:
        """Scrub and rewrite the tables; `pending` names what only the server can clear."""
        return scrub_full(self._server)

    def status(self) -> EngineStatus:
        """Return the engine's status."""
        return status_of(self._server)

    @property
    def statements(self) -> int:
        """Number of statements run for memories, without internal upkeep."""
        return int(self._server.statements.value())

    @property
    def round_trips(self) -> int:
        """Number of round trips of memories to the server."""
        return int(self._server.round_trips.value())

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish pending writes within *timeout* seconds, then release all resources."""
        self._server.close(timeout)


class _Upkeep:
    """Queries of the engine itself, over all owners, and the source of its feeds."""

    # A transaction that held changes back may end without a notification.
    order, longest_wait = ("xid", "seq"), 1.0

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        opening = preamble(EVERYBODY, as_app=server.found.as_app)
        self._attempts = Attempts(server, opening, {}, counted=False)

    def notify(self, workspaces: list[str]) -> None:
        """Notify the feeds of other processes that *workspaces* changed."""
        for workspace in workspaces:
            self.look(_NOTIFY, {"workspace": workspace})

    def look(self, sql: str, params: dict[str, object]) -> list[SimpleNamespace]:
        """Return every row, of all owners."""
        return self._attempts.look(SimpleNamespace, sql, params)

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        self._server.listener.listen(wake)

    def unlisten(self, wake: threading.Event) -> None:
        """Stop setting *wake*."""
        self._server.listener.unlisten(wake)

    def delivered(self, newest: Event) -> None:
        """Record how long the newest change was under way, as the feed's lag."""
        late = (self._server.clock.now() - newest.at).total_seconds()
        self._server.metrics.feed_lag.set(max(0.0, late))


def _is_batched(work: object) -> bool:
    return isinstance(work, BatchedWork)


def _deadline(timeout: float | None) -> float:
    return monotonic() + (TIMEOUT if timeout is None else timeout)
