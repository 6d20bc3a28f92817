"""Page of a hydration: what an agent sees within a budget, what it does not, why."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from holdfast.doors.console.pages.agents import SECTION, crumbs, tabs
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Visit,
    address,
    page,
)
from holdfast.ground.errors import InvalidInput
from holdfast.memories.durable.records import CORE, RANGES, DurableEntry, Explanation

SHOWN_BYTES: Final = 262_144
"""Bytes up to which the page shows what the model sees; more is a download."""
_LEAST, _MOST = RANGES["budget"]

DONE: Final[dict[str, str]] = {}


Spot = tuple[str, str]
"""The scope of an entry, and its key."""


class HydrationRow(Struct, frozen=True):
    """One candidate of a hydration: why it is in or out.

    `differs` says whether another budget decides otherwise.
    """

    explanation: Explanation
    entry: DurableEntry | None
    differs: bool


def show_hydration(visit: Visit) -> Answer:
    """Show the hydration within a budget, maybe beside that within another one."""
    agent = visit["agent"]
    durable = visit.hf.durable(agent)
    usual = durable.limits().budget
    budget, other, why = usual, None, None
    try:
        budget = visit.number("budget", usual, least=_LEAST, most=_MOST)
        if visit.text("other"):
            other = visit.number("other", usual, least=_LEAST, most=_MOST)
        if key := visit.text("why"):
            why = durable.explain(key, budget)
    except InvalidInput as error:
        visit.error = error
    hydration = durable.hydrate(budget)
    theirs: set[Spot] | None = None
    if other is not None:
        theirs = {(each.scope, each.key) for each in durable.hydrate(other).entries}
    rows = _rows(hydration.entries, hydration.explanations, theirs)
    left = [each for each in rows if each.entry is None]
    rendered = hydration.render()
    size = len(rendered.encode("utf-8", "replace"))
    values: dict[str, Any] = {
        "agent": agent,
        "tabs": tabs(agent, "Hydration"),
        "hydration": hydration,
        "usual": usual,
        "other": other,
        "why": why,
        "pinned": sum(each.size_bytes for each in hydration.entries if each.category == CORE),
        "largest": max((each.size_bytes for each in hydration.omitted), default=None),
        "taken": _part(visit, [each for each in rows if each.entry is not None], "in"),
        "left": _part(visit, left, "out"),
        "rendered": rendered if size <= SHOWN_BYTES else None,
        "rendered_bytes": size,
    }
    return PageView(
        template="hydration.html",
        title="Hydration",
        section=SECTION,
        values=values,
        up=crumbs(visit, agent),
    )


def _rows(
    chosen: Iterable[DurableEntry], explanations: Iterable[Explanation], theirs: set[Spot] | None
) -> list[HydrationRow]:
    """Return the candidates in the order considered.

    Marked are those on which the other budget decides differently; *theirs* are in within that one.
    """
    entries = {(each.scope, each.key): each for each in chosen}
    rows: list[HydrationRow] = []
    for each in explanations:
        spot = (each.scope or "agent", each.key)
        differs = theirs is not None and (spot in theirs) != each.hydrated
        rows.append(HydrationRow(each, entries.get(spot), differs))
    return rows


class _Part(Struct, frozen=True):
    """The rows of a table that one page shows; `total` counts those of all."""

    rows: list[HydrationRow]
    total: int
    first: str | None
    next: str | None


def _part(visit: Visit, rows: list[HydrationRow], name: str) -> _Part:
    """Return the page of *rows* that the address names, by the number before it."""
    limit = visit.limit
    after = visit.number(name, 0, least=0, most=10**6)
    query = {key: value for key, value in visit.query.items() if key != name}
    path = ("agents", visit["agent"], "hydration")
    following = after + limit
    return _Part(
        rows[after:following],
        len(rows),
        address(*path, **query) if after else None,
        address(*path, **query, **{name: following}) if following < len(rows) else None,
    )


def download_block(visit: Visit) -> Answer:
    """Give what the model sees as a file."""
    agent = visit["agent"]
    durable = visit.hf.durable(agent)
    budget = visit.number("budget", durable.limits().budget, least=_LEAST, most=_MOST)
    body = durable.hydrate(budget).render().encode("utf-8", "replace")
    return Download(name=f"{agent}-hydration.txt", type="text/plain", body=body)


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/agents/{agent}/hydration", show_hydration, bound="agent"),
    page("/agents/{agent}/hydration/text", download_block, bound="agent"),
)
