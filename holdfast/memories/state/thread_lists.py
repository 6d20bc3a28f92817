"""Threads and their turns, read page by page."""

from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import NotFound
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.memories.state import message as checks
from holdfast.memories.state.by_age import MOST_LISTED, NEWEST, PER_PAGE, by_age, no_cursor
from holdfast.memories.state.caller import ThreadsContext, queries_of
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import KINDS, Thread, ThreadMessage, ThreadTurn, TurnKind
from holdfast.memories.state.thread_ids import checked_id

TURNS_LISTED: Final = 100
PAGE_BYTES: Final = 16_777_216
"""Of the turns of a page, which ends before there are more; it has one turn in any case."""

_THREADS: Final = "threads"
_TURNS: Final = "thread_turns"


class _ThreadRow(Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    updated_at: int
    turns: int
    runs: int

    def record(self) -> Thread:
        return Thread(
            id=self.id,
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.updated_at),
            turns=self.turns,
            runs=self.runs,
        )


class _Size(Struct, frozen=True, kw_only=True):
    seq: int
    size_bytes: int


class _TurnRow(Struct, frozen=True, kw_only=True):
    seq: int
    kind: TurnKind
    id: str
    run_id: str | None
    body: str

    def record(self) -> ThreadTurn:
        body = msgspec.json.decode(self.body)
        if self.kind == "result":
            return ThreadTurn.made(InferenceResult.from_dict(body, verify=False), seq=self.seq)
        message = ThreadMessage.from_dict(body)
        return ThreadTurn.said(message, run_id=self.run_id, seq=self.seq)


def retrieve_thread(caller: ThreadsContext, thread_id: str) -> Thread:
    """Return the thread; NotFound if it is not there."""
    thread = checked_id("thread_id", thread_id)
    row = caller.engine.first(_ThreadRow, queries_of(caller).get_thread, thread=thread)
    if row is None:
        raise no_thread(thread)
    return row.record()


def list_threads(caller: ThreadsContext, limit: int | None, page: str | None) -> Page[Thread]:
    """Return a page of the threads, newest first."""
    most, stamp = checked_limit(limit, most=MOST_LISTED, default=PER_PAGE), digest(caller.workspace)
    at, after = by_age(_THREADS, stamp, page)
    rows = caller.engine.all(
        _ThreadRow, queries_of(caller).list_threads, at=at, after=after, rows=most + 1
    )
    end = rows[most - 1] if len(rows) > most else None
    return Page(
        [row.record() for row in rows[:most]],
        end and write_cursor(_THREADS, stamp, [end.created_at, end.id]),
        more=lambda page: list_threads(caller, limit, page),
    )


def list_turns(
    caller: ThreadsContext,
    thread_id: str,
    limit: int | None,
    page: str | None,
    kind: TurnKind | None = None,
) -> Page[ThreadTurn]:
    """Return a page of the thread's turns, of one *kind* or all; NotFound if it is not there."""
    most = checked_limit(limit, most=MOST_LISTED, default=TURNS_LISTED)
    thread = checked_id("thread_id", thread_id)
    stamp = digest(caller.workspace, thread, checked_kind(kind))
    after = 0 if page is None else _seq_in(read_cursor(_TURNS, stamp, page)[0])
    asked: dict[str, object] = {"thread": thread, "after": after, "kind": kind or ""}

    def work(reader: Reader) -> tuple[list[_TurnRow], int | None]:
        sql = queries_of(caller)
        found = reader.all(_Size, sql.sizes_of_turns, rows=most + 1, **asked)
        if not found:
            if reader.first(_ThreadRow, sql.get_thread, thread=thread) is None:
                raise no_thread(thread)
            return [], None
        shown = found[: _fitting(found[:most])]
        rows = reader.all(_TurnRow, sql.list_turns, last=shown[-1].seq, **asked)
        return rows, shown[-1].seq if len(found) > len(shown) else None

    rows, last = caller.engine.read(work)
    return Page(
        [row.record() for row in rows],
        None if last is None else write_cursor(_TURNS, stamp, [last]),
        more=lambda page: list_turns(caller, thread_id, limit, page, kind),
    )


def results_of(caller: ThreadsContext, thread_id: str) -> list[InferenceResult]:
    """Return the thread's results, oldest first; NotFound if it is not there."""
    page = list_turns(caller, thread_id, MOST_LISTED, None, "result")
    return [turn.result for turn in page.all() if turn.result is not None]


def checked_kind(given: TurnKind | None) -> TurnKind | None:
    """Return *given* if it is None or a kind of turns; else InvalidInput."""
    checks.one_of("kind", given, (*KINDS, None))
    return given


def no_thread(thread: str) -> NotFound:
    """Return the error of a thread that is not there."""
    return NotFound("thread", thread, next="Check the id, or list the threads.")


def _fitting(sizes: list[_Size]) -> int:
    """Return how many of the turns a page has room for: one at least."""
    total = 0
    for at, each in enumerate(sizes):
        total += each.size_bytes
        if total > PAGE_BYTES and at:
            return at
    return len(sizes)


def _seq_in(key: Key) -> int:
    match key:
        case [int(seq)] if 0 <= seq <= NEWEST:
            return seq
        case _:
            raise no_cursor()
