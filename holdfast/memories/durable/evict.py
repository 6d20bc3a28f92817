"""Who goes when a scope is full: pure rules over what is there, coldest first."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

NEARLY_FULL = 0.9
"""The share of the cap, held by core entries, from which each write of one says so."""

Verdict = Literal["room", "windowed", "core", "full"]


class Held(Struct, frozen=True, kw_only=True):
    """What a scope holds: all its entries, and those of them that are core."""

    entries: int
    core: int


def who_goes(held: Held, *, cap: int, core: bool) -> Verdict:
    """Say what a new entry, which is *core* or not, costs a scope that holds *held*.

    `room`: nothing. `windowed`: the coldest windowed entry. `core`: the coldest core entry,
    where there is no other. `full`: the new one would be its own victim, so it is refused.
    """
    if held.entries < cap:
        return "room"
    if held.entries > held.core:
        return "windowed"
    return "core" if core else "full"


def excess(held: Held, *, cap: int) -> tuple[int, int]:
    """Return how many windowed and how many core entries go for *cap* to hold."""
    over = max(0, held.entries - cap)
    windowed = min(over, held.entries - held.core)
    return windowed, over - windowed


def crowded(core: int, cap: int) -> str | None:
    """Return the notice that *core* entries nearly fill *cap*, or None."""
    if core < NEARLY_FULL * cap:
        return None
    return (
        f"{core:,} of at most {cap:,} entries are core: past the cap the coldest core entry goes."
        " Forget what is stale."
    )


def named(keys: Sequence[str]) -> str:
    """Return the coldest *keys* as a refusal names them."""
    return ", ".join(keys)
