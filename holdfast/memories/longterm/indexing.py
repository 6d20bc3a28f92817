"""The index of words of collections too large to be held in process."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.memories.longterm.rows import Collection

if TYPE_CHECKING:
    from holdfast.memories.longterm.book import Book

LARGE: Final = 5_000
"""Rows beyond which a collection is looked through in the engine first."""


class Change(Struct, frozen=True):
    """A row whose words came or went."""

    number: int
    body: str


def index(book: "Book", *, added: Sequence[Change], removed: Sequence[Change]) -> None:
    """Bring the index up to what a write did."""


def unindex_all(tx: Transaction, sql: SimpleNamespace, collection: Collection) -> None:
    """Take every row of *collection* out of the index."""
