"""Writing entries through the door of the library: one, or many in one transaction."""

from collections.abc import Iterable

from msgspec import UnsetType

from holdfast.engines.base import Transaction
from holdfast.memories.durable.asked import checked_entry
from holdfast.memories.durable.book import Book
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.entry import StoredEntry
from holdfast.memories.durable.limits import RANGES
from holdfast.memories.durable.storing import Wish, needs_shared, store

MOST_CONTENT = RANGES["content_bytes"][1]


def set_one(
    caller: Caller,
    key: str,
    content: str,
    category: str,
    tags: Iterable[str],
    *,
    refresh: bool,
    expected: int | UnsetType | None,
) -> StoredEntry:
    """Write one entry, whole."""
    asked = checked_entry(key, content, category, tags, content_bytes=MOST_CONTENT)
    wish = Wish(refresh=refresh, expected_seq=expected)

    def work(tx: Transaction) -> StoredEntry:
        book = Book(caller, tx, shared=needs_shared(asked.category))
        stored = store(book, asked, wish)
        if stored.outcome != "unchanged":
            book.note("stored", outcome=stored.outcome, size_bytes=stored.size_bytes)
        book.close()
        return stored

    return caller.engine.write(work)
