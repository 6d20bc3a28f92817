"""Histories of concurrent clients, and the check that each key behaved as one register.

The check is that of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memo
of Lowe ("Testing for linearizability", 2017), key by key: a history is linearizable if each of its
keys is. An act without an end may have happened at any moment after its begin, or never.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, takewhile
from multiprocessing.connection import Connection
from threading import Thread
from typing import Literal, NamedTuple, Protocol

import msgspec
from contracts.stores import still

import holdfast
from holdfast.ground.errors import PreconditionFailed, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.state import NetworkState

Kind = Literal["read", "write", "swap", "delete"]


class Event(msgspec.Struct, frozen=True):
    """The begin of an act of a client, or its end; *at* is in ns of the monotonic clock."""

    at: int
    client: str
    number: int
    key: str
    kind: Kind | None = None
    """None at an end."""
    value: str | None = None
    """What is written, or at the end of a read what was read."""
    expected: str | None = None
    """Of a swap: the value that it replaces."""
    done: bool = True
    """At an end: whether a swap found the value that it expects."""
    void: bool = False
    """At an end: the act certainly did nothing, and gave nothing."""


class Act(NamedTuple):
    """What a client did to a key; an act whose end is unknown has no result."""

    kind: Kind
    value: str | None = None
    expected: str | None = None
    done: bool = True
    known: bool = True

    def after(self, state: str | None) -> tuple[bool, str | None]:
        """Return whether the act may have had its result in *state*, and the state after it."""
        match self.kind:
            case "read":
                return not self.known or state == self.value, state
            case "write" | "delete":
                return True, self.value
            case "swap":
                # A value that is already there is no change, and never fails: a retry must not.
                fits = state is not None and state in (self.expected, self.value)
                return not self.known or fits == self.done, self.value if fits else state


class Span(NamedTuple):
    """An act from its begin to its end, infinite if unknown."""

    begin: float
    end: float
    act: Act


class _Node:
    """A begin or an end in the list of events that are not linearized yet."""

    def __init__(self, id: int, act: Act | None) -> None:
        self.id, self.act = id, act
        self.before: _Node | None = None
        self.after: _Node | None = None
        self.end: _Node | None = None

    def lift(self) -> None:
        """Take a begin and its end out of the list."""
        for node in (self, self.end):
            assert node is not None
            assert node.before is not None
            node.before.after = node.after
            if node.after is not None:
                node.after.before = node.before

    def unlift(self) -> None:
        """Put a begin and its end back where they were."""
        for node in (self.end, self):
            assert node is not None
            assert node.before is not None
            node.before.after = node
            if node.after is not None:
                node.after.before = node


def _listed(spans: Sequence[Span]) -> _Node:
    """Return the head of a list of the begins and ends of *spans*, by time."""
    events: list[tuple[float, int, _Node]] = []
    for id, span in enumerate(spans):
        begin, end = _Node(id, span.act), _Node(id, None)
        begin.end = end
        # Of equal instants a begin comes first, as then the two acts may overlap.
        events += [(span.begin, 0, begin), (span.end, 1, end)]
    head = last = _Node(-1, None)
    for _, _, node in sorted(events, key=lambda event: event[:2]):
        last.after, node.before = node, last
        last = node
    return head


def linearizable(spans: Sequence[Span], first: str | None = None) -> bool:
    """Check whether a register that begins as *first* may have given this history."""
    head, state, linearized = _listed(spans), first, 0
    known = sum(1 << id for id, span in enumerate(spans) if span.act.known)
    seen: set[tuple[int, str | None]] = set()
    chosen: list[tuple[_Node, str | None]] = []
    node = head.after
    while node is not None and linearized & known != known:
        if node.act is None:
            if not chosen:
                return False
            node, state = chosen.pop()
            linearized &= ~(1 << node.id)
            node.unlift()
        else:
            fits, new = node.act.after(state)
            if fits and (linearized | 1 << node.id, new) not in seen:
                chosen.append((node, state))
                state, linearized = new, linearized | 1 << node.id
                seen.add((linearized, state))
                node.lift()
                node = head
        node = node.after
    return True


def spans_of(events: Iterable[Event]) -> dict[str, list[Span]]:
    """Return the acts of *events*, by key; one that did nothing is left out."""
    begun: dict[tuple[str, int], Event] = {}
    spans: dict[str, list[Span]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.kind is None, event.at)):
        if event.kind is not None:
            begun[event.client, event.number] = event
            continue
        begin = begun.pop((event.client, event.number))
        assert begin.kind is not None
        value = event.value if begin.kind == "read" else begin.value
        act = Act(begin.kind, value, begin.expected, event.done)
        if not event.void:
            spans[begin.key].append(Span(begin.at, event.at, act))
    for begin in begun.values():
        assert begin.kind is not None
        if begin.kind != "read":
            act = Act(begin.kind, begin.value, begin.expected, known=False)
            spans[begin.key].append(Span(begin.at, float("inf"), act))
    return spans


class Register(Protocol):
    """A key that clients read and write; a value is written once only."""

    def read(self) -> tuple[str | None, int]:
        """Return the value, and what `swap` names it by."""
        ...

    def write(self, value: str) -> object:
        """Write a value, whatever is there."""
        ...

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        """Replace what was read; PreconditionFailed if another value is there."""
        ...


class Erasable(Register, Protocol):
    """A register whose value can be deleted."""

    def delete(self) -> object:
        """Delete the value, if there is one."""
        ...


class MemoryRegister:
    """A memory of a store, by its id: `STORE MEMORY`."""

    def __init__(self, hf: Holdfast, key: str) -> None:
        self._store, self._id = key.split()
        self._memories = hf.memory_stores.memories

    def read(self) -> tuple[str | None, int]:
        return self._memories.retrieve(self._id, memory_store_id=self._store).content, 0

    def write(self, value: str) -> object:
        return self._memories.update(self._id, memory_store_id=self._store, content=value)

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        condition = still(read[0] or "")
        return self._memories.update(
            self._id, memory_store_id=self._store, content=value, precondition=condition
        )


class DurableRegister:
    """An entry of durable memory, by its key."""

    def __init__(self, hf: Holdfast, key: str) -> None:
        self._durable, self._key = hf.durable("clients"), key

    def read(self) -> tuple[str | None, int]:
        entry = self._durable.get(self._key)
        return (None, 0) if entry is None else (entry.content, entry.seq)

    def write(self, value: str) -> object:
        return self._durable.set(self._key, value, category="note")

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        return self._durable.set(self._key, value, category="note", expected_seq=read[1])

    def delete(self) -> object:
        return self._durable.forget(self._key)


class StateRegister:
    """A value of a network's state, by its key."""

    def __init__(self, state: NetworkState, key: str) -> None:
        self._values, self._key = state.kv, key

    def read(self) -> tuple[str | None, int]:
        info = self._values.info(self._key)
        return (None, 0) if info is None else (str(info.value), info.version)

    def write(self, value: str) -> object:
        return self._values.set(self._key, value)

    def swap(self, read: tuple[str | None, int], value: str, /) -> object:
        return self._values.set(self._key, value, expected_version=read[1])

    def delete(self) -> object:
        return self._values.delete(self._key)


class Client:
    """Acts on registers at random, one act after the other, and emits the events."""

    def __init__(self, name: str, registers: dict[str, Register], emit: Callable[[Event], None]):
        self.name, self.registers, self.emit = name, registers, emit
        self.chance = random.Random()
        self.read: dict[str, tuple[str | None, int]] = {}

    def act(self, number: int) -> bool:
        """Do one act; return False once the client's server is lost."""
        key = self.chance.choice(list(self.registers))
        register, value = self.registers[key], f"{self.name} {number}"
        kind: Kind = self.chance.choice(("read", "read", "write", "swap", "swap", "delete"))
        erase: Callable[[], object] | None = getattr(register, "delete", None)
        read = self.read.get(key, (None, 0))
        if (kind == "swap" and read[0] is None) or (kind == "delete" and erase is None):
            kind = "read"
        expected = read[0] if kind == "swap" else None
        written = value if kind in ("write", "swap") else None
        begin = Event(time.monotonic_ns(), self.name, number, key, kind, written, expected)
        self.emit(begin)
        found, done = None, True
        try:
            if kind == "read":
                found, _ = self.read[key] = register.read()
            elif kind == "write":
                register.write(value)
            elif kind == "swap":
                register.swap(read, value)
            elif erase is not None:
                erase()
        except PreconditionFailed:
            done = False
        except Unavailable as error:
            # Without an end the outcome is unknown.
            if error.written is False:
                self.emit(Event(time.monotonic_ns(), self.name, number, key, void=True))
            return error.reason != "lost"
        self.emit(Event(time.monotonic_ns(), self.name, number, key, None, found, done=done))
        return True

    def run(self, numbers: Iterable[int]) -> None:
        """Act until the numbers end or the server is lost."""
        for _ in takewhile(self.act, numbers):
            pass


def registers_of(hf: Holdfast, keys: Iterable[str]) -> dict[str, Register]:
    """Return the registers of memory stores and of durable memory, by key."""
    return {key: (MemoryRegister if " " in key else DurableRegister)(hf, key) for key in keys}


def events_of(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of lines that a client wrote; a kill may cut the last one short."""
    for line in lines:
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Event)


def act(target: str, workspace: str, name: str, keys: Sequence[str], out: Connection) -> None:
    """Be four clients of *keys*, whose events go to *out* as lines, until the process is killed."""
    hf = holdfast.open(target, workspace=workspace)

    def emit(event: Event) -> None:
        os.write(out.fileno(), msgspec.json.encode(event) + b"\n")

    for each in range(4):
        client = Client(f"{name}.{each}", registers_of(hf, keys), emit)
        Thread(target=client.run, args=(count(),), daemon=False).start()
