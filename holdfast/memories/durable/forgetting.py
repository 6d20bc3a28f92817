"""Forgetting one key: the entry, its contents and its key in the log; a tombstone stays."""

import secrets
from typing import get_args

import msgspec

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.memories.durable.asked import checked_key
from holdfast.memories.durable.book import SHARED, Book
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.entry import EntryScope
from holdfast.memories.durable.rows import EntryRow
from holdfast.memories.durable.tombstones import key_hash

SECRET_BYTES = 32


def forget(caller: Caller, key: str, scope: EntryScope | None) -> bool:
    """Forget *key*, and tell whether there was anything to forget.

    From the run's and the agent's own scope; if there is nothing, from the workspace. *scope*
    picks one.
    """
    checked_key(key)
    if scope is not None and scope not in get_args(EntryScope):
        raise InvalidInput("scope", "must be agent, workspace or run", given=scope)

    def work(tx: Transaction) -> bool:
        book = Book(caller, tx, shared=scope != "run")
        rows = tx.all(EntryRow, book.sql.entries_under_key, key=key, run_id=caller.run_id)
        gone = _chosen(rows, scope)
        if gone:
            secret = _secret(book)
            for row in gone:
                forget_row(book, row, secret)
            erase_causes(book, key)
            book.note("forgotten", entries=len(gone))
        book.close()
        return bool(gone)

    return caller.engine.write(work)


def forget_row(book: Book, row: EntryRow, secret: bytes) -> None:
    """Take away *row* and all that the log says of its key, and leave a tombstone."""
    number = book.number()
    book.tx.send(book.sql.remove_entry, owner=row.agent, run_id=row.run_id, key=row.key)
    book.tx.send(book.sql.forget_changes, owner=row.agent, key=row.key)
    book.tx.send(
        book.sql.insert_change,
        seq=number,
        owner=row.agent,
        run_id=row.run_id,
        at=book.now,
        op="forget",
        key=None,
        category=None,
        size_bytes=row.size_bytes,
        content=None,
        content_sha256=None,
        actor=book.by,
        cause="{}",
    )
    book.tx.send(
        book.sql.bury,
        owner=row.agent,
        run_id=row.run_id,
        key_hash=key_hash(secret, row.key),
        seq=number,
        now=book.now,
        by=book.by,
    )


def erase_causes(book: Book, key: str) -> None:
    """Take *key* out of what other changes say they were made for."""
    for name in ("evicted_for",):
        cause = msgspec.json.encode({name: key}).decode()
        book.tx.send(book.sql.forget_causes, cause=cause)


def _chosen(rows: list[EntryRow], scope: EntryScope | None) -> list[EntryRow]:
    if scope is not None:
        return [row for row in rows if row.scope == scope]
    own = [row for row in rows if row.agent != SHARED]
    return own or rows


def _secret(book: Book) -> bytes:
    """Return the workspace's random key of hashes; made now if this is its first."""
    found = book.tx.first(_bytes, book.sql.get_secret)
    if found is not None:
        return found
    book.tx.run(book.sql.insert_secret, secret=secrets.token_bytes(SECRET_BYTES))
    return book.tx.one(_bytes, book.sql.get_secret)


def _bytes(*, secret: bytes) -> bytes:
    return secret
