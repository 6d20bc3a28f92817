"""Who goes when a scope is full: pure rules over what is there, coldest first."""

from typing import Final, Literal

from msgspec import Struct

NEARLY_FULL: Final = 0.9
"""The share of the cap, held by core entries, from which each write of one says so."""


class ScopeSize(Struct, frozen=True, kw_only=True):
    """What a scope holds: all its entries, and those of them that are core."""

    entries: int
    core: int = 0


class Leaving(Struct, frozen=True, kw_only=True):
    """How many of the coldest windowed entries go, and how many of the coldest core ones."""

    windowed: int
    core: int


def who_goes(held: ScopeSize, *, cap: int, core: bool) -> Leaving | Literal["full"]:
    """Say what a new entry, which is *core* or not, costs a scope that holds *held*.

    Windowed entries go first, core ones where there is no other. `full`: the new one would be
    its own victim, so it is refused.
    """
    leaving = excess(held, cap=cap - 1)
    return "full" if leaving.core and not core else leaving


def excess(held: ScopeSize, *, cap: int) -> Leaving:
    """Return who goes for no more than *cap* entries to stay."""
    over = max(0, held.entries - cap)
    windowed = min(over, held.entries - held.core)
    return Leaving(windowed=windowed, core=over - windowed)


def crowded(core: int, cap: int) -> str | None:
    """Return the notice that *core* entries nearly fill *cap*, or None."""
    if core < NEARLY_FULL * cap:
        return None
    return (
        f"{core:,} of at most {cap:,} entries are core: beyond the cap"
        " the coldest core entry is evicted. Forget what is stale."
    )
