"""Remembering a conversation: what is new of it is recorded, and queued to be mined."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.cursor import seen
from holdfast.memories.longterm.messages import read_messages
from holdfast.memories.longterm.recording import append_to_cursor, cursor_of
from holdfast.memories.longterm.records import Recorded, Skipped, fingerprint, in_order
from holdfast.memories.longterm.remember import graves
from holdfast.memories.longterm.removal import evict_turns
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.validation import checked_thread
from holdfast.memories.longterm.write import PreparedTurn, put_turns, ready_turns

EXTRACT: Final = "extract"
"""The kind of a job that mines turns."""


def remember_conversation(
    caller: CollectionContext, messages: Iterable[object], thread_id: str | None = None
) -> Recorded:
    """Record what is new of *messages*, and queue it to be mined where somebody extracts.

    The whole list or only what is new may be given: what was recorded of the thread before is
    known again. Turns and job are one transaction.
    """
    thread = checked_thread(thread_id)
    read = read_messages(messages)
    skipped = [Skipped(index, "role") for index, turn in enumerate(read) if turn is None]
    said = [
        (index, replace(turn, thread_id=thread or turn.thread_id))
        for index, turn in enumerate(read)
        if turn is not None
    ]
    fit, unfit = ready_turns(caller, said)
    skipped += unfit

    def work(tx: Transaction) -> Recorded:
        if not fit:
            return Recorded(turns=(), skipped=_in_order(skipped))
        book = CollectionTransaction(caller, tx)
        new, passed = _new_of(book, fit)
        numbers, stored = put_turns(book, new)
        queued = bool(numbers) and caller.mines
        if queued:
            queue(book, EXTRACT, numbers)
            tx.after_commit(caller.tend)
        if stored:
            book.note("stored", {"turn": [turn.id for turn in stored]}, turns=len(stored))
        gone = evict_turns(book)
        book.close()
        return Recorded(
            turns=tuple(stored),
            skipped=_in_order([*skipped, *passed]),
            queued=queued,
            evicted=gone,
        )

    return caller.engine.write(work)


def queue(book: CollectionTransaction, kind: str, numbers: Sequence[int]) -> None:
    """Queue a job about the rows *numbers*."""
    book.tx.send(
        book.sql.queue_job,
        number=book.numbers(1)[0],
        collection=book.number,
        kind=kind,
        about=msgspec.json.encode(numbers).decode(),
        model=book.caller.miner,
        now=book.now,
    )


def _new_of(
    book: CollectionTransaction, turns: Sequence[PreparedTurn]
) -> tuple[list[PreparedTurn], list[Skipped]]:
    """Return which of *turns* are new to their threads; note all of them in the cursors."""
    buried = graves(book) if book.there.buried else []
    dead = {grave.fingerprint for grave in buried}
    threads: dict[str, list[tuple[PreparedTurn, bytes]]] = {}
    for each in turns:
        turn = each.turn
        print_of = fingerprint(book.secret, turn.role, turn.speaker, turn.text)
        threads.setdefault(turn.thread_id or "", []).append((each, print_of))
    new: list[PreparedTurn] = []
    passed: list[Skipped] = []
    for thread, told in threads.items():
        prints = [print_of for _, print_of in told]
        first = seen(in_order(cursor_of(book, thread)), prints)
        passed += [Skipped(each.index, "seen") for each, _ in told[:first]]
        for each, print_of in told[first:]:
            if print_of in dead:
                passed.append(Skipped(each.index, "forgotten"))
            else:
                new.append(each)
        if prints[first:]:
            append_to_cursor(book, thread, b"".join(prints[first:]))
    return sorted(new, key=lambda each: each.index), passed


def _in_order(skipped: Iterable[Skipped]) -> tuple[Skipped, ...]:
    return tuple(sorted(skipped, key=lambda each: each.index))
