"""Collapse the rows of a recall that say the same into one.

Two rows say the same if their texts differ in case, punctuation and white space alone, or are
duplicates as items are: nearly the same terms in the same order, the same numbers and negations.
Bodies alone show where texts need to be compared.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.trust import RANKS
from holdfast.memories.longterm.recall.dedupe import (
    ComparedText,
    Like,
    fold_of,
    said,
    similarity,
    twin,
)
from holdfast.memories.longterm.recall.index import ROLE_WORDS, Postings
from holdfast.memories.longterm.records import Recalled

DUPLICATE: Final = 0.92
"""Share of common terms in order from which on two rows say the same."""
COVERED: Final = 0.6
"""Share of a turn's idf mass that an item mined from it must hold to stand for it."""
LOOKED_AT, HEAD = 100, 40
"""Characters at the beginning of a text, and letters of those, by which texts look alike."""
MOST_ALSO: Final = 20
"""Ids of rows left out for another one."""


def may_repeat(bodies: Sequence[str], query: str = "") -> bool:
    """Check whether two of *bodies*, or one and the *query*, may say the same."""
    if query and any(body.startswith(query) for body in bodies):
        return True
    split = sorted((body.split(" ") for body in bodies if body), key=len)
    rows = [(terms, frozenset(terms)) for terms in split]
    for place, (one, words) in enumerate(rows):
        for other, others in rows[place + 1 :]:
            common = DUPLICATE * (len(one) + len(other)) / 2
            if len(one) < common:
                break
            # Terms of one text alone are outside of what both have in common.
            if len(words - others) <= len(one) - common and similarity(one, other) >= DUPLICATE:
                return True
    return False


def look_alike(found: Iterable[Recalled], query: str) -> bool:
    """Check whether two of *found*, or one and the *query*, may have the same letters."""
    heads = [_letters(row.text) for row in found]
    return len(set(heads)) < len(heads) or _letters(query) in heads


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:LOOKED_AT].casefold()))[:HEAD]


def covers(postings: Postings, item: int, turn: int) -> bool:
    """Check whether the row *item* holds most of what the row *turn* says.

    A small collection counts as one of 100 rows, as for relevance. No item of a lower tier stands
    for a turn.
    """
    if RANKS[postings.rows[item].tier] < RANKS[postings.rows[turn].tier]:
        return False
    terms = frozenset(postings.rows[turn].body.split())
    held = frozenset(postings.rows[item].body.split())
    postings.learn((turn,), whole=True)
    idf = {term: postings.telling(term) ** 0.5 for term in sorted(terms)}
    whole = sum(idf.values())
    return sum(idf[term] for term in sorted(terms & held)) >= COVERED * whole


class Collapsed(Struct, frozen=True, kw_only=True):
    """Results that differ, with their numbers, and how many rows were left out."""

    recalled: list[Recalled]
    numbers: list[int]
    duplicates: int
    echoes: int


class _Group:
    """Results that say the same as the first of them."""

    def __init__(self, text: ComparedText, like: Like, first: Recalled, number: int) -> None:
        self.text, self.like = text, like
        self.members = [(first, number)]

    def says(self, text: ComparedText, row: Recalled) -> bool:
        """Check whether *row*, with this *text*, says the same as this group."""
        return _same_voice(self.members[0][0], row) and (
            text.fold == self.text.fold or twin(text, (self.like,), DUPLICATE) is not None
        )

    def standing(self) -> tuple[Recalled, int]:
        """Return the result of the highest tier: an item, else the newest turn."""
        first = min(self.members, key=lambda each: _order(each[0]))
        others = tuple(
            id
            for row, _ in self.members
            for id in (*((row.id,) if row is not first[0] else ()), *row.also)
        )
        return _standing_for(first[0], others), first[1]


def collapse(found: Iterable[tuple[Recalled, int]], query: str, *, k: int, echo: bool) -> Collapsed:
    """Return the first *k* of *found*, each for all below it that say the same.

    With *echo* turns may be the *query* itself; else they are left out.
    """
    fold, groups = fold_of(query), list[_Group]()
    duplicates = echoes = 0
    for row, number in found:
        text = said(_whole(row))
        if not echo and row.turn is not None and fold_of(row.text) == fold:
            echoes += 1
            continue
        group = next((each for each in groups if each.says(text, row)), None)
        if group is not None:
            group.members.append((row, number))
            duplicates += 1
        elif len(groups) < k:
            groups.append(_Group(text, _like(row, text, number), row, number))
        else:
            break
    standing = [group.standing() for group in groups]
    return Collapsed(
        recalled=[row for row, _ in standing],
        numbers=[number for _, number in standing],
        duplicates=duplicates,
        echoes=echoes,
    )


def _standing_for(row: Recalled, others: Sequence[str]) -> Recalled:
    """Return *row* with the ids of the *others* that were left out for it."""
    also = tuple(others[:MOST_ALSO])
    if also == row.also and len(others) == len(also):
        return row
    return replace(row, also=also, why={**row.why, "also": len(others)})


def _like(row: Recalled, text: ComparedText, number: int) -> Like:
    return Like(
        number=number, id=row.id, fold=text.fold, body=" ".join(text.terms), text=_whole(row)
    )


def _whole(row: Recalled) -> str:
    """Return what *row* says, with the caption of its image."""
    caption = row.turn.caption if row.turn else None
    return f"{row.text} {caption}" if caption else row.text


def _same_voice(one: Recalled, other: Recalled) -> bool:
    """Check that not two people speak, each of themselves."""
    voices = {_voice(one), _voice(other)} - {""}
    return len(voices) < 2  # noqa: PLR2004 - two voices


def _voice(row: Recalled) -> str:
    speaker = (row.turn.speaker or "").casefold() if row.turn else ""
    return "" if speaker in ROLE_WORDS else speaker


def _order(row: Recalled) -> tuple[int, bool, float]:
    found = row.item or row.turn
    rank = RANKS.get(found.tier or "said", 0) if found else 0
    return -rank, row.item is None, -_at(row)


def _at(row: Recalled) -> float:
    at = row.item.created_at if row.item else row.turn and (row.turn.at or row.turn.created_at)
    return at.timestamp() if at else 0.0
