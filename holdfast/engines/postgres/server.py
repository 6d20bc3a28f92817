"""PostgreSQL target URLs, and the state of one engine on a server.

After a fork the child starts with new connections and never touches the inherited ones: closing
one there would end the parent's.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from math import inf
from types import SimpleNamespace
from typing import Any, get_args
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engines.base import EngineMetrics, Inside
from holdfast.engines.postgres.faults import Again
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
    if "," in hosts:
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


_living: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()
_inherited: list[object] = []


class ServerFacts(Struct, frozen=True, kw_only=True):
    """Facts about the server, read by `open`."""

    version: int
    schema: int
    as_app: bool
    durability: str
    started: int


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
        self.erasure = Erasure()
        self._send: Callable[[list[str]], None] = lambda _: None
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self.inside: dict[int, Inside] = {}
        self.pool = Pool(self._wire, most=self.target.most, target=self.target.shown)
        self.pool.reconnected = self._reconnected
        self.lane = Lane(self.target.most)
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

    def _wire(self) -> Wire:
        return Wire(self.connect(), prepare=self.target.prepare)

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
