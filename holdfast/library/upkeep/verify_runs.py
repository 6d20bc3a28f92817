"""Check records of runs, and threads."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.library.upkeep.tables import Finding, in_batches, miscounted, strays
from holdfast.library.upkeep.verify_durable import (
    NameTombstone,
    NameTombstones,
    StoredTombstone,
    Tombstones,
)
from holdfast.memories.state.message import members
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ThreadMessage, ThreadTurn
from holdfast.memories.state.threads import checksum_of_turn, thread_hash


class _Run(Struct, frozen=True, kw_only=True):
    id: str
    entries: int
    bytes: int
    seq: int
    counted_entries: int
    counted_bytes: int
    last_seq: int


def check_runs(reader: Reader, sql: SimpleNamespace, counts: dict[str, int]) -> Iterator[Finding]:
    """Yield each record of a run that differs from its rows; count runs in *counts*."""
    yield from strays(reader, sql.stray_runs)
    for run in reader.all(_Run, sql.all_runs):
        counts["runs"] += 1
        if (run.entries, run.bytes) != (run.counted_entries, run.counted_bytes):
            expected = f"{run.counted_entries} entries, {run.counted_bytes} bytes"
            found = f"{run.entries} entries, {run.bytes} bytes"
            yield Finding("counters", "runs", run.id, expected, found)
        if run.last_seq > run.seq:
            yield Finding("counters", "runs", run.id, f"{run.last_seq} events", f"{run.seq} events")


ROWS_AT_ONCE: Final = 20
"""Turns read at a time: 320 MiB at most with their bodies."""

_TURNS: Final = "thread_turns"


class _Miscounted(Struct, frozen=True, kw_only=True):
    id: str
    turns: int
    counted_turns: int


class _Oldest(Struct, frozen=True, kw_only=True):
    workspace: str
    name: str
    number: int


class _Turn(Struct, frozen=True, kw_only=True):
    seq: int
    workspace: str
    id: str
    kind: str
    agent: str | None
    checksum: str
    size_bytes: int
    body: str

    def decoded(self) -> ThreadTurn:
        """Decode the turn in its body; InvalidInput if it is invalid."""
        body = json_values.read(self.body, "body")
        if self.kind == "user":
            return ThreadTurn.said(ThreadMessage.from_dict(body))
        if self.kind == "foreign":
            return ThreadTurn.from_dict({**members(body), "kind": "foreign", "id": self.id})
        return ThreadTurn.made(InferenceResult.from_dict(body, verify=False))


def check_threads(
    reader: Reader, sql: SimpleNamespace, counts: dict[str, int], *, quick: bool
) -> Iterator[Finding]:
    """Yield findings on threads, and add the turns checked to *counts*.

    *quick* leaves out the bodies of the turns.
    """
    yield from strays(reader, sql.stray_threads)
    yield from miscounted_threads(reader, sql)
    yield from _deleted(reader, sql)
    buried = Tombstones(reader.all(StoredTombstone, sql.tombstones))
    batches = in_batches(
        reader,
        _Turn,
        sql.thread_turns_after,
        {"after": "seq"},
        bodies=int(not quick),
        rows=ROWS_AT_ONCE,
    )
    for turn in batches:
        counts[_TURNS] += 1
        if turn.agent and buried.over_agent(turn.workspace, turn.agent, turn.seq):
            yield Finding("forgotten", _TURNS, turn.id, "nothing of it", "a turn")
        if not quick:
            yield from _of_body(turn)


def miscounted_threads(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each thread with a count that differs from its turns."""
    for row in reader.all(_Miscounted, sql.miscounted_threads):
        yield from miscounted("threads", row.id, row, ("turns",))


def _deleted(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each thread with a turn older than its deletion."""
    buried = NameTombstones(reader.all(NameTombstone, sql.thread_tombstones), thread_hash)
    for oldest in reader.all(_Oldest, sql.oldest_of_threads):
        tombstone = buried.over(oldest.workspace, oldest.name)
        if tombstone is not None and oldest.number < tombstone.seq:
            yield Finding(
                "forgotten",
                _TURNS,
                str(oldest.number),
                f"no turn from before {tombstone.seq}",
                "a turn",
            )


def _of_body(turn: _Turn) -> Iterator[Finding]:
    """Yield differences of *turn*'s body from its row; ids and hashes only."""
    size = len(turn.body.encode())
    if size != turn.size_bytes:
        yield _finding(turn, f"{turn.size_bytes} bytes", f"{size} bytes")
    try:
        decoded = turn.decoded()
    except InvalidInput as error:
        yield _finding(turn, f"a {turn.kind}", f"none, by its {error.field}")
        return
    if decoded.id != turn.id or (decoded.result and decoded.result.agent != turn.agent):
        yield _finding(turn, "its own id and agent", "another's")
    elif (found := checksum_of_turn(decoded)) != turn.checksum:
        yield _finding(turn, turn.checksum, found)


def _finding(turn: _Turn, expected: str, found: str) -> Finding:
    return Finding("heads", _TURNS, turn.id, expected, found)
