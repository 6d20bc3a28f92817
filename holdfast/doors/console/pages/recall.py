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
    RecallResult,
    Weights,
)

RESULTS_MOST: Final = 50
"""Results of one setting, so that a page of two has at most 100 rows."""
SECOND: Final = "b_"
"""Prefix of the fields of the second setting."""
_USUAL: Final = LongTermOptions()

_NO_STATEMENT: Final = "is no statement, or the query itself"
_SUPPRESSED: Final = {
    "phatic": "the query is small talk, which recalls nothing",
    "at_hand": "the query is about a text at hand, not about the person",
    "general": "the query is not about the person, and too few of its words are there",
}
"""Why rows are left out, by what a recall says it suppressed."""

DONE: Final[dict[str, str]] = {}


class RecallSetting(Struct, frozen=True, kw_only=True):
    """One setting of the playground."""

    k: int = DEFAULT_K
    min_relevance: float = _USUAL.min_relevance
    weights: Weights = _USUAL.weights
    what: str = "all"
    kind: str = ""
    at: str | None = None
    valid_at: str | None = None

    def recall(
        self,
        memory: LongTermMemory,
        query: str,
        *,
        least: float | None = None,
        k: int = 0,
        noise: bool = False,
    ) -> RecallResult:
        """Return what *query* recalls; *least* and *k* replace those of the setting."""
        return memory.recall(
            query,
            k or self.k,
            what=self.what,  # pyright: ignore[reportArgumentType] - the library checks it
            kinds=[self.kind] if self.kind else None,
            min_relevance=self.min_relevance if least is None else least,
            weights=self.weights,
            touch=False,
            at=self.at,
            valid_at=self.valid_at,
            noise=noise,
            explain=True,
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
        "left": _left_out(memory, query, first, results),
        **_block(results),
    }


def _block(results: RecallResult) -> dict[str, Any]:
    block = recalled_block(results)
    return {
        "block": block,
        "block_bytes": len(block.encode("utf-8", "replace")),
        "why_none": _reason_of_query({each.reason for each in results.suppressed}),
    }


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
    memory: LongTermMemory, query: str, setting: RecallSetting, results: RecallResult
) -> list[RecallRow]:
    """Return what is found beyond *results*, each with its reason."""
    suppressed = {each.reason for each in results.suppressed}
    reasons = {id: f"says the same as {n}" for n, row in enumerate(results, 1) for id in row.also}
    if suppressed & {"noise", "echo"}:
        noisy = setting.recall(memory, query, k=RESULTS_MOST, noise=True)
        plain = setting.recall(memory, query, k=RESULTS_MOST)
        known = {each.id for each in plain}
        reasons |= {each.id: _NO_STATEMENT for each in noisy if each.id not in known}
    taken = {each.id for each in results}
    return [
        RecallRow(
            rank=rank,
            found=each,
            parts=setting.parts(each),
            reason=reasons.get(each.id) or _reason(setting, each, len(results), suppressed),
        )
        for rank, each in enumerate(setting.recall(memory, query, least=0.0, k=RESULTS_MOST), 1)
        if each.id not in taken
    ]


def _reason(setting: RecallSetting, found: Recalled, results: int, suppressed: set[str]) -> str:
    """Return why *found* is not among the *results*, some rows being *suppressed*."""
    of_query = _reason_of_query(suppressed)
    if of_query and results < setting.k:
        return of_query
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


def _reason_of_query(suppressed: set[str]) -> str:
    """Return why a query is answered by few rows or none, empty if it is like others."""
    return next((said for name, said in _SUPPRESSED.items() if name in suppressed), "")


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
    moments = {name: visit.query.get(name, "") for name in ("at", "valid_at")}
    return moments | {
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
        at=visit.text("at"),
        valid_at=visit.text("valid_at"),
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
