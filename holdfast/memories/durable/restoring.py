"""Bringing back what a change held, as a new write."""

from holdfast.engines.base import Transaction
from holdfast.ground.errors import NotFound
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.history import CHANGE, change_at
from holdfast.memories.durable.idempotency import EntryAnswer, Replay, entry_again, kept_of
from holdfast.memories.durable.records import StoredEntry
from holdfast.memories.durable.transaction import AgentTransaction, refusals, write
from holdfast.memories.durable.validation import checked_entry, checked_key
from holdfast.memories.durable.write_entry import EntryWrite, needs_shared, store


def restore(
    caller: AgentContext, key: str, seq: int, *, idempotency_key: str | None = None
) -> StoredEntry:
    """Write what the change *seq* of *key* held; NotFound when it holds nothing.

    That is also what a repeat is answered with, if the change was let go meanwhile: what it held
    is nowhere else.
    """
    with refusals(caller):
        checked_key(key)
        replay = Replay.of(idempotency_key, "restore", key, seq)

    def work(tx: Transaction) -> StoredEntry:
        row = change_at(caller, tx, seq)
        if row.key != key or row.content is None or row.category is None:
            raise NotFound(
                CHANGE, str(seq), next="Look at the history of the key for one that holds content."
            )
        asked = checked_entry(key, row.content, row.category, ())
        book = AgentTransaction(caller, tx)
        book.open([key], shared=needs_shared(asked.category))
        first = None if replay is None else replay.answer(book, EntryAnswer)
        if first is not None:
            return entry_again(book, asked, first)
        entry = store(book, asked, EntryWrite(op="restore", cause={"restored": str(seq)}))
        if replay is not None:
            replay.keep(book, kept_of(book, entry))
        book.close()
        return entry

    return write(caller, work)
