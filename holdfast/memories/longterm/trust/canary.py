"""Canaries: planted texts that show, where they appear, a copied memory.

A canary is a random word with a keyed hash, so that it is recognised in any text of its workspace
without a list of canaries. No query of a person matches it.
"""

import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Transaction, scalar
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.dedupe import said
from holdfast.memories.longterm.records import new_secret
from holdfast.memories.longterm.transaction import CollectionTransaction, NewItem

_WORD: Final = re.compile(r"canary([0-9a-f]{16})([0-9a-f]{16})")
_BYTES: Final = 8
_OPERATOR: Final = "canary"
"""User of a canary that is no item."""


class Canary(Struct, frozen=True, kw_only=True):
    """A planted text; `item_id` is the item that holds it, None if none was planted."""

    text: str
    item_id: str | None = None


class Canaries:
    """Makes canaries; one that appears is reported by `security.canary_seen`."""

    def __init__(self, open_collection: Callable[[str], CollectionContext]) -> None:
        self._open = open_collection

    def create(self, user: str | None = None) -> Canary:
        """Return a new canary, planted as an item of *user* if one is named.

        Without a user it is for a document, a store or a prompt of the operator's. A row that holds
        it is held, and so are the later writes of its thread.
        """
        return create(self._open(user or _OPERATOR), plants=user is not None)


def create(context: CollectionContext, *, plants: bool) -> Canary:
    """Return a new canary; if it *plants*, an item of the collection holds it."""

    def work(tx: Transaction) -> Canary:
        word = _new_word(_secret(tx, context))
        if not plants:
            return Canary(text=word)
        unit = CollectionTransaction(context, tx)
        text = said(word)
        new = NewItem(
            id=context.ids.new("item", unit.now),
            kind="fact",
            importance=0.0,
            origin="api",
            source="canary",
            created_at=unit.now,
            updated_at=unit.now,
            tier="said",
            valid_from=unit.now,
            flags=0,
            terms=len(text.terms),
            fold=text.fold,
            body=" ".join(text.terms),
            text=word,
        )
        unit.put_items([(unit.numbers(1)[0], new)])
        unit.close()
        return Canary(text=word, item_id=new.id)

    return context.engine.write(work)


def is_canary_in(unit: CollectionTransaction, texts: Iterable[str]) -> bool:
    """Check whether *texts* hold a canary of the workspace."""
    words = [found for text in texts for found in _WORD.finditer(text.lower())]
    if not words:
        return False
    secret = unit.tx.first(scalar, unit.sql.get_tombstone_secret)
    return secret is not None and any(
        hmac.compare_digest(_mac(secret, word[1]), word[2]) for word in words
    )


def note_canary(unit: CollectionTransaction, *, thread: str) -> None:
    """Add the event `security.canary_seen` to the feed."""
    unit.note("security.canary_seen", in_thread=bool(thread))


def is_tainted(unit: CollectionTransaction, *, thread: str) -> bool:
    """Check whether a canary was seen in *thread*, so that its later writes are held."""
    if not thread or unit.held <= 0:
        return False
    seen = unit.tx.one(
        scalar,
        unit.sql.canary_seen,
        collection=unit.number,
        thread_id=thread,
        source=f"thread:{thread}",
    )
    return bool(seen)


def _secret(tx: Transaction, context: CollectionContext) -> bytes:
    tx.send(context.sql.make_tombstone_secret, secret=new_secret())
    return tx.one(scalar, context.sql.get_tombstone_secret)


def _new_word(secret: bytes) -> str:
    nonce = secrets.token_hex(_BYTES)
    return f"canary{nonce}{_mac(secret, nonce)}"


def _mac(secret: bytes, nonce: str) -> str:
    return hmac.digest(secret, f"canary\0{nonce}".encode(), "sha256")[:_BYTES].hex()
