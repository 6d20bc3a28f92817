"""How far a thread was read: which turns of a list that is given again are new."""

from collections.abc import Sequence


def seen(recorded: Sequence[bytes], given: Sequence[bytes]) -> int:
    """Return how many of *given*, from its first, were *recorded*; both are fingerprints in order.

    That is the longest end of *recorded* with which *given* begins, or all of *given* where it is
    a run of *recorded*. So a list may be passed whole each time, or only what is new.

    >>> seen([b"a", b"b", b"c"], [b"b", b"c", b"d"])
    2
    >>> seen([b"a", b"b", b"c"], [b"a", b"b"])
    2
    >>> seen([b"a", b"b", b"c"], [b"d"])
    0
    """
    borders = _borders(given)
    matched = 0
    for each in recorded:
        if matched == len(given):
            break
        matched = _advanced(given, borders, matched, each)
    return matched


def _borders(given: Sequence[bytes]) -> list[int]:
    """Return for each beginning of *given* its longest end that is a shorter beginning.

    With these a run is found in one pass (Knuth, Morris, Pratt: Fast pattern matching in strings).
    """
    borders = [0] * len(given)
    for place in range(1, len(given)):
        borders[place] = _advanced(given, borders, borders[place - 1], given[place])
    return borders


def _advanced(given: Sequence[bytes], borders: Sequence[int], matched: int, each: bytes) -> int:
    """Return how much of *given* is matched once *each* follows what *matched* was matched by."""
    while matched and given[matched] != each:
        matched = borders[matched - 1]
    return matched + 1 if matched < len(given) and given[matched] == each else 0
