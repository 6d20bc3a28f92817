"""From how well rows answer to what is recalled: whether at all, in which order, and why."""

from collections.abc import Mapping
from math import isfinite
from typing import Literal

from msgspec import Struct

from holdfast.ground.errors import InvalidInput

What = Literal["all", "items", "turns"]


class Weights(Struct, frozen=True):
    """How much counts what: how well it fits, how fresh it is, how important it was said to be."""

    similarity: float = 0.7
    recency: float = 0.2
    importance: float = 0.1

    def __post_init__(self) -> None:
        """Refuse weights that order nothing."""
        each = (self.similarity, self.recency, self.importance)
        if not all(isfinite(weight) and weight >= 0 for weight in each):
            raise InvalidInput("weights", "must be numbers of at least 0")
        if sum(each) <= 0:
            raise InvalidInput("weights", "must not all be 0")


class RecallOptions(Struct, frozen=True, kw_only=True):
    """What a recall is to give."""

    k: int = 5
    what: What = "all"
    kinds: frozenset[str] | None = None
    """Of items, only these kinds; and then no turns."""
    weights: Weights = Weights()
    half_life_days: float = 30
    min_relevance: float = 0.24
    row_relevance: float = 0.06
    min_cosine: float = 0.35
    cosine_weight: float = 0.5


class Ranked(Struct, frozen=True, kw_only=True):
    """A row that answers, and why; all numbers but those of *why* from 0 to 1."""

    id: str
    score: float
    similarity: float
    relevance: float
    recency: float
    importance: float
    why: Mapping[str, object]
