"""One PostgreSQL database as this process uses it: its connections, its threads, its counts.

After a fork the child begins without what it inherited, and keeps it untouched: closing a
connection there would end the parent's.
"""

import os
import threading
import weakref
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, Literal

import psycopg
from msgspec import Struct

from holdfast.engines.postgres.lane import Lane
from holdfast.engines.postgres.pool import Pool
from holdfast.engines.postgres.protocol import Wire
from holdfast.engines.postgres.signals import Listener, Notifier
from holdfast.engines.postgres.tally import EngineCounters
from holdfast.engines.postgres.target import PostgresTarget
from holdfast.ground.clock import Clock
from holdfast.ground.errors import EngineFault
from holdfast.ground.events import Event, EventBus, Fact

Inside = Literal["read", "write"]

_living: "weakref.WeakSet[PostgresServer]" = weakref.WeakSet()
_inherited: list[object] = []


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What `open` found out about the server."""

    version: int
    schema: int
    as_app: bool
    durability: str
    started: int


class Erasure:
    """What is still to be scrubbed in the background: whether, from when on, and asked how often.

    `lock` guards the rest. Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self.done_at = -inf
        self.begin_anew()

    def begin_anew(self) -> None:
        """Have nothing to scrub, and no thread that does."""
        self.lock = threading.Lock()
        self.pending, self.requests, self.due_at = False, 0, inf


class PostgresServer:
    """What all the faces of one engine share."""

    def __init__(
        self, target: PostgresTarget, found: ServerFacts, *, clock: Clock, events: EventBus
    ) -> None:
        self.target, self.found, self.clock, self.events = target, found, clock, events
        self.tally = EngineCounters()
        self.closed = False
        self.erasure = Erasure()
        self._send: Callable[[list[str]], None] = lambda _: None
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._inside: dict[int, Inside] = {}
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
        """Send notices to other processes with *send*."""
        self._send = send

    def connect(self) -> "psycopg.Connection[Any]":
        """Return a new connection of the login's own, outside the pool."""
        return psycopg.connect(self.target.conninfo, autocommit=True)

    def check_outside(self) -> None:
        """Raise EngineFault when this thread is inside `work` already."""
        if self._inside and (inside := self._inside.get(threading.get_ident())):
            raise EngineFault(f"An engine was called inside a {inside}; use what work was given.")

    def check_outside_write(self) -> None:
        """Raise EngineFault when this thread is inside `work` and wants to write."""
        if self._inside and (inside := self._inside.get(threading.get_ident())):
            raise EngineFault(f"write inside a {inside}")

    def enter(self, inside: Inside) -> None:
        """Say that this thread is inside `work` from now on."""
        self._inside[threading.get_ident()] = inside

    def leave(self) -> None:
        """Say that this thread is inside `work` no longer."""
        self._inside.pop(threading.get_ident(), None)

    def publish(self, type: str, **data: Fact) -> None:
        """Send an event about the engine itself."""
        if self.events.heard:
            at = self.clock.now()
            self.events.publish(Event(type=f"engine.{type}", at=at, workspace="*", data=data))

    def close(self, timeout: float) -> None:
        """Write what waits within *timeout* seconds, then close everything; once."""
        if self._end.detach() is not None:
            self.closed = True
            _close(self.lane, self.notifier, self.listener, self.pool, timeout=timeout)
            self.publish("closed")

    def begin_anew(self) -> None:
        """Leave all to the parent process, and begin without it."""
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
        self.tally.reconnected()
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
