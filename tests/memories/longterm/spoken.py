"""Rows made from what was said, and questions asked of them."""

from typing import Any

import msgspec
import pytest

from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.index import DAY, Postings, Row
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.score import Fits, RecallSearch, fit
from holdfast.memories.longterm.records import LongTermOptions, Ranked, RecallQuery, Weights

NOW = 20_000 * DAY
ALONE = Weights(1, 0, 0)


def large_above(rows: int, patch: pytest.MonkeyPatch) -> None:
    """Let a collection of more than *rows* be a large one, which recall searches in the index."""
    for module in ("recall.recall", "transaction"):
        patch.setattr(f"holdfast.memories.longterm.{module}.LARGE", rows)


def row(seq: int, text: str, **given: Any) -> Row:
    """Return the turn, or with a *kind* the item, number *seq*."""
    flags = msgspec.structs.asdict(flags_of(text))
    tag = "item" if given.get("kind") else "turn"
    told: dict[str, Any] = {
        "id": f"{tag}_{seq:04}",
        "seq": seq,
        "body": " ".join(analyze(text)),
        "at": NOW,
    }
    if given.get("kind"):
        told["text"] = text
    return Row(**(told | flags | given))


def talk(*texts: str, **given: Any) -> list[Row]:
    """Return turns of one session, one after another."""
    return [row(seq, text, **given) for seq, text in enumerate(texts)]


def fits_of(rows: list[Row], query: str, **wanted: Any) -> dict[int, float]:
    """Return how well each row answers, by its number."""
    found = fit_of(rows, query, **wanted)
    return dict(zip(found.rows, found.fit, strict=True))


def fit_of(rows: list[Row], query: str, **wanted: Any) -> Fits:
    """Return how the rows answer."""
    postings = Postings(rows)
    return fit(postings, read(query, postings.participants), search(**wanted))


def search(
    *, now: int = NOW, cosines: dict[str, float] | None = None, **wanted: Any
) -> RecallSearch:
    """Return a recall with these parameters and options."""
    named = {name: wanted.pop(name) for name in ("k", "what", "kinds") if name in wanted}
    query, options = RecallQuery(query="", **named), LongTermOptions(**wanted)
    return RecallSearch(query=query, options=options, now=now, cosines=cosines)


def ask(rows: list[Row], query: str, *, now: int = NOW, **wanted: Any) -> list[Ranked]:
    """Return what is recalled."""
    postings = Postings(rows)
    question = read(query, postings.participants)
    return rank(postings, question, search(now=now, **wanted))


def ids(found: list[Ranked]) -> list[int]:
    """Return the numbers that the recalled rows were made with."""
    return [int(each.id.partition("_")[2]) for each in found]
