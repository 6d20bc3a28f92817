"""The difference of two texts as rows, changed words marked.

Lines that occur once on both sides are anchors (patience diff), between them Myers' greedy search
(An O(ND) Difference Algorithm, 1986). Its work is bounded: what is not reached counts as changed.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final, Literal

from msgspec import Struct

WORDS_MOST: Final = 5_000
"""Most lines of a text within which changed words are marked."""

_WORK: Final = 400_000
"""Most comparisons of one difference, a tenth of a second."""
_EDITS: Final = 200
"""Most edits of one search, which keeps the square of them."""
_ALIKE: Final = 0.3
"""Share of characters that two lines must have in common for their words to be compared."""
_WORD: Final = re.compile(r"\w+|\s+|[^\w\s]")

Parts = tuple[tuple[bool, str], ...]
Pair = tuple[int, int]


class DiffRow(Struct, frozen=True):
    """A line of a difference: its numbers on both sides, its parts, and which changed.

    A `gap` stands for equal lines: its numbers are those of the first, its part says how many.
    """

    kind: Literal["same", "add", "cut", "gap"]
    old: int | None
    new: int | None
    parts: Parts

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(text for _, text in self.parts)


def diff_rows(old: str, new: str, context: int | None = 3) -> tuple[DiffRow, ...]:
    """Return rows that lead from *old* to *new*.

    *context* equal lines stand around each change. With None all equal lines are there, and the
    rows give back both texts.
    """
    before, after = _lines(old), _lines(new)
    work = _Work()
    marks = max(len(before), len(after)) <= WORDS_MOST
    rows: list[DiffRow] = []
    i = j = 0
    for at, to in (*_matches(before, after, work), (len(before), len(after))):
        cuts, adds = before[i:at], after[j:to]
        pairs = list(_changes(cuts, adds, work if marks else None))
        rows += [DiffRow("cut", i + n + 1, None, pairs[n][0]) for n in range(len(cuts))]
        rows += [DiffRow("add", None, j + n + 1, pairs[n][1]) for n in range(len(adds))]
        if at < len(before):
            rows.append(DiffRow("same", at + 1, to + 1, ((False, before[at]),)))
        i, j = at + 1, to + 1
    return tuple(rows if context is None else _without_gaps(rows, context))


def split_rows(
    rows: Sequence[DiffRow],
) -> tuple[tuple[DiffRow | None, DiffRow | None], ...]:
    """Return *rows* side by side: cut ones on the left, added ones on the right."""
    split: list[tuple[DiffRow | None, DiffRow | None]] = []
    cuts: list[DiffRow] = []
    adds: list[DiffRow] = []
    for row in rows:
        if (row.kind == "cut" and adds) or row.kind in {"same", "gap"}:
            split += zip_longest(cuts, adds)
            cuts, adds = [], []
        if row.kind == "cut":
            cuts.append(row)
        elif row.kind == "add":
            adds.append(row)
        else:
            split.append((row, row))
    return (*split, *zip_longest(cuts, adds))


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _without_gaps(rows: list[DiffRow], context: int) -> Iterator[DiffRow]:
    near: set[int] = set()
    for n, row in enumerate(rows):
        if row.kind != "same":
            near.update(range(n - context, n + context + 1))
    n = 0
    while n < len(rows):
        end = n
        while end < len(rows) and end not in near:
            end += 1
        if end - n > 1:
            yield DiffRow("gap", rows[n].old, rows[n].new, ((False, f"{end - n:,} equal lines"),))
        else:
            yield from rows[n:end]
        if end < len(rows):
            yield rows[end]
        n = end + 1


def _changes(
    cuts: Sequence[str], adds: Sequence[str], work: "_Work | None"
) -> Iterator[tuple[Parts, Parts]]:
    """Give the parts of each cut line and of the added one that stands for it."""
    for cut, add in zip_longest(cuts, adds):
        if work is None or cut is None or add is None:
            yield _all(cut or ""), _all(add or "")
        else:
            yield _words(cut, add, work)


def _all(text: str) -> Parts:
    return ((bool(text), text),)


def _words(cut: str, add: str, work: "_Work") -> tuple[Parts, Parts]:
    before, after = _WORD.findall(cut), _WORD.findall(add)
    same = _matches(before, after, work)
    alike = sum(len(before[i]) for i, _ in same if not before[i].isspace())
    if alike < _ALIKE * min(len(cut), len(add)):
        return _all(cut), _all(add)
    return _parts(before, {i for i, _ in same}), _parts(after, {j for _, j in same})


def _parts(words: Sequence[str], same: set[int]) -> Parts:
    parts: list[tuple[bool, str]] = []
    for n, word in enumerate(words):
        changed = n not in same
        if parts and parts[-1][0] == changed:
            parts[-1] = (changed, parts[-1][1] + word)
        else:
            parts.append((changed, word))
    return tuple(parts)


# The search


class _Work:
    """Comparisons that are left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _WORK


def _matches(old: Sequence[str], new: Sequence[str], work: _Work) -> list[Pair]:
    """Return pairs of indices of equal elements, rising on both sides."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(each, len(numbers)) for each in old]
    b = [numbers.setdefault(each, len(numbers)) for each in new]
    pairs: list[Pair] = []
    i = j = 0
    for at, to in (*_anchors(a, b), (len(a), len(b))):
        pairs += ((i + x, j + y) for x, y in _between(a[i:at], b[j:to], work))
        if at < len(a):
            pairs.append((at, to))
        i, j = at + 1, to + 1
    return pairs


def _anchors(a: Sequence[int], b: Sequence[int]) -> list[Pair]:
    """Return the longest rising series of elements that occur once on both sides."""
    counts_a, counts_b = Counter(a), Counter(b)
    places = {each: n for n, each in enumerate(b) if counts_b[each] == 1}
    once = [(n, places[each]) for n, each in enumerate(a) if counts_a[each] == 1 and each in places]
    ends: list[int] = []  # the smallest place that ends a series of each length
    last: list[int] = []  # the index in *once* of that end
    before: list[int] = []  # what precedes each of *once* in its series
    for n, (_, place) in enumerate(once):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [n]
    series: list[Pair] = []
    n = last[-1] if last else -1
    while n >= 0:
        series.append(once[n])
        n = before[n]
    return series[::-1]


def _between(a: Sequence[int], b: Sequence[int], work: _Work) -> Iterator[Pair]:
    start, size = 0, min(len(a), len(b))
    while start < size and a[start] == b[start]:
        start += 1
    end = 0
    while end < size - start and a[-1 - end] == b[-1 - end]:
        end += 1
    yield from ((n, n) for n in range(start))
    inner = _search(a[start : len(a) - end], b[start : len(b) - end], work)
    yield from ((start + x, start + y) for x, y in inner)
    yield from ((len(a) - n, len(b) - n) for n in range(end, 0, -1))


def _search(a: Sequence[int], b: Sequence[int], work: _Work) -> Iterator[Pair]:
    """Give pairs of a path of few edits, as far as *work* allows.

    It is a shortest path up to `_EDITS`, then goes on from where that came furthest.
    """
    i = j = 0
    while i < len(a) and j < len(b) and work.left > 0:
        trace = _trace(a[i:], b[j:], work)
        x, y = max(
            ((x, x - k) for k, x in trace[-1].items() if x <= len(a) - i and x - k <= len(b) - j),
            key=sum,
        )
        yield from ((i + at, j + to) for at, to in _path(trace[:-1], x, y))
        i, j = i + x, j + y


def _trace(a: Sequence[int], b: Sequence[int], work: _Work) -> list[dict[int, int]]:
    """Return how far each diagonal reaches, before the first edit and after each."""
    reach: dict[int, int] = {1: 0}
    trace = [reach]
    for edits in range(_EDITS + 1):
        last = reach
        reach = dict[int, int]()
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and last[k - 1] < last[k + 1])
            x = start = last[k + 1] if down else last[k - 1] + 1
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            work.left -= 1 + x - start
            if x >= len(a) and x - k >= len(b):
                return [*trace, {k: x}]
        trace.append(reach)
        if edits and work.left <= 0:
            break
    return trace


def _path(trace: Sequence[dict[int, int]], x: int, y: int) -> list[Pair]:
    pairs: list[Pair] = []
    for edits in range(len(trace) - 1, -1, -1):
        reach = trace[edits]
        k = x - y
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        at, to = reach[before], reach[before] - before
        while x > max(at, 0) and y > max(to, 0) and (x, y) != (at, to):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = at, to
    return pairs[::-1]
