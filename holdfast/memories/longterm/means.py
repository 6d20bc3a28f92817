"""The two means by which lengths are made equal, of rows of which only the lengths are known."""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.engines.base import Row
from holdfast.memories.longterm.recall.index import LENT, SHORT, is_machine

WINDOW = len(LENT)


class FieldLengths(Struct, frozen=True):
    """The mean length of a body, and of a body with what its window lends it."""

    length: float
    window: float


def means_of(rows: Sequence[Row]) -> FieldLengths:
    """Return the means of *rows*, which stand in order of recording.

    Each is whether it is a turn, its length, its thread, its session, its role and its speaker.
    """
    if not rows:
        return FieldLengths(0.0, 0.0)
    mean = sum(row[1] for row in rows) / len(rows)
    floor = 0.9 / max(mean, SHORT)
    whole = 0.0
    lending: dict[tuple[str, str], tuple[float, ...]] = {}
    for is_turn, length, thread, session, role, speaker, *_ in rows:
        own = length / (0.1 + floor * max(length, SHORT))
        whole += own
        if is_turn:
            key = thread, session or thread
            before = lending.get(key, ())
            whole += sum(lent * each for lent, each in zip(LENT, before, strict=False))
            lends = 0.0 if is_machine(role, speaker or None) else own
            lending[key] = (lends, *before)[:WINDOW]
    return FieldLengths(mean, whole / len(rows))
