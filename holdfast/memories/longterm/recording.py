"""Recording what was said, whole or not at all."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import HASH_BYTES, Recorded, Turn, fingerprint
from holdfast.memories.longterm.removal import evict_turns
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.validation import checked_thread, checked_turns
from holdfast.memories.longterm.write import PreparedTurn, put_turns, ready_turns

CHUNK: Final = 256
"""Fingerprints that stand in one row of a cursor."""


class CursorChunk(Struct, frozen=True):
    """A part of a thread's cursor."""

    chunk: int
    fingerprints: bytes


def record(
    caller: CollectionContext, turns: Iterable[Turn], *, thread_id: str | None = None
) -> Recorded:
    """Store *turns*, those without a thread of their own in *thread_id*; mine nothing."""
    thread = checked_thread(thread_id)
    asked = [_in_thread(turn, thread) for turn in checked_turns(turns)]
    fit, skipped = ready_turns(caller, list(enumerate(asked)))

    def work(tx: Transaction) -> Recorded:
        if not fit:
            return Recorded(turns=(), skipped=tuple(skipped))
        book = CollectionTransaction(caller, tx)
        _, stored = put_turns(book, fit)
        remember_seen(book, fit)
        book.note("stored", {"turn": [turn.id for turn in stored]}, turns=len(stored))
        gone = evict_turns(book)
        book.close()
        return Recorded(turns=tuple(stored), skipped=tuple(skipped), evicted=gone)

    return caller.engine.write(work)


def remember_seen(book: CollectionTransaction, turns: Sequence[PreparedTurn]) -> None:
    """Add *turns* to the cursors of their threads."""
    threads: dict[str, list[bytes]] = {}
    for each in turns:
        turn = each.turn
        print_of = fingerprint(book.secret, turn.role, turn.speaker, turn.text)
        threads.setdefault(turn.thread_id or "", []).append(print_of)
    for thread, prints in threads.items():
        append_to_cursor(book, thread, b"".join(prints))


def cursor_of(book: CollectionTransaction, thread: str) -> bytes:
    """Return the fingerprints of all that was recorded of *thread*, in order."""
    chunks = book.tx.all(
        CursorChunk, book.sql.cursor_chunks, collection=book.number, thread_id=thread
    )
    return b"".join(each.fingerprints for each in chunks)


def append_to_cursor(book: CollectionTransaction, thread: str, prints: bytes) -> None:
    """Add *prints*, fingerprints one after the other, to what was recorded of *thread*."""
    last = book.tx.first(CursorChunk, book.sql.last_chunk, collection=book.number, thread_id=thread)
    place, held = (0, b"") if last is None else (last.chunk, last.fingerprints)
    size = CHUNK * HASH_BYTES
    whole = held + prints
    for start in range(0, len(whole), size):
        chunk = whole[start : start + size]
        if chunk != held or start:
            book.tx.send(
                book.sql.put_chunk,
                collection=book.number,
                thread_id=thread,
                chunk=place + start // size,
                fingerprints=chunk,
            )


def _in_thread(turn: Turn, thread: str | None) -> Turn:
    return replace(turn, thread_id=thread) if turn.thread_id is None and thread else turn
