"""Stored results of writes that carry an idempotency key."""

import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import (
    Forgotten,
    HoldfastError,
    IdempotencyMismatch,
    InvalidInput,
    MemoryFull,
    RunRequired,
)
from holdfast.memories.durable.records import (
    CONVERSATION,
    REPLAYS_KEPT,
    WORKSPACE,
    EntryScope,
    Gone,
    Outcome,
    StoredEntry,
)
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryRow, by_text, tags_text
from holdfast.memories.durable.transaction import AgentTransaction, secret_of
from holdfast.memories.durable.validation import CheckedEntry, checked_idempotency_key, refuse_long
from holdfast.memories.durable.write_entry import Shadowed, core_held, notices, stored

# What is kept of a write holds no key and no content, for those may be forgotten meanwhile: only
# hashes of what was asked, and the ids and numbers of what became of it. The rest of the first
# answer is made again from the repeated arguments and the log.

_KEY: Final = b"\0idempotency key\0"
_ASKED: Final = b"\0asked\0"


class _Kept(Struct, frozen=True, kw_only=True):
    asked: bytes
    answer: str
    at: int


class Replay:
    """One write under an idempotency key."""

    def __init__(self, idempotency_key: str, asked: bytes) -> None:
        self._key, self._asked = idempotency_key, asked

    @classmethod
    def of(cls, idempotency_key: object, act: str, *asked: object) -> "Replay | None":
        """Return the replay of *act*, which is told by *asked*; None without a key.

        InvalidInput for what cannot be a key.
        """
        key = checked_idempotency_key(idempotency_key)
        return None if key is None else cls(key, msgspec.json.encode([act, *asked]))

    def answer(self, book: AgentTransaction, make: type[Any]) -> Any:
        """Return the answer that was kept of this write, as *make*; None if it was not made yet.

        IdempotencyMismatch if another write was made under the key.
        """
        kept = book.tx.first(_Kept, book.sql.get_replay, key_hash=self._hash(book, _KEY, self._key))
        if kept is None or kept.at < book.now - REPLAYS_KEPT:
            return None
        if not hmac.compare_digest(kept.asked, self._hash(book, _ASKED, self._asked)):
            raise IdempotencyMismatch(self._key)
        return msgspec.json.decode(kept.answer, type=make)

    def keep(self, book: AgentTransaction, answer: object) -> None:
        """Keep *answer* with what the book writes."""
        book.tx.send(
            book.sql.keep_replay,
            key_hash=self._hash(book, _KEY, self._key),
            asked=self._hash(book, _ASKED, self._asked),
            answer=msgspec.json.encode(answer).decode(),
            now=book.now,
        )

    @staticmethod
    def _hash(book: AgentTransaction, what: bytes, given: str | bytes) -> bytes:
        text = given.encode() if isinstance(given, str) else given
        return hmac.digest(secret_of(book), what + text, "sha256")


UNKNOWN: Final = ""
"""Stands for the key and the category of what was forgotten meanwhile."""


class GoneAnswer(Struct, frozen=True):
    """An entry that the write took away: the log's row on it, and the numbers it had."""

    logged: int
    seq: int
    size_bytes: int
    scope: EntryScope


class EntryAnswer(Struct, frozen=True, kw_only=True):
    """What became of one entry, in ids and numbers."""

    id: str
    seq: int
    created_at: int
    updated_at: int
    expires_at: int | None
    created_by: str
    updated_by: str
    outcome: Outcome
    shadows: Shadowed | None
    core: int
    cap: int
    evicted: tuple[GoneAnswer, ...] = ()
    expired: tuple[GoneAnswer, ...] = ()


class RefusalAnswer(Struct, frozen=True, kw_only=True):
    """Why an entry was refused, in numbers; all None is for want of a run."""

    longest: int | None = None
    forgotten_at: int | None = None
    by: str = ""
    full: tuple[int, int, int] | None = None


class ManyAnswer(Struct, frozen=True, kw_only=True):
    """What became of many entries, by their index."""

    stored: dict[int, EntryAnswer] = field(default_factory=dict[int, EntryAnswer])
    refused: dict[int, RefusalAnswer] = field(default_factory=dict[int, RefusalAnswer])


def kept_of(book: AgentTransaction, entry: StoredEntry) -> EntryAnswer:
    """Return what is kept of *entry*, just written in *book*."""
    return EntryAnswer(
        id=entry.id,
        seq=entry.seq,
        created_at=to_microseconds(entry.created_at),
        updated_at=to_microseconds(entry.updated_at),
        expires_at=None if entry.expires_at is None else to_microseconds(entry.expires_at),
        created_by=by_text(entry.created_by),
        updated_by=by_text(entry.updated_by),
        outcome=entry.outcome,
        shadows=entry.shadows,
        core=core_held(book),
        cap=book.limits.cap,
        evicted=_kept_gone(book, entry.evicted),
        expired=_kept_gone(book, entry.expired),
    )


def entry_again(book: AgentTransaction, asked: CheckedEntry, answer: EntryAnswer) -> StoredEntry:
    """Return the entry that *answer* is of, which was asked for in the same words."""
    of_run = asked.category == CONVERSATION
    row = EntryRow(
        agent=SHARED if asked.category == WORKSPACE else book.caller.agent,
        run_id=book.caller.run_id if of_run else NO_RUN,
        key=asked.key,
        id=answer.id,
        content=asked.content,
        category=asked.category,
        tags=tags_text(asked.tags),
        size_bytes=asked.size_bytes,
        seq=answer.seq,
        created_at=answer.created_at,
        updated_at=answer.updated_at,
        expires_at=answer.expires_at,
        created_by=answer.created_by,
        updated_by=answer.updated_by,
    )
    names = _names(book, (*answer.evicted, *answer.expired))
    return stored(
        row.record(book.caller.workspace),
        outcome=answer.outcome,
        evicted=_gone(answer.evicted, names),
        expired=_gone(answer.expired, names),
        shadows=answer.shadows,
        notices=notices(asked, core=answer.core, cap=answer.cap),
    )


def kept_refusal(error: HoldfastError) -> RefusalAnswer:
    """Return what is kept of *error*, with which one entry of many was refused."""
    match error:
        case InvalidInput():
            return RefusalAnswer(longest=error.limit)
        case Forgotten():
            return RefusalAnswer(forgotten_at=to_microseconds(error.forgotten_at), by=error.by)
        case MemoryFull():
            return RefusalAnswer(full=(error.cap, error.entries, error.core_entries))
        case _:
            return RefusalAnswer()


def refusal_again(asked: CheckedEntry, answer: RefusalAnswer) -> HoldfastError:
    """Return the error that *answer* is of; it no longer names the coldest keys."""
    if answer.forgotten_at is not None:
        return Forgotten(from_microseconds(answer.forgotten_at), answer.by)
    if answer.full is not None:
        cap, entries, core = answer.full
        return MemoryFull(cap=cap, entries=entries, core_entries=core)
    if answer.longest is None:
        return RunRequired()
    try:
        refuse_long(asked, most=answer.longest)
    except InvalidInput as error:
        return error
    raise AssertionError


class _Named(Struct, frozen=True, kw_only=True):
    seq: int
    key: str | None
    category: str | None


def _kept_gone(book: AgentTransaction, gone: Iterable[Gone]) -> tuple[GoneAnswer, ...]:
    return tuple(
        GoneAnswer(book.taken[each.seq], each.seq, each.size_bytes, each.scope) for each in gone
    )


def _names(book: AgentTransaction, gone: Iterable[GoneAnswer]) -> Mapping[int, _Named]:
    seqs = [each.logged for each in gone]
    if not seqs:
        return {}
    told = msgspec.json.encode(seqs).decode()
    return {each.seq: each for each in book.tx.all(_Named, book.sql.changes_at, seqs=told)}


def _gone(gone: Iterable[GoneAnswer], names: Mapping[int, _Named]) -> tuple[Gone, ...]:
    unknown = _Named(seq=0, key=None, category=None)
    told = [(each, names.get(each.logged, unknown)) for each in gone]
    return tuple(
        Gone(
            key=named.key or UNKNOWN,
            category=named.category or UNKNOWN,
            scope=each.scope,
            size_bytes=each.size_bytes,
            seq=each.seq,
        )
        for each, named in told
    )
