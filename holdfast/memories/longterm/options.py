"""How long-term memory is set: weights, thresholds, caps, and what is done with secrets."""

import math
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.score import Weights

MAX_ITEMS: Final = 500
"""Items of a collection, unless set otherwise; 0 is no cap."""

Credentials = Callable[[str, str], str | None]
Secrets = Literal["refuse", "redact"]


class LongTermOptions(Struct, frozen=True, kw_only=True):
    """How a collection is kept and recalled from. What is None is looked for elsewhere.

    `max_items` and `max_turns` are caps, 0 for none. `min_relevance` is what the best found must
    reach for anything to be recalled, `row_relevance` each of the rest, `min_cosine` the same by
    cosine. `dedupe_similarity` 0 keeps duplicates. `credentials(user_id, name)`, when given, is
    the only place that keys come from.
    """

    max_items: int | None = None
    max_turns: int = 0
    weights: Weights = Weights()
    half_life_days: float = 30
    min_relevance: float = 0.24
    row_relevance: float = 0.06
    min_cosine: float = 0.35
    cosine_weight: float = 0.5
    dedupe_similarity: float = 0.92
    secrets: Secrets = "refuse"
    embed_turns: bool = True
    mine: bool = True
    vector_provider: str | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.max_items is not None:
            checked_cap("max_items", self.max_items)
        checked_cap("max_turns", self.max_turns)
        if not isinstance(self.weights, Weights):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
            raise InvalidInput("weights", "must be Weights", given=self.weights)
        _checked("half_life_days", self.half_life_days, least=0.0, above=True)
        for name in ("min_relevance", "row_relevance", "min_cosine", "dedupe_similarity"):
            checked_share(name, getattr(self, name))
        _checked("cosine_weight", self.cosine_weight, least=0.0)
        if self.secrets not in ("refuse", "redact"):
            raise InvalidInput("secrets", 'must be "refuse" or "redact"', given=self.secrets)


def checked_cap(field: str, given: object) -> int:
    """Return *given* if it is a whole number of at least 0; else InvalidInput."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise InvalidInput(field, "must be a whole number of at least 0", given=given)
    return given


def checked_share(field: str, given: object) -> float:
    """Return *given* as a number from 0 to 1; else InvalidInput."""
    return _checked(field, given, least=0.0, most=1.0)


def _checked(
    field: str,
    given: object,
    *,
    least: float,
    most: float = math.inf,
    above: bool = False,
) -> float:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    if math.isfinite(number) and least <= number <= most and (number or not above):
        return float(number)
    wanted = f"0 to {most:g}" if most < math.inf else "at least 0"
    raise InvalidInput(field, f"must be {'above 0' if above else wanted}", given=given)
