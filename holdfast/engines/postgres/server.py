"""PostgreSQL target URLs, the state of one engine on a server, vacuum.

After a fork the child starts with new connections and never touches the inherited ones: closing
one there would end the parent's.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing
from math import inf
from time import monotonic
from types import SimpleNamespace
from typing import Any, get_args
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engines.base import EngineMetrics, Inside, Scrubbed
from holdfast.engines.postgres.batches import Batches
from holdfast.engines.postgres.faults import Again, fault_of
from holdfast.engines.postgres.feed import Listener, Notifier
from holdfast.engines.postgres.pool import Lane, Pool
from holdfast.engines.postgres.protocol import Wire
from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event, EventBus, Fact
from holdfast.ground.metrics import Counter

MOST_CONNECTIONS = 16
"""Most connections of a process, unless the URL sets `pool`."""

CONNECT_TIMEOUT = 5

_LARGEST_POOL = 256
_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "holdfast",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}


class PostgresTarget(Struct, frozen=True, kw_only=True):
    """A database on one server, or on one of several redundant servers."""

    conninfo: str
    shown: str
    most: int = MOST_CONNECTIONS
    prepare: bool = True
    durability_off: bool = False
    fails_over: bool = False
    """Whether several servers are named, of which the one that accepts writes is used."""


def resolve(url: str) -> PostgresTarget:
    """Parse *url*, `postgresql://…`.

    `pool=N`, `prepare=0` and `durability=off` in the query are ours; the other parameters go to
    libpq. Raises InvalidInput, without repeating text that may contain a password.
    """
    address, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in ("pool", "prepare", "durability")}
    rest = urlencode([pair for pair in given if pair[0] not in ours], quote_via=quote)
    try:
        known = conninfo_to_dict(f"{address}?{rest}" if rest else address)
    except psycopg.Error:
        raise InvalidInput("target", "is not a PostgreSQL URL") from None
    settings = {name: str(value) for name, value in known.items() if value is not None}
    hosts = settings.get("host", "")
    if several := "," in hosts:
        settings.setdefault("target_session_attrs", "read-write")
    user = f"{settings['user']}@" if settings.get("user") else ""
    port = f":{settings['port']}" if settings.get("port") else ""
    host = settings.get("host", "")
    return PostgresTarget(
        conninfo=make_conninfo("", **{**_DEFAULTS, **settings}),
        shown=f"postgresql://{user}{host}{port}/{settings.get('dbname', '')}",
        most=_number(ours.get("pool")),
        prepare=_choice(ours, "prepare", {"1": True, "0": False}, default=True),
        durability_off=_choice(ours, "durability", {"on": False, "off": True}, default=False),
        fails_over=several and settings["target_session_attrs"] in ("read-write", "primary"),
    )


def _number(given: str | None) -> int:
    if given is None:
        return MOST_CONNECTIONS
    if given.isascii() and given.isdigit() and 1 <= int(given) <= _LARGEST_POOL:
        return int(given)
    raise InvalidInput(
        "target", f"pool must be 1 to {_LARGEST_POOL}", limit=_LARGEST_POOL, given=given
    )


def _choice(
    given: Mapping[str, str], name: str, choices: Mapping[str, bool], *, default: bool
) -> bool:
    if name not in given:
        return default
    if given[name] not in choices:
        raise InvalidInput("target", f"{name} must be {' or '.join(choices)}", given=given[name])
    return choices[given[name]]


_log = logging.getLogger(__name__)
_living: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()
_inherited: list[object] = []


class ServerFacts(Struct, frozen=True, kw_only=True):
    """Facts about the server, read by `open`."""

    version: int
    schema: int
    as_app: bool
    durability: str


class Erasure:
    """State of background scrubbing: pending, number of requests, due time.

    `lock` guards the others. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self.done_at = -inf
        self.begin_anew()

    def begin_anew(self) -> None:
        """Reset to nothing pending and no thread."""
        self.lock = threading.Lock()
        self.pending, self.requests, self.due_at = False, 0, inf


class PostgresServer:
    """State that all scoped views of one engine share."""

    def __init__(
        self, target: PostgresTarget, found: ServerFacts, *, clock: Clock, events: EventBus
    ) -> None:
        self.target, self.found, self.clock, self.events = target, found, clock, events
        self.metrics = EngineMetrics(retries=get_args(Again))
        self.statements = Counter("statements", "Statements run for memories.", {})
        self.round_trips = Counter("round_trips", "Round trips of memories.", {})
        self.closed = False
        self.prepare = target.prepare
        self._address = ""
        self.erasure = Erasure()
        self._send: Callable[[list[str]], None] = lambda _: None
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self.inside: dict[int, Inside] = {}
        self.pool = Pool(self._wire, most=self.target.most, target=self.target.shown)
        self.pool.reconnected = self._reconnected
        self.lane = Lane(self.target.most)
        self.batches = Batches()
        self.listener = Listener(self.connect)
        self.notifier = Notifier(self._notify)
        self.upkeep = threading.Lock()
        self.erasure.begin_anew()
        self._end = weakref.finalize(
            self, _close, self.lane, self.notifier, self.listener, self.pool
        )

    def notifies_by(self, send: Callable[[list[str]], None]) -> None:
        """Use *send* to notify other processes."""
        self._send = send

    def connect(self) -> "psycopg.Connection[Any]":
        """Return a new connection as the login, outside the pool."""
        return psycopg.connect(self.target.conninfo, autocommit=True)

    def publish(self, type: str, **data: Fact) -> None:
        """Publish an event about the engine itself."""
        if self.events.heard:
            at = self.clock.now()
            self.events.publish(Event(type=f"engine.{type}", at=at, workspace="*", data=data))

    def close(self, timeout: float) -> None:
        """Finish pending writes within *timeout* seconds, then close all; once."""
        if self._end.detach() is not None:
            self.closed = True
            _close(self.lane, self.notifier, self.listener, self.pool, timeout=timeout)
            self.publish("closed")

    def begin_anew(self) -> None:
        """Abandon all connections to the parent process, and start with new ones."""
        ended = self._end.detach() is None
        _inherited.append(SimpleNamespace(**vars(self)))
        self._begin()
        if ended:
            self.close(0.0)

    def stop_preparing(self) -> None:
        """Prepare no more statements: a pooler in transaction mode drops them."""
        self.pool.stop_preparing()
        if self.prepare:
            self.prepare = False
            _log.warning(
                "A pooler before %s drops prepared statements, so they are no longer used;"
                " put prepare=0 into the URL.",
                self.target.shown,
            )

    def _wire(self) -> Wire:
        connection = self.connect()
        former, self._address = self._address, f"{connection.info.host}:{connection.info.port}"
        if self.target.fails_over and former not in ("", self._address):
            self.publish("failed_over", server=self._address, former=former)
        return Wire(connection, prepare=self.prepare)

    def _notify(self, workspaces: list[str]) -> None:
        self._send(workspaces)

    def _reconnected(self) -> None:
        self.metrics.reconnects.add()
        self.publish("reconnected")


def _close(
    lane: Lane, notifier: Notifier, listener: Listener, pool: Pool, timeout: float = 10.0
) -> None:
    lane.close(timeout)
    notifier.close()
    listener.close()
    pool.close()


def _after_fork_in_child() -> None:
    for server in list(_living):
        server.begin_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)

BEYOND_US = ("the server's log until it is recycled", "archives", "base backups", "standbys")
"""Copies of deleted content that only the server's owner can clear."""

_EVERY, _LATER_EVERY = 0.05, 1.0
_LATER_AT_MOST_EVERY = 60.0
"""Seconds. Entries expire all the time, and a vacuum reads every index it cleans."""

_MARK = "select cast(pg_snapshot_xmax(pg_current_snapshot()) as text)"
_PINNED = """
select count(*) from pg_stat_activity
where pid <> pg_backend_pid() and datname = current_database()
    and (age(backend_xmin) > age(cast(cast(%(mark)s as xid8) as xid))
        or age(backend_xid) > age(cast(cast(%(mark)s as xid8) as xid)))
"""
_TABLES = """
select relname, pg_has_role(current_user, relowner, 'USAGE') from pg_class
where relnamespace = cast('holdfast' as regnamespace) and relkind = 'r' order by relname
"""
# Dead index entries are removed however few they are, and no table is locked for truncation.
_VACUUM = "vacuum (index_cleanup on, truncate off) {}"


def scrub(server: PostgresServer, timeout: float) -> Scrubbed:
    """Vacuum our tables; wait up to *timeout* seconds for older snapshots to end.

    After that a thread does the rest, within seconds of the last reader's end.
    """
    until = monotonic() + timeout
    if not server.upkeep.acquire(timeout=timeout):
        return Scrubbed(done=False, pending=("rows that another scrub is at",))
    try:
        with closing(_connect(server)) as connection:
            mark = _value(connection, _MARK)
            pinned = _wait(connection, mark, until)
            strange = _vacuum(connection)
    except psycopg.Error as error:
        raise fault_of(error, target=server.target.shown, name="scrub").error from error
    finally:
        server.upkeep.release()
    if pinned:
        _finish_later(server, monotonic())
    pending = (("rows that a reader still sees",) if pinned else ()) + strange
    if not pending:
        server.publish("scrubbed")
    return Scrubbed(done=not pending, pending=pending)


def scrub_later(server: PostgresServer) -> None:
    """Scrub in a thread now, or a minute after its last scrub."""
    _finish_later(server, server.erasure.done_at + _LATER_AT_MOST_EVERY)


def scrub_full(server: PostgresServer) -> Scrubbed:
    """Rewrite our tables without deleted content, and start a new log segment.

    Each table is locked while it is rewritten. `pending` names the places out of our reach.
    """
    out_of_reach: list[str] = []
    try:
        with server.upkeep, closing(_connect(server)) as connection:
            ours, strange = _tables(connection)
            for table in ours:
                connection.execute(sql.SQL("vacuum (full, analyze) {}").format(table))
            for statement in ("checkpoint", "select pg_switch_wal()"):
                try:
                    connection.execute(statement)
                except psycopg.errors.InsufficientPrivilege:
                    out_of_reach.append(f"{statement!r}, which this login may not do")
    except psycopg.Error as error:
        raise fault_of(error, target=server.target.shown, name="scrub").error from error
    server.publish("scrubbed")
    return Scrubbed(done=not strange, pending=(*strange, *out_of_reach, *BEYOND_US))


def _connect(server: PostgresServer) -> "psycopg.Connection[Any]":
    connection = server.connect()
    connection.execute("set statement_timeout = 0")
    connection.execute("set lock_timeout = '5s'")
    return connection


def _wait(connection: "psycopg.Connection[Any]", mark: object, until: float) -> bool:
    """Wait until no snapshot is older than *mark*; return whether one still is."""
    pause = threading.Event()
    while _value(connection, _PINNED, {"mark": mark}):
        if monotonic() >= until:
            return True
        pause.wait(_EVERY)
    return False


def _vacuum(connection: "psycopg.Connection[Any]") -> tuple[str, ...]:
    ours, strange = _tables(connection)
    if ours:
        connection.execute(sql.SQL(_VACUUM).format(sql.SQL(", ").join(ours)))
    return strange


def _tables(
    connection: "psycopg.Connection[Any]",
) -> tuple[list[sql.Identifier], tuple[str, ...]]:
    """Return our tables, and descriptions of those that the login may not vacuum."""
    rows = connection.execute(_TABLES).fetchall()
    ours = [sql.Identifier("holdfast", name) for name, may in rows if may]
    return ours, tuple(
        f"the table {name}, which another login owns" for name, may in rows if not may
    )


def _finish_later(server: PostgresServer, due_at: float) -> None:
    """Scrub in a thread at *due_at*, or sooner if another caller requests that."""
    erasure = server.erasure
    with erasure.lock:
        erasure.requests += 1
        erasure.due_at = min(erasure.due_at, due_at)
        if erasure.pending:
            return
        erasure.pending = True
    threading.Thread(target=_finish, args=(server,), name="holdfast-scrub", daemon=True).start()


def _finish(server: PostgresServer) -> None:
    pause, erasure = threading.Event(), server.erasure
    mark, requests = None, 0
    while not server.closed:
        if mark is None:
            if (left := erasure.due_at - monotonic()) > 0:
                pause.wait(min(left, _LATER_EVERY))
                continue
            with erasure.lock:
                requests, erasure.due_at = erasure.requests, inf
        try:
            with server.upkeep, closing(_connect(server)) as connection:
                mark = _value(connection, _MARK) if mark is None else mark
                if _wait(connection, mark, monotonic() + _LATER_EVERY):
                    continue
                _vacuum(connection)
        except psycopg.Error:
            # The server is unreachable; the scrub is retried.
            with erasure.lock:
                erasure.due_at = min(erasure.due_at, monotonic() + _LATER_EVERY)
            pause.wait(_LATER_EVERY)
            continue
        mark = None
        with erasure.lock:
            erasure.done_at = monotonic()
            erasure.pending = erasure.requests != requests
        if not erasure.pending:
            server.publish("scrubbed")
            return


def _value(
    connection: "psycopg.Connection[Any]", statement: str, params: dict[str, object] | None = None
) -> Any:
    row = connection.execute(statement.encode(), params).fetchone()
    return row[0] if row else None
