"""Measures of a ranking: recall, nDCG, reciprocal rank."""

from collections.abc import Callable, Iterable, Sequence
from math import log2

from msgspec import Struct

from holdfast.library.evaluation import Id, LocomoQuestion

DEPTHS = (1, 5, 10, 20, 50)
FEW, DEEPEST = 10, 50
"""Depth of most measures, and depth of the reciprocal rank."""

Figures = dict[str, float]


class LocomoOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one question."""

    conversation: int
    category: str
    evidence: int
    """Number of turns of evidence."""
    ranks: tuple[int, ...]
    """Ranks of the evidence, from 1."""
    found: int
    """Number of turns recalled."""


def answered(
    conversation: int, question: LocomoQuestion, ranking: Sequence[Id | None]
) -> LocomoOutcome:
    """Return the ranks of the evidence in *ranking*."""
    ranks: dict[Id, int] = {}
    for rank, id in enumerate(ranking, 1):
        if id in question.evidence:
            ranks.setdefault(id, rank)
    return LocomoOutcome(
        conversation=conversation,
        category=question.category,
        evidence=len(question.evidence),
        ranks=tuple(ranks.values()),
        found=len(ranking),
    )


def figures(every: Sequence[LocomoOutcome], k: int | None = None) -> Figures:
    """Return the measures of *every*, each the mean over questions, to 4 places."""
    measured: dict[str, Callable[[LocomoOutcome], float]] = {
        f"recall@{depth}": _recall_at(depth) for depth in sorted({*DEPTHS, k or DEEPEST})
    }
    few = _recall_at(FEW)
    measured["any@10"] = lambda each: few(each) > 0
    measured["all@10"] = lambda each: few(each) == 1
    measured["ndcg@10"] = ndcg
    measured["mrr"] = reciprocal_rank
    return {"n": len(every)} | {name: mean(map(of, every)) for name, of in measured.items()}


def _recall_at(depth: int) -> Callable[[LocomoOutcome], float]:
    """Return the measure of the share of evidence in the first *depth*."""
    return lambda each: sum(rank <= depth for rank in each.ranks) / each.evidence


def reciprocal_rank(each: LocomoOutcome) -> float:
    """Return 1 / rank of the first evidence; 0 beyond the deepest rank."""
    return 1 / each.ranks[0] if each.ranks and each.ranks[0] <= DEEPEST else 0.0


def ndcg(each: LocomoOutcome) -> float:
    """Return nDCG@10: discounted gain as a share of the best possible."""
    gained = sum(1 / log2(rank + 1) for rank in each.ranks if rank <= FEW)
    return gained / sum(1 / log2(rank + 1) for rank in range(1, min(each.evidence, FEW) + 1))


def mean(values: Iterable[float]) -> float:
    """Return the mean to 4 places; 0 of none."""
    every = list(values)
    return round(sum(every) / len(every), 4) if every else 0.0
