"""From a URL to a server that is fit for us, with our schema, seen as a role that owns nothing."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, cast

import psycopg
from psycopg import errors

from holdfast.engines.base import Dialect
from holdfast.engines.migrate import AppliedMigration, Migration, known, migrate
from holdfast.engines.postgres.faults import chained, fault_of, refused_at_connect
from holdfast.engines.postgres.server import PostgresServer, ServerFacts
from holdfast.engines.postgres.session import become_app, grant
from holdfast.engines.postgres.settling import STARTED
from holdfast.engines.postgres.target import PostgresTarget
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, Unavailable
from holdfast.ground.events import EventBus

OLDEST_VERSION = 140000
_LOCK = 0x484F4C44
"""The advisory lock of migrations: `HOLD`."""

# Looked up in the catalogue itself: a name that was not there before the lock was waited for is
# still unknown to the connection's cache.
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
    """Return *target*, brought to this release's schema, and what was applied to it.

    Raises InvalidInput for a schema that is somebody else's, NotFound without *create* where
    there is no schema of ours, NotPermitted for a login that could look past row-level security,
    TooNew, and Unavailable with the reason.
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
            started=_one(connection, STARTED),
        )
    except psycopg.Error as error:
        raise fault_of(error, target=target.shown, name="open").error from error
    finally:
        connection.close()
    return PostgresServer(target, found, clock=clock, events=events), applied


def _check_fit(connection: "psycopg.Connection[Any]", target: PostgresTarget) -> str:
    """Return how durable a commit is; raises when the server cannot keep our promises."""
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
    ground = _Ground(connection, clock)
    try:
        return migrate(ground, allowed=allowed)
    except errors.InsufficientPrivilege as error:
        try:
            migrate(ground, allowed=False)
        except Unavailable as refusal:
            raise chained(refusal, error) from error
        raise


class _Ground:
    """The schema, as migrations see it."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: "psycopg.Connection[Any]", clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def recorded(self) -> list[AppliedMigration]:
        """Return the steps it has taken; none when it is new."""
        if not _one(self._connection, _OURS):
            return []
        rows = self._connection.execute(_RECORDED).fetchall()
        return [AppliedMigration(number=row[0], name=row[1], sha256=row[2]) for row in rows]

    @contextmanager
    def locked(self) -> Generator[None]:
        """Give a transaction that nobody else's migration runs beside."""
        with self._connection.transaction():
            self._connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
            self._connection.execute("set local search_path = holdfast")
            yield

    def execute(self, statement: str) -> None:
        """Run one statement within `locked`."""
        self._connection.execute(statement.encode())

    def record(self, migration: Migration) -> None:
        """Write down, within `locked`, that *migration* was applied."""
        at = to_microseconds(self._clock.now())
        row = (migration.number, migration.name, migration.sha256, at, version("holdfast"))
        self._connection.execute(_RECORD, row)

    def keep_copy(self, number: int) -> None:
        """Leave copies to who owns the server: it has backups of its own."""


def _one(connection: "psycopg.Connection[Any]", sql: str) -> Any:
    row = cast("tuple[Any, ...]", connection.execute(sql.encode()).fetchone())
    return row[0]
