"""Playground of recall: a query, its scores, what is left out; two settings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from holdfast import LongTermMemory, recalled_block
from holdfast.doors.console.pages.people import (
    KINDS,
    SECTION,
    crumbs,
    place_of,
    shared_values,
)
from holdfast.doors.console.views import Answer, ConsoleRoute, PageView, Visit, page
from holdfast.ground.errors import InvalidInput, Refused, Unavailable
from holdfast.memories.longterm.records import (
    DEFAULT_K,
    LongTermOptions,
    Recalled,
    Weights,
)

RESULTS_MOST: Final = 50
"""Results of one setting, so that a page of two has at most 100 rows."""
SECOND: Final = "b_"
"""Prefix of the fields of the second setting."""
_USUAL: Final = LongTermOptions()

DONE: Final[dict[str, str]] = {}


class RecallSetting(Struct, frozen=True, kw_only=True):
    """One setting of the playground."""

    k: int = DEFAULT_K
    min_relevance: float = _USUAL.min_relevance
    weights: Weights = _USUAL.weights
    what: str = "all"
    kind: str = ""

    def recall(
        self, memory: LongTermMemory, query: str, *, least: float | None = None, k: int = 0
    ) -> list[Recalled]:
        """Return what *query* recalls; *least* and *k* replace those of the setting."""
        return memory.recall(
            query,
            k or self.k,
            what=self.what,  # pyright: ignore[reportArgumentType] - the library checks it
            kinds=[self.kind] if self.kind else None,
            min_relevance=self.min_relevance if least is None else least,
            weights=self.weights,
            touch=False,
        )

    def parts(self, found: Recalled) -> tuple[float, float, float]:
        """Return the weighted parts of the score of *found*, which add up to it."""
        each = self.weights
        whole = each.similarity + each.recency + each.importance
        return (
            each.similarity / whole * found.similarity,
            each.recency / whole * found.recency,
            each.importance / whole * found.importance,
        )


class RecallRow(Struct, frozen=True, kw_only=True):
    """One result: its rank, the weighted parts of its score, why it is left out.

    `change` says how another setting ranks it.
    """

    rank: int
    found: Recalled
    parts: Sequence[float] = ()
    reason: str = ""
    change: str = ""


def show_recall(visit: Visit) -> Answer:
    """Show what a query recalls, and what it does not; nothing is recorded of it."""
    query, second = visit.text("q"), visit.text("second") == "1"
    values: dict[str, Any] = shared_values(visit, "Recall") | {
        "q": query,
        "second": second,
        "fields": [("", "Setting")] + ([(SECOND, "Second setting")] if second else []),
        "typed": _typed(visit),
        "kinds": [("", "any"), *KINDS],
        "whats": ["all", "items", "turns"],
        "most": RESULTS_MOST,
        "found": None,
    }
    memory = visit.hf.longterm(visit["user"], enabled=True, **place_of(visit))
    if memory is not None and query is not None:
        try:
            values["found"] = _found(visit, memory, query, second=second)
        except (InvalidInput, Refused, Unavailable) as error:
            visit.error = error
    return PageView(
        template="recall.html", title="Recall", section=SECTION, values=values, up=crumbs(visit)
    )


def _found(visit: Visit, memory: LongTermMemory, query: str, *, second: bool) -> dict[str, Any]:
    first = _setting(visit, "")
    results = first.recall(memory, query)
    rows = _rows(first, results)
    if second:
        other = _setting(visit, SECOND)
        theirs = _rows(other, other.recall(memory, query))
        return {
            "tables": [
                ("Setting A", _compared(rows, theirs)),
                ("Setting B", _compared(theirs, rows)),
            ],
            "left": None,
            **_block(results),
        }
    return {
        "tables": [("Results", rows)],
        "left": _left_out(first, results, first.recall(memory, query, least=0.0, k=RESULTS_MOST)),
        **_block(results),
    }


def _block(results: Sequence[Recalled]) -> dict[str, Any]:
    block = recalled_block(results)
    return {"block": block, "block_bytes": len(block.encode("utf-8", "replace"))}


def _rows(setting: RecallSetting, results: Sequence[Recalled]) -> list[RecallRow]:
    return [
        RecallRow(rank=rank, found=each, parts=setting.parts(each))
        for rank, each in enumerate(results, 1)
    ]


def _compared(rows: Sequence[RecallRow], others: Sequence[RecallRow]) -> list[RecallRow]:
    """Return *rows* with how far each is above or below its rank among *others*."""
    ranks = {each.found.id: each.rank for each in others}
    return [
        RecallRow(
            rank=row.rank, found=row.found, parts=row.parts, change=_change(row.rank, ranks, row)
        )
        for row in rows
    ]


def _change(rank: int, ranks: Mapping[str, int], row: RecallRow) -> str:
    other = ranks.get(row.found.id)
    if other is None:
        return "only here"
    if other == rank:
        return "same rank"
    return f"{abs(other - rank)} {'higher' if rank < other else 'lower'} than {other}"


def _left_out(
    setting: RecallSetting, results: Sequence[Recalled], all_found: Sequence[Recalled]
) -> list[RecallRow]:
    """Return what was found beyond *results*, each with its reason."""
    taken = {each.id for each in results}
    return [
        RecallRow(
            rank=rank,
            found=each,
            parts=setting.parts(each),
            reason=_reason(setting, each, len(results)),
        )
        for rank, each in enumerate(all_found, 1)
        if each.id not in taken
    ]


def _reason(setting: RecallSetting, found: Recalled, results: int) -> str:
    """Return why *found* is not among that many *results*."""
    if not results:
        return f"nothing reached the minimum relevance {short_number(setting.min_relevance)}"
    least = _USUAL.row_relevance if setting.min_relevance > 0 else 0.0
    if found.relevance < least:
        return f"relevance {short_number(found.relevance)} is under {short_number(least)}"
    if results < setting.k:
        # Alike in meaning, yet less than a row must be that has no word of the query.
        cosine = f"cosine {short_number(found.relevance)}"
        return f"{cosine} is under {short_number(_USUAL.min_cosine)}"
    return "beyond the first k"


def short_number(value: float) -> str:
    """Return *value* with two digits and no zero before the point."""
    shown = f"{value:.2f}"
    return shown.removeprefix("0") if shown.startswith("0.") else shown


# Settings


def _typed(visit: Visit) -> dict[str, str]:
    """Return what the fields of both settings show, by name."""
    usual = {
        "k": str(DEFAULT_K),
        "min_relevance": f"{_USUAL.min_relevance:g}",
        "similarity": f"{_USUAL.weights.similarity:g}",
        "recency": f"{_USUAL.weights.recency:g}",
        "importance": f"{_USUAL.weights.importance:g}",
        "what": "all",
        "kind": "",
    }
    return {
        f"{prefix}{name}": visit.query.get(f"{prefix}{name}", value)
        for prefix in ("", SECOND)
        for name, value in usual.items()
    }


def _setting(visit: Visit, prefix: str) -> RecallSetting:
    """Return the setting in the fields that begin with *prefix*."""
    weights = _USUAL.weights
    return RecallSetting(
        k=visit.number(f"{prefix}k", DEFAULT_K, least=1, most=RESULTS_MOST),
        min_relevance=_decimal(visit, f"{prefix}min_relevance", _USUAL.min_relevance),
        weights=Weights(
            _decimal(visit, f"{prefix}similarity", weights.similarity),
            _decimal(visit, f"{prefix}recency", weights.recency),
            _decimal(visit, f"{prefix}importance", weights.importance),
        ),
        what=visit.text(f"{prefix}what") or "all",
        kind=visit.query.get(f"{prefix}kind", ""),
    )


def _decimal(visit: Visit, name: str, default: float) -> float:
    given = visit.query.get(name, "").strip()
    if not given:
        return default
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(name, "must be a number", given=given) from None


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/people/{user}/recall", show_recall, bound="user"),
)
