"""Which keys somebody may have meant by one that is not there: a pure rule over keys."""

import re
from collections.abc import Iterable
from typing import Final

MOST_SIMILAR: Final = 5
"""Keys that are named instead of one that is not there."""
NEAR: Final = 2
"""Edits by which a key may differ."""

_BREAKS: Final = re.compile(r"[\W_]+")


def similar_keys(wanted: str, keys: Iterable[str], *, most: int = MOST_SIMILAR) -> tuple[str, ...]:
    """Return those of *keys* that share words with *wanted* or are within two edits, best first."""
    words = _words(wanted)
    found: list[tuple[int, int, str]] = []
    for key in set(keys) - {wanted}:
        edits = _edits(wanted.casefold(), key.casefold())
        shared = len(words & _words(key))
        if shared or edits <= NEAR:
            found.append((edits, -shared, key))
    return tuple(key for *_, key in sorted(found)[:most])


def _words(key: str) -> set[str]:
    return {word for word in _BREAKS.split(key.casefold()) if word}


def _edits(one: str, other: str) -> int:
    """Return how many characters to change, add or drop make *other* of *one*, or more than two."""
    if abs(len(one) - len(other)) > NEAR:
        return NEAR + 1
    before = list(range(len(other) + 1))
    for at, char in enumerate(one, 1):
        row = [at]
        for place, another in enumerate(other, 1):
            changed = before[place - 1] + (char != another)
            row.append(min(changed, before[place] + 1, row[-1] + 1))
        if min(row) > NEAR:
            return NEAR + 1
        before = row
    return min(before[-1], NEAR + 1)
