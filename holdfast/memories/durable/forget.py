"""Forgetting one key: the entry, its contents and its key in the log; a tombstone stays."""

from collections.abc import Sequence
from typing import get_args

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, RunRequired
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.records import EntryScope, key_hash
from holdfast.memories.durable.rows import SHARED, EntryLocation, EntryRow
from holdfast.memories.durable.transaction import AgentTransaction, refusals, secret_of, write
from holdfast.memories.durable.validation import checked_key


def forget(
    caller: AgentContext,
    key: str,
    scope: EntryScope | None = None,
    *,
    idempotency_key: str | None = None,
) -> bool:
    """Forget *key*, and tell whether there was anything to forget.

    From the run's and the agent's own scope; if there is nothing, from the workspace. *scope*
    picks one. When this returns True the bytes are in no file of the database, unless a reader
    pins what was before: then that is seen to once it has ended.
    """
    with refusals(caller):
        checked_key(key)
        if scope is not None and scope not in get_args(EntryScope):
            raise InvalidInput("scope", "must be agent, workspace or run", given=scope)
        if scope == "run" and caller.run is None:
            raise RunRequired
        replay = Replay.of(idempotency_key, "forget", key, scope)

    def work(tx: Transaction) -> _Done:
        book, gone = _opened(caller, tx, key, scope)
        first = None if replay is None else replay.answer(book, bool)
        if first is not None:
            return _Done(forgotten=first)
        forget_rows(book, gone)
        traces = not gone and _forget_traces(book, key, scope)
        if replay is not None:
            replay.keep(book, bool(gone))
        book.close()
        return _Done(forgotten=bool(gone), erased=bool(gone) or traces)

    done = write(caller, work)
    if done.erased:
        caller.engine.scrub()
    return done.forgotten


class _Done(Struct, frozen=True, kw_only=True):
    forgotten: bool
    erased: bool = False


def forget_rows(book: AgentTransaction, rows: Sequence[EntryRow]) -> None:
    """Take *rows* of the book away, and all that the log says of their keys; tombstones stay."""
    for row in rows:
        hashed = key_hash(secret_of(book), row.key)
        seq = book.take(row, "forget", key_hash=hashed)
        _erase(book, row.agent, row.key, hashed)
        if not row.agent and book.at(EntryLocation(book.caller.agent), row.key) is None:
            # What the agent itself had under the key before it was the workspace's.
            _erase(book, book.caller.agent, row.key, hashed)
        book.tx.send(
            book.sql.bury,
            owner=row.agent,
            run=row.run_id,
            key_hash=hashed,
            seq=seq,
            now=book.now,
            actor=book.by,
        )
        book.tx.send(book.sql.set_forgot_seq, owner=row.agent, seq=seq)
    if rows:
        book.note("forgotten", entries=len(rows))
        book.count("forgotten_total", by=len(rows))


def forget_entries_again(
    caller: AgentContext, place: EntryLocation, key: str, *, before: int
) -> None:
    """Forget what *place* has under *key* from before the number *before*, and its traces.

    For a copy that does not know that it was forgotten. Whoever calls this scrubs.
    """

    def work(tx: Transaction) -> None:
        book = AgentTransaction(caller, tx)
        book.open([key], shared=place.owner == SHARED)
        rows = tx.all(
            EntryRow, book.sql.entry_before, owner=place.owner, run=place.run, key=key, seq=before
        )
        for row in rows:
            book.pending.found(row)
        forget_rows(book, rows)
        if not rows:
            _erase(book, place.owner, key, key_hash(secret_of(book), key))
        book.close()

    caller.engine.write(work)


def _opened(
    caller: AgentContext, tx: Transaction, key: str, scope: EntryScope | None
) -> tuple[AgentTransaction, list[EntryRow]]:
    """Return the book open at *key*, and what is to go; the workspace locked only if it loses."""
    book = AgentTransaction(caller, tx)
    # An agent that never had anything is made by what it writes, and not by asking in vain.
    if book.open([key], making=caller.run is not None):
        gone = _chosen(book, key, scope)
        if all(row.agent != SHARED for row in gone):
            return book, gone
    elif scope == "agent" or not tx.rows(book.sql.get_entries, key=key):
        return book, []
    book = AgentTransaction(caller, tx)
    book.open([key], shared=True)
    return book, _chosen(book, key, scope)


def _chosen(book: AgentTransaction, key: str, scope: EntryScope | None) -> list[EntryRow]:
    found = [row for place in book.caller.places if (row := book.at(place, key)) is not None]
    if scope is not None:
        return [row for row in found if row.scope == scope]
    own = [row for row in found if row.agent != SHARED]
    return own or found


def _forget_traces(book: AgentTransaction, key: str, scope: EntryScope | None) -> bool:
    """Take *key*, of which no entry is left, out of the log; tell whether it was there."""
    owners = (SHARED,) if scope == "workspace" else (book.caller.agent,)
    if scope is None:
        owners = (*owners, SHARED)
    left = [
        owner for owner in owners if book.tx.first(_Trace, book.sql.trace, owner=owner, key=key)
    ]
    for owner in left:
        _erase(book, owner, key, key_hash(secret_of(book), key))
    return bool(left)


def _erase(book: AgentTransaction, owner: str, key: str, hashed: bytes) -> None:
    book.tx.send(book.sql.forget_changes, owner=owner, key=key, key_hash=hashed)
    book.tx.send(book.sql.forget_causes, owner=owner, key=key)
    book.tx.send(book.sql.trim_forgotten, owner=owner, key_hash=hashed)


class _Trace(Struct, frozen=True):
    seq: int
