"""Disks as they may look after a power loss, from a recording of `recorder.c`.

A file's content is what its last sync made durable, plus any of the pieces of 512 bytes written
since: each is kept, lost, or torn. A folder's names are those of its last sync, plus any of the
later changes: a file's own sync does not make its name durable. Records with the op `A` are lines
of the workload, for example that a write was acknowledged.
"""

import os
import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PIECE = 512
"""Bytes that a disk writes in one step, or tears."""

_HEAD = struct.Struct("=c5Q")
_SOURCE = Path(__file__).with_name("recorder.c")


class Record(NamedTuple):
    """One call that changed a file or a folder, or made a change durable."""

    op: str
    inode: int
    offset: int
    path: str
    second: str
    data: bytes


def built_recorder(folder: Path) -> Path:
    """Compile the recorder into *folder*; return the library to preload."""
    library = folder / "recorder.so"
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, _SOURCE]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return library


def recorded(library: Path, root: Path, log: Path) -> dict[str, str]:
    """Return the environment of a process whose changes below *root* are recorded in *log*."""
    names = {"LD_PRELOAD": library, "RECORD_ROOT": root.resolve(), "RECORD_LOG": log}
    return dict(os.environ) | {name: str(value) for name, value in names.items()}


def append_line(log: Path, line: bytes) -> None:
    """Append a line of the workload to *log*, between the calls of recorded processes.

    One write appends it whole, without the lock of the log: a recorded call may wait for that one
    while it holds the interpreter.
    """
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, _HEAD.pack(b"A", 0, 0, 0, 0, len(line)) + line)
    finally:
        os.close(handle)


def records_of(log: Path) -> list[Record]:
    """Return the records of *log*; one that a kill cut short at the end is no effect."""
    whole, at, records = log.read_bytes(), 0, list[Record]()
    while at + _HEAD.size <= len(whole):
        op, inode, offset, first, second, length = _HEAD.unpack_from(whole, at)
        ends = [at + _HEAD.size]
        for size in (first, second, length):
            ends.append(ends[-1] + size)
        if ends[-1] > len(whole):
            break
        parts = [whole[begin:end] for begin, end in pairwise(ends)]
        path, other = os.fsdecode(parts[0]), os.fsdecode(parts[1])
        records.append(Record(op.decode(), inode, offset, path, other, parts[2]))
        at = ends[-1]
    return records


def without_syncs(records: Sequence[Record], ending: str, *, of_folders: bool) -> list[Record]:
    """Return *records* without the syncs of files, or folders, whose paths end so."""
    return [
        each
        for each in records
        if each.op != "s" or bool(each.offset) != of_folders or not each.path.endswith(ending)
    ]


@dataclass(eq=False)
class Node:
    """A file or a folder: what is durable of it, and what was done since."""

    folder: bool = False
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Record] = field(default_factory=list[Record])
    names: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    """The names that are durable in a folder."""
    changes: "list[tuple[tuple[str, Node | None], ...]]" = field(
        default_factory=list["tuple[tuple[str, Node | None], ...]"]
    )
    """The changes of names since: each is one or two names and what they stand for."""

    def sync(self) -> None:
        """Make all that was done durable."""
        for each in self.pending:
            _apply(self.durable, each)
        self.pending.clear()
        self.names = self.live()
        self.changes.clear()

    def live(self) -> "dict[str, Node]":
        """Return the names as a running process sees them."""
        return _changed(self.names, self.changes)


class Chance(NamedTuple):
    """How a power loss treats what was not durable."""

    random: random.Random
    kept: float
    """The share of pieces and names that is kept."""
    in_order: bool
    """Whether changes of names are kept in order up to one, as in a journal."""
    torn: bool
    """Whether a piece may be torn."""

    @classmethod
    def of(cls, seed: int) -> "Chance":
        """Return how the loss with the number *seed* treats them."""
        chance = random.Random(seed)
        kept = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        return cls(chance, kept, chance.random() < 0.5, chance.random() < 0.5)


class Disk:
    """A folder and all below it, record by record."""

    def __init__(self) -> None:
        self.root = Node(folder=True)
        self._nodes: dict[int, Node] = {}

    def do(self, record: Record) -> None:
        """Do what *record* says; ValueError if it cannot be replayed."""
        match record.op:
            case "c" | "m":
                node = self._nodes[record.inode] = Node(folder=record.op == "m")
                self._change(record.path, node)
            case "w" | "t" | "e":
                self._nodes[record.inode].pending.append(record)
            case "s":
                (self._at(record.path) if record.offset else self._nodes[record.inode]).sync()
            case "u":
                self._change(record.path, None)
            case "r":
                self._rename(record.path, record.second)
            case "l":
                self._change(record.second, self._at(record.path))
            case "A":
                return
            case _:
                raise ValueError(f"{record.op}: {record.second} of {record.path} has no replay")

    def after_a_loss(self, chance: Chance, target: Path) -> None:
        """Write a disk as it may look after a power loss now to the folder *target*."""
        _write_folder(self.root, chance, target)

    def _at(self, path: str) -> Node:
        node = self.root
        for name in filter(None, path.split("/")):
            node = node.live()[name]
        return node

    def _change(self, path: str, node: Node | None) -> None:
        folder, _, name = path.rpartition("/")
        self._at(folder).changes.append(((name, node),))

    def _rename(self, old: str, new: str) -> None:
        """Rename: within one folder in one step, else the new name comes first."""
        node, (folder, _, name) = self._at(old), old.rpartition("/")
        target, _, renamed = new.rpartition("/")
        if folder == target:
            self._at(folder).changes.append(((name, None), (renamed, node)))
        else:
            self._change(new, node)
            self._change(old, None)


def _changed(
    names: dict[str, Node], changes: Sequence[tuple[tuple[str, Node | None], ...]]
) -> dict[str, Node]:
    result = dict(names)
    for name, node in (each for change in changes for each in change):
        result.pop(name, None)
        if node is not None:
            result[name] = node
    return result


def _apply(content: bytearray, record: Record) -> None:
    if record.op == "w":
        _put(content, record.offset, record.data)
    elif record.op == "t":
        del content[record.offset :]
        content.extend(bytes(record.offset - len(content)))
    else:
        content.extend(bytes(max(record.offset - len(content), 0)))


def _put(content: bytearray, at: int, data: bytes) -> None:
    content.extend(bytes(max(at - len(content), 0)))
    content[at : at + len(data)] = data


def _pieces(record: Record) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a write, by the sectors of the disk, and where they begin."""
    at, end = record.offset, record.offset + len(record.data)
    while at < end:
        until = min(at - at % PIECE + PIECE, end)
        yield at, record.data[at - record.offset : until - record.offset]
        at = until


def _content(node: Node, chance: Chance) -> bytearray:
    """Return a file's content after a power loss."""
    content = bytearray(node.durable)
    for record in node.pending:
        if record.op != "w":
            if chance.random.random() < chance.kept:
                _apply(content, record)
            continue
        for at, piece in _pieces(record):
            if chance.random.random() < chance.kept:
                torn = chance.torn and chance.random.random() < 0.1
                _put(content, at, piece[: chance.random.randrange(PIECE)] if torn else piece)
    return content


def _write_folder(node: Node, chance: Chance, target: Path) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    changes = node.changes
    if chance.in_order:
        changes = changes[: round(len(changes) * chance.kept * chance.random.random() * 2)]
    else:
        changes = [each for each in changes if chance.random.random() < chance.kept]
    for name, each in _changed(node.names, changes).items():
        if each.folder:
            _write_folder(each, chance, target / name)
        elif name.endswith("-shm"):
            # Shared memory is a cache, mapped and never synced: its bytes are anything.
            (target / name).write_bytes(chance.random.randbytes(32768))
        else:
            (target / name).write_bytes(_content(each, chance))
            (target / name).chmod(0o600)
