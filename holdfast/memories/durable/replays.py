"""Writes asked for again under one idempotency key: done once, answered each time.

What is kept of a write holds no key and no content, for those may be forgotten meanwhile: only
hashes of what was asked, and the ids and numbers of what became of it. The rest of the first
answer is made again from the repeated arguments and the log.
"""

import hmac
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.ground.errors import IdempotencyMismatch
from holdfast.memories.durable.records import REPLAYS_KEPT
from holdfast.memories.durable.transaction import AgentTransaction, secret_of
from holdfast.memories.durable.validation import checked_idempotency_key

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
