"""Concurrent clients see each key as one register, also when clients and servers are killed."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from multiprocessing import Pipe
from pathlib import Path
from threading import Condition, Thread
from typing import Self, TypeVar

import pytest
from processes import begun
from served import Served, served
from torture.counts import counted
from torture.histories import (
    Act,
    Client,
    Event,
    Register,
    Span,
    StateRegister,
    act,
    events_of,
    linearizable,
    registers_of,
    spans_of,
)

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.state import NetworkState
from holdfast.testing.serving import new_workspace

T = TypeVar("T")
SECONDS = int(os.environ.get("HOLDFAST_TORTURE_SECONDS", "0"))
"""How long each kind of clients acts; always one round."""
CLIENTS, ACTS, KEYS = 6, 40, 2
FIRST = "first"
FOREVER = float("inf")


class History:
    """The events of all clients of a round, in the order that they were emitted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = Condition()

    def emit(self, event: Event) -> None:
        """Add an event."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, events: int) -> None:
        """Wait until there are as many events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= events, 60)


def new_keys(hf: Holdfast) -> list[str]:
    """Return keys that no other round used: entries, and memories, which exist already."""
    store = hf.memory_stores.create(name="registers").id
    memories = hf.memory_stores.memories
    made = [memories.create(store, path=f"/{each}", content=FIRST).id for each in range(KEYS)]
    entries = [f"{new_workspace()}_{each}" for each in range(KEYS)]
    return [*entries, *(f"{store} {each}" for each in made)]


def clients_of(handles: Sequence[Holdfast], history: History) -> list[Client]:
    """Return clients of new keys, that take *handles* in turn."""
    keys = new_keys(handles[0])
    return [
        Client(f"c{each}", registers_of(handles[each % len(handles)], keys), history.emit)
        for each in range(CLIENTS)
    ]


def run(clients: Iterable[Client], meanwhile: Callable[[], T]) -> T:
    """Let all *clients* act at the same time; return what *meanwhile* does."""
    threads = [Thread(target=each.run, args=(range(ACTS),)) for each in clients]
    for thread in threads:
        thread.start()
    try:
        return meanwhile()
    finally:
        for thread in threads:
            thread.join()


class Judge:
    """Checks the history of each round, and counts its acts."""

    def __init__(self) -> None:
        self.acts = 0

    def check(self, events: Iterable[Event]) -> int:
        """Check a history, key by key; return how many acts it has."""
        by_key = spans_of(events)
        for key, spans in by_key.items():
            first = FIRST if " " in key else None
            assert linearizable(spans, first), f"{key}: {sorted(spans)}"
        acts = sum(map(len, by_key.values()))
        self.acts += acts
        return acts


@pytest.fixture
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    counted("operations judged linearizable", judge.acts)


def rounds() -> Iterator[int]:
    """Yield numbers of rounds: one, and more until the seconds are over."""
    until = time.monotonic() + SECONDS
    for number in count():
        if number and time.monotonic() >= until:
            return
        yield number


WRONG: dict[str, list[Span]] = {
    "a write that was lost": [
        Span(0, 1, Act("write", "a")),
        Span(2, 3, Act("read", None)),
    ],
    "an old value": [
        Span(0, 1, Act("write", "a")),
        Span(2, 3, Act("write", "b")),
        Span(4, 5, Act("read", "a")),
    ],
    "a value that was seen and then was not": [
        Span(0, 9, Act("write", "a")),
        Span(1, 2, Act("read", "a")),
        Span(3, 4, Act("read", None)),
    ],
    "two swaps of one value": [
        Span(0, 1, Act("write", "a")),
        Span(2, 5, Act("swap", "b", "a")),
        Span(2, 5, Act("swap", "c", "a")),
    ],
    "a swap that failed though nothing changed": [
        Span(0, 1, Act("write", "a")),
        Span(2, 3, Act("swap", "b", "a", done=False)),
    ],
    "a refused swap that was done": [
        Span(0, 1, Act("write", "a")),
        Span(2, 3, Act("swap", "b", "c", done=False)),
        Span(4, 5, Act("read", "b")),
    ],
    "an act done before it began": [
        Span(0, 1, Act("read", "a")),
        Span(2, FOREVER, Act("write", "a", known=False)),
    ],
    "an unknown act done twice": [
        Span(0, FOREVER, Act("write", "a", known=False)),
        Span(1, 2, Act("read", "a")),
        Span(3, 4, Act("write", "b")),
        Span(5, 6, Act("read", "a")),
    ],
    "a deleted value": [
        Span(0, 1, Act("write", "a")),
        Span(2, 3, Act("delete")),
        Span(4, 5, Act("read", "a")),
    ],
}
RIGHT: dict[str, list[Span]] = {
    "no act": [],
    "overlapping acts in another order": [
        Span(0, 9, Act("write", "a")),
        Span(0, 9, Act("write", "b")),
        Span(1, 2, Act("read", "b")),
        Span(3, 4, Act("read", "a")),
    ],
    "one of two swaps": [
        Span(0, 1, Act("write", "a")),
        Span(2, 5, Act("swap", "b", "a")),
        Span(2, 5, Act("swap", "c", "a", done=False)),
        Span(6, 7, Act("read", "b")),
    ],
    "an unknown act done late": [
        Span(0, FOREVER, Act("write", "a", known=False)),
        Span(1, 2, Act("read", None)),
        Span(3, 4, Act("read", "a")),
    ],
    "an unknown act that was not done": [
        Span(0, 1, Act("write", "a")),
        Span(2, FOREVER, Act("delete", known=False)),
        Span(3, 4, Act("read", "a")),
    ],
    "a swap again, as a retry does": [
        Span(0, 1, Act("write", "b")),
        Span(2, 3, Act("swap", "b", "a")),
    ],
}


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_a_wrong_history_is_refused(history: list[Span]) -> None:
    assert not linearizable(history)


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_a_right_history_is_accepted(history: list[Span]) -> None:
    assert linearizable(history)


class ForgetfulRegister(StateRegister):
    """A register that acknowledges every seventh write without doing it."""

    writes = 0

    def write(self, value: str) -> object:
        self.writes += 1
        return super().write(value) if self.writes % 7 else None


class BlindRegister(StateRegister):
    """A register that does not check the precondition of a swap."""

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        del read
        return self.write(value)


class StaleRegister(StateRegister):
    """A register that reads from a cache which only swaps invalidate."""

    cache: tuple[str | None, int] | None = None

    def read(self) -> tuple[str | None, int]:
        self.cache = self.cache or super().read()
        return self.cache

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        self.cache = None
        return super().swap(read, value)


@pytest.mark.parametrize("sabotaged", [ForgetfulRegister, BlindRegister, StaleRegister])
def test_a_client_of_a_sabotaged_register_is_refused(sabotaged: type[StateRegister]) -> None:
    history, register = History(), sabotaged(NetworkState(), "key")

    Client("one", {"key": register}, history.emit).run(range(500))

    assert not linearizable(spans_of(history.events)["key"])


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_threads_of_a_network_see_each_value_as_one_register(judge: Judge) -> None:
    for _ in rounds():
        state, history = NetworkState(), History()
        registers: dict[str, Register] = {
            f"key_{number}": StateRegister(state, f"key_{number}") for number in range(KEYS)
        }

        run([Client(f"c{each}", registers, history.emit) for each in range(CLIENTS)], lambda: None)

        assert judge.check(history.events) == CLIENTS * ACTS


@pytest.mark.timeout(120 + 2 * SECONDS)
def test_threads_of_the_library_see_each_key_as_one_register(
    sqlite_file: Path, judge: Judge
) -> None:
    with holdfast.open(sqlite_file) as one, holdfast.open(sqlite_file) as two:
        for _ in rounds():
            history = History()

            run(clients_of([one, two], history), lambda: None)

            assert judge.check(history.events) == CLIENTS * ACTS


class Clients:
    """A process of clients; a context manager."""

    def __init__(self, *arguments: object) -> None:
        ours, theirs = Pipe(duplex=False)
        self._said, self._process = ours, begun(act, *arguments, theirs)
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(60)
        self._said.close()

    def stopped_after(self, events: int) -> list[bytes]:
        """Kill it once it wrote *events* events; return all its lines."""
        with os.fdopen(os.dup(self._said.fileno()), "rb") as said:
            lines = [said.readline() for _ in range(events)]
            self._process.kill()
            return lines + said.readlines()


@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("target", ["sqlite_file", "fresh_postgres_url"])
def test_killed_clients_leave_each_key_one_register(
    request: pytest.FixtureRequest, judge: Judge, target: str
) -> None:
    database, workspace = str(request.getfixturevalue(target)), new_workspace()

    with holdfast.open(database, workspace=workspace) as hf:
        for _ in rounds():
            keys, lines, history = new_keys(hf), list[bytes](), History()
            with ExitStack() as stack:
                processes = [
                    stack.enter_context(Clients(database, workspace, name, keys))
                    for name in ("one", "two")
                ]
                for process in processes:
                    lines += process.stopped_after(200)
            Client("last", registers_of(hf, keys), history.emit).run(range(ACTS))

            assert judge.check([*events_of(lines), *history.events]) > ACTS


@pytest.mark.timeout(120 + 2 * SECONDS)
@pytest.mark.parametrize("target", ["sqlite_file", "fresh_postgres_url"])
def test_two_servers_show_each_key_as_one_register_while_one_is_killed(
    request: pytest.FixtureRequest, judge: Judge, target: str
) -> None:
    database = str(request.getfixturevalue(target))

    with ExitStack() as stack:
        kept, served_once = (stack.enter_context(served(database)) for _ in range(2))
        handles = [stack.enter_context(holdfast.open(each.url)) for each in (kept, served_once)]
        for _ in rounds():
            history = History()

            def replace(history: History = history, killed: Served = served_once) -> Served:
                history.wait_for(CLIENTS * ACTS // 2)
                killed.kill()
                return stack.enter_context(served(database, port=killed.port))

            clients = clients_of(handles, history)
            served_once = run(clients, replace)
            last = registers_of(handles[1], clients[0].registers)
            Client("last", last, history.emit).run(range(ACTS))

            assert judge.check(history.events) > ACTS
