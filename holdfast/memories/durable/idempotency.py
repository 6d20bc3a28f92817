"""Stored results of writes that carry an idempotency key."""

import hmac
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple

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
    REPLAYS_KEPT,
    EntryScope,
    Gone,
    Outcome,
    StoredEntry,
)
from holdfast.memories.durable.rows import EntryRow, RowStamp, by_text
from holdfast.memories.durable.transaction import AgentTransaction, secret_of
from holdfast.memories.durable.validation import CheckedEntry, checked_idempotency_key, refuse_long
from holdfast.memories.durable.write_entry import Shadowed, core_held, notices

# A stored result holds no key and no content, as those may be forgotten meanwhile: only hashes of
# the request, and ids and numbers of the result. The rest of the first result is rebuilt from the
# repeated arguments and the log.

_KEY: Final = b"\0idempotency key\0"
_REQUEST: Final = b"\0asked\0"


T = TypeVar("T")


class _StoredResult(Struct, frozen=True, kw_only=True):
    asked: bytes
    answer: str
    at: int


class Replay:
    """One write, under an idempotency key or without one.

    Raises InvalidInput for an invalid key.
    """

    def __init__(self, idempotency_key: object, act: str, *params: object) -> None:
        self._key = checked_idempotency_key(idempotency_key)
        self._request = b"" if self._key is None else msgspec.json.encode([act, *params])

    def __bool__(self) -> bool:
        """Return whether there is a key."""
        return self._key is not None

    def answer(self, unit: AgentTransaction, make: type[T]) -> T | None:
        """Return the stored result of this write as *make*, or None.

        None if the write has no key, is new, or was stored more than 24 hours ago. Raises
        IdempotencyMismatch if another write used the key.
        """
        if self._key is None:
            return None
        found = unit.tx.first(
            _StoredResult, unit.sql.get_replay, key_hash=self._hash(unit, _KEY, self._key)
        )
        if found is None or found.at < unit.now - REPLAYS_KEPT:
            return None
        if not hmac.compare_digest(found.asked, self._hash(unit, _REQUEST, self._request)):
            raise IdempotencyMismatch(self._key)
        return msgspec.json.decode(found.answer, type=make)

    def keep(self, unit: AgentTransaction, answer: object) -> None:
        """Store *answer* in the same transaction, if the write has a key."""
        if self._key is None:
            return
        unit.tx.send(
            unit.sql.keep_replay,
            key_hash=self._hash(unit, _KEY, self._key),
            asked=self._hash(unit, _REQUEST, self._request),
            answer=msgspec.json.encode(answer).decode(),
            now=unit.now,
        )

    @staticmethod
    def _hash(unit: AgentTransaction, what: bytes, given: str | bytes) -> bytes:
        text = given.encode() if isinstance(given, str) else given
        return hmac.digest(secret_of(unit), what + text, "sha256")


UNKNOWN: Final = ""
"""Key and category of an entry that was forgotten meanwhile."""


class GoneAnswer(Struct, frozen=True):
    """An entry that the write deleted: its row in the log, its `seq` and size."""

    logged: int
    seq: int
    size_bytes: int
    scope: EntryScope


class EntryAnswer(RowStamp, frozen=True, kw_only=True):
    """The stored result of one entry: ids and numbers only."""

    outcome: Outcome
    shadows: Shadowed | None
    core: int
    cap: int
    evicted: tuple[GoneAnswer, ...] = ()
    expired: tuple[GoneAnswer, ...] = ()


class RefusalAnswer(Struct, frozen=True, kw_only=True):
    """The stored refusal of one entry; all None is RunRequired."""

    longest: int | None = None
    forgotten_at: int | None = None
    by: str = ""
    full: tuple[int, int, int] | None = None


class ManyAnswer(Struct, frozen=True, kw_only=True):
    """The stored results of many entries, by index."""

    stored: dict[int, EntryAnswer] = field(default_factory=dict[int, EntryAnswer])
    refused: dict[int, RefusalAnswer] = field(default_factory=dict[int, RefusalAnswer])


def kept_of(unit: AgentTransaction, entry: StoredEntry) -> EntryAnswer:
    """Return the result to store for *entry*, just written in *unit*."""
    return EntryAnswer(
        id=entry.id,
        seq=entry.seq,
        created_at=to_microseconds(entry.created_at),
        updated_at=to_microseconds(entry.updated_at),
        expires_at=None if entry.expires_at is None else to_microseconds(entry.expires_at),
        created_by=by_text(entry.created_by),
        updated_by=by_text(entry.updated_by),
        tier=entry.tier,
        origin_ref=entry.origin_ref,
        held=entry.held,
        outcome=entry.outcome,
        shadows=entry.shadows,
        core=core_held(unit),
        cap=unit.limits.cap,
        evicted=_stored_deletions(unit, entry.evicted),
        expired=_stored_deletions(unit, entry.expired),
    )


def entry_again(unit: AgentTransaction, request: CheckedEntry, answer: EntryAnswer) -> StoredEntry:
    """Rebuild the result of the first write from *answer* and the same request."""
    row = EntryRow.of(unit.context.place_of(request.category), request, answer)
    names = names_of(unit, [each.logged for each in (*answer.evicted, *answer.expired)])
    return StoredEntry(
        *astuple(row.record(unit.context.workspace)),
        outcome=answer.outcome,
        evicted=_gone(answer.evicted, names),
        expired=_gone(answer.expired, names),
        shadows=answer.shadows,
        notices=notices(request, core=answer.core, cap=answer.cap),
    )


def kept_refusal(error: HoldfastError) -> RefusalAnswer:
    """Return what to store of *error*, which refused one entry of many."""
    match error:
        case InvalidInput():
            return RefusalAnswer(longest=error.limit)
        case Forgotten():
            return RefusalAnswer(forgotten_at=to_microseconds(error.forgotten_at), by=error.by)
        case MemoryFull():
            return RefusalAnswer(full=(error.cap, error.entries, error.core_entries))
        case _:
            return RefusalAnswer()


def refusal_again(request: CheckedEntry, answer: RefusalAnswer) -> HoldfastError:
    """Rebuild the error of *answer*, without the coldest keys."""
    if answer.forgotten_at is not None:
        return Forgotten(from_microseconds(answer.forgotten_at), answer.by)
    if answer.full is not None:
        cap, entries, core = answer.full
        return MemoryFull(cap=cap, entries=entries, core_entries=core)
    if answer.longest is None:
        return RunRequired()
    try:
        refuse_long(request, most=answer.longest)
    except InvalidInput as error:
        return error
    raise AssertionError


class NamedChange(Struct, frozen=True, kw_only=True):
    """A row of the log with its key, if that was not forgotten."""

    seq: int
    key: str | None
    category: str | None


def _stored_deletions(unit: AgentTransaction, gone: Iterable[Gone]) -> tuple[GoneAnswer, ...]:
    return tuple(
        GoneAnswer(unit.taken[each.seq], each.seq, each.size_bytes, each.scope) for each in gone
    )


def names_of(unit: AgentTransaction, seqs: list[int]) -> Mapping[int, NamedChange]:
    """Return the changes of these numbers that the log still has."""
    if not seqs:
        return {}
    numbers = msgspec.json.encode(seqs).decode()
    return {each.seq: each for each in unit.tx.all(NamedChange, unit.sql.changes_at, seqs=numbers)}


def _gone(gone: Iterable[GoneAnswer], names: Mapping[int, NamedChange]) -> tuple[Gone, ...]:
    unknown = NamedChange(seq=0, key=None, category=None)
    pairs = [(each, names.get(each.logged, unknown)) for each in gone]
    return tuple(
        Gone(
            key=named.key or UNKNOWN,
            category=named.category or UNKNOWN,
            scope=each.scope,
            size_bytes=each.size_bytes,
            seq=each.seq,
        )
        for each, named in pairs
    )
