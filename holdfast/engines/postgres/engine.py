"""The engine's face: what a memory calls, and where it leads."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from types import SimpleNamespace
from typing import LiteralString, TypeVar

from holdfast.engines import queries
from holdfast.engines.base import Dialect, EngineStatus, Make, Reader, Row, Scrubbed, Transaction
from holdfast.engines.postgres import vacuum
from holdfast.engines.postgres.feed import PostgresFeed
from holdfast.engines.postgres.opening import open_server
from holdfast.engines.postgres.preamble import preamble
from holdfast.engines.postgres.retry import Attempts
from holdfast.engines.postgres.server import PostgresServer
from holdfast.engines.postgres.signals import CHANNEL
from holdfast.engines.postgres.status import status_of
from holdfast.engines.postgres.target import resolve
from holdfast.engines.postgres.transaction import Owner
from holdfast.engines.queries import name_of
from holdfast.ground.clock import Clock
from holdfast.ground.errors import EngineFault
from holdfast.ground.events import Event, EventBus
from holdfast.ground.scope import EVERYBODY, Scope

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds that a write may wait for its turn, unless it says otherwise."""

_NOTIFY = f"select pg_notify('{CHANNEL}', %(workspace)s)"


class PostgresEngine:
    """Rows in a PostgreSQL database: a pool of connections, each write on one of its own.

    Made by `PostgresEngine.open`. Without a scope it sees and writes nothing that has an owner:
    row-level security stands between.
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
        """Return an engine on *url*, `postgresql://…`, brought to this release's schema.

        After its `?` stand `pool=N` (connections, 16 unless given), `prepare=0` for a pooler in
        transaction mode, and `durability=off` to accept a server that acknowledges commits
        before they are safe. Without *migrate*, or the right to, a database that lacks
        migrations is Unavailable; without *create* one that has no schema of ours is NotFound.
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
        """Return the statements of *package*'s `queries.sql`, as this engine spells them."""
        return queries.load(package, self.dialect)

    def scoped(self, scope: Scope) -> "PostgresEngine":
        """Return this engine with every statement carrying *scope*'s owner.

        A value that a statement is given explicitly stands before the scope's; row-level
        security goes by the scope's.
        """
        return PostgresEngine(self._server, scope)

    def one(self, make: Make[T], sql: LiteralString, /, **params: object) -> T:
        """Return the only row; another number of rows is EngineFault."""
        found = self._attempts.look(make, sql, params)
        if len(found) != 1:
            name = name_of(sql)
            raise EngineFault(f"{name!r} gave {len(found)} rows, not one.", statement=name)
        return found[0]

    def first(self, make: Make[T], sql: LiteralString, /, **params: object) -> T | None:
        """Return the first row, or None."""
        found = self._attempts.look(make, sql, params)
        return found[0] if found else None

    def all(self, make: Make[T], sql: LiteralString, /, **params: object) -> list[T]:
        """Return every row."""
        return self._attempts.look(make, sql, params)

    def rows(self, sql: LiteralString, /, **params: object) -> list[Row]:
        """Return every row as it is, its columns in their order."""
        return self._attempts.rows(sql, params)

    def read(self, work: Callable[[Reader], T]) -> T:
        """Return *work*(reader), whose statements all see one moment."""
        return self._attempts.moment(work)

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Return *work*(transaction) once it is durable; undo it and raise if it raises."""
        return self._attempts.write(work, _deadline(timeout))

    def submit(
        self, work: Callable[[Transaction], T], *, timeout: float | None = None
    ) -> "Future[T]":
        """Hand in *work* as `write` does; cancelling the future withdraws it if it can."""
        self._server.check_outside_write()
        future: Future[T] = Future()
        deadline = _deadline(timeout)
        self._server.lane.put(lambda: self._attempts.write(work, deadline), deadline, future)
        return future

    def feed(self, after: str | None = None) -> PostgresFeed:
        """Follow the changes after the cursor *after*, or from now; CursorExpired if too old.

        A scoped engine follows its workspace's changes, an unscoped one all.
        """
        named = self._scope is not None and self._scope.workspace != EVERYBODY.workspace
        workspace = self._scope.workspace if self._scope and named else None
        return PostgresFeed(_Upkeep(self._server), after, workspace)

    def scrub(self, *, timeout: float = 5.0) -> Scrubbed:
        """Take what was deleted out of tables and indexes; the server's log recycles by itself."""
        return vacuum.scrub(self._server, timeout)

    def scrub_later(self) -> None:
        """Have a thread scrub, at most once a minute."""
        vacuum.scrub_later(self._server)

    def scrub_full(self) -> Scrubbed:
        """Rewrite the tables as well; `pending` names what only the server's owner can clear."""
        return vacuum.scrub_full(self._server)

    def status(self) -> EngineStatus:
        """Say how the engine is."""
        return status_of(self._server)

    @property
    def statements(self) -> int:
        """How many statements memories had it run, its own bookkeeping apart."""
        return self._server.tally.statements

    @property
    def round_trips(self) -> int:
        """How often memories waited for the server's answer."""
        return self._server.tally.round_trips

    def close(self, *, timeout: float = 10.0) -> None:
        """Finish what waits, within *timeout* seconds, and let go of everything."""
        self._server.close(timeout)


class _Upkeep:
    """The engine's own looks, over all owners, whoever is then shown what they found."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        opening = preamble(EVERYBODY, as_app=server.found.as_app)
        self._attempts = Attempts(server, opening, {}, counted=False)

    def notify(self, workspaces: list[str]) -> None:
        """Tell the feeds of other processes that *workspaces* changed."""
        for workspace in workspaces:
            self.look(_NOTIFY, {"workspace": workspace})

    def look(self, sql: str, params: dict[str, object]) -> list[SimpleNamespace]:
        """Return every row, whosever it is."""
        return self._attempts.look(SimpleNamespace, sql, params)

    def listen(self, wake: threading.Event) -> None:
        """Set *wake* whenever something may have changed, until `unlisten`."""
        self._server.listener.listen(wake)

    def unlisten(self, wake: threading.Event) -> None:
        """Leave *wake* alone."""
        self._server.listener.unlisten(wake)

    def delivered(self, newest: Event) -> None:
        """Keep how long the newest change was under way."""
        late = (self._server.clock.now() - newest.at).total_seconds()
        self._server.tally.lag = max(0.0, late)


def _deadline(timeout: float | None) -> float:
    return monotonic() + (TIMEOUT if timeout is None else timeout)
