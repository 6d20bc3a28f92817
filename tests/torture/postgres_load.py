"""Threads that write to a PostgreSQL engine while it fails, and the check of what must be there."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from time import monotonic
from types import SimpleNamespace as Row
from types import TracebackType
from typing import LiteralString, Self

from msgspec.structs import replace

import holdfast
from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.contracts.engine import SCRATCH, happened
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.serving import new_workspace

OWN = "own"
"""A database with our schema and the table that the engine's contract plays with."""
MAKE_SCRATCH: tuple[LiteralString, ...] = (
    """
    create table holdfast.scratch (
        key text collate "C" primary key,
        number bigint,
        real double precision,
        text text collate "C",
        bytes bytea
    )
    """,
    "grant select, insert, update, delete on holdfast.scratch to holdfast_app",
)
GRACE = 5.0
"""Seconds after the end of an outage in which a call may still begin and fail."""


def make_own(server: PostgresServer, *options: str) -> None:
    """Make the database `own`; *options* are those of its creation."""
    server.execute(" ".join(("create database own template template0", *options)))
    PostgresEngine.open(server.url(OWN), clock=FrozenClock()).close()
    server.execute(*MAKE_SCRATCH, database=OWN)


def verify(url: str) -> None:
    """Check that all fits together in the database *url* but for the contract's table."""
    with holdfast.open(url) as hf:
        assert [each for each in hf.verify().findings if each.table != "scratch"] == []


@contextmanager
def opened(url: str) -> Generator[PostgresEngine]:
    """Yield an engine on *url* that sees the rows of all owners."""
    engine = PostgresEngine.open(url, clock=FrozenClock())
    try:
        yield engine.scoped(EVERYBODY)
    finally:
        engine.close()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until *condition* holds; fail after *seconds*."""
    pause, until = threading.Event(), monotonic() + seconds
    while not condition():
        assert monotonic() < until, "the condition did not come true"
        pause.wait(0.01)


class Writer(threading.Thread):
    """Writes one key after the other, and records the outcome of each.

    Each write also adds one to a key of the writer's own. One in four notes no change.
    """

    def __init__(self, engine: PostgresEngine, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.engine, self.stop = engine, stop
        self.sql = engine.queries(SCRATCH)
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self.failed: list[tuple[float, float, Unavailable]] = []
        """When each call that failed began and ended, and its error."""
        self.newest = 0.0
        """When the newest acknowledged write began."""
        self.strange: BaseException | None = None

    def run(self) -> None:
        for number in count():
            if self.stop.is_set():
                return
            self.write(f"{self.name}_{number:06}", noted=number % 4 > 0)

    def write(self, key: str, *, noted: bool) -> None:
        def work(tx: Transaction) -> None:
            tx.run(self.sql.put_new, key=key, number=int(noted))
            tx.one(Row, self.sql.add, key=self.name)
            if noted:
                # A transaction is looked up by its change, which no other one has.
                tx.note(replace(happened(), ids={"key": key}))

        began = monotonic()
        try:
            self.engine.write(work)
        except Unavailable as error:
            self.failed.append((began, monotonic(), error))
            (self.unknown if error.written is None else self.refused).append(key)
        except BaseException as error:
            self.strange = error
            self.stop.set()
            raise
        else:
            self.acknowledged.append(key)
            self.newest = began


class Load:
    """Writers that run inside `with`; the end of it checks what they wrote."""

    def __init__(self, engine: PostgresEngine, *, threads: int = 6) -> None:
        self._engine, self._stop = engine, threading.Event()
        name = new_workspace()
        self.writers = [Writer(engine, f"{name}-{each}", self._stop) for each in range(threads)]
        self._outages: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        for writer in self.writers:
            writer.start()
        self.wait(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stop.set()
        for writer in self.writers:
            writer.join()
        if error is None:
            self._check()

    @property
    def acknowledged(self) -> int:
        """How many writes returned."""
        return sum(len(writer.acknowledged) for writer in self.writers)

    @property
    def unknown(self) -> int:
        """How many writes have an unknown outcome."""
        return sum(len(writer.unknown) for writer in self.writers)

    def wait(self, writes: int) -> None:
        """Wait until as many more writes are acknowledged."""
        goal = self.acknowledged + writes
        wait_for(lambda: self._stop.is_set() or self.acknowledged >= goal)

    def outage(self, cause: Callable[[], object]) -> None:
        """Let *cause* make the server fail and come back; wait until each writer has written."""
        began = monotonic()
        cause()
        ended = monotonic()
        self._outages.append((began, ended))
        writers = self.writers
        wait_for(lambda: self._stop.is_set() or all(each.newest > ended for each in writers))

    def _check(self) -> None:
        sql = self._engine.queries(SCRATCH)
        there = {row.key: row.number for row in self._engine.all(Row, sql.list)}
        for writer in self.writers:
            assert writer.strange is None
            assert set(writer.acknowledged) <= there.keys()
            assert not set(writer.refused) & there.keys()
            written = [key for key in there if key.startswith(f"{writer.name}_")]
            assert there.get(writer.name, 0) == len(written)
            for began, ended, error in writer.failed:
                outages = self._outages
                assert any(began < end + GRACE and ended > begin for begin, end in outages), error
