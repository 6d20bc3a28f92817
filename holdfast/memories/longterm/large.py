"""Recalling from a collection too large to be held in process."""

from typing import TYPE_CHECKING

from holdfast.engines.base import Reader
from holdfast.memories.longterm.caller import Caller
from holdfast.memories.longterm.rows import Collection

if TYPE_CHECKING:
    from holdfast.memories.longterm.recalling import Answering, Placed


def rank_large(
    caller: Caller, reader: Reader, collection: Collection, answering: "Answering"
) -> "list[Placed]":
    """Return the rows that answer, best first."""
    raise NotImplementedError
