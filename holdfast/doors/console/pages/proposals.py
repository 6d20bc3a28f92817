"""Pages of consolidation: what jobs propose to a person, store or agent."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.doors.console.diffs import DiffRow, diff_rows
from holdfast.doors.console.pages import agents, people, stores
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    page,
    pager,
)
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.longterm.consolidation.records import Consolidation, ProposedChange

DONE: Final = {
    "applied": "What was ticked is done.",
    "applied-part": "What was ticked is done, but for what changed since it was proposed.",
    "proposal-rejected": "The open changes were rejected: nothing was changed.",
    "unapplied": "What was accepted is undone.",
    "unapplied-part": "What was accepted is undone, but for what was changed since.",
}

OwnerField = Literal["user", "store", "agent"]


class ProposalPlace(Struct, frozen=True):
    """The pages of one person, store or agent, to which proposals belong.

    `values` are those of its navigation, `given` what creates and lists its jobs.
    """

    label: str
    section: str
    path: tuple[str, ...]
    query: dict[str, Any]
    up: tuple[tuple[str, str], ...]
    values: dict[str, Any]
    given: dict[str, Any]
    name: str
    field: OwnerField

    def where(self, *below: str, **query: object) -> str:
        """Return the address of a page of its proposals."""
        return address(*self.path, "proposals", *below, **self.query, **query)

    def owns(self, job: Consolidation) -> bool:
        """Check that *job* is one of its own."""
        return getattr(job, self.field) == self.name


PlaceOf = Callable[[Visit], ProposalPlace]


def _person(visit: Visit) -> ProposalPlace:
    query = {name: visit.query.get(name) for name in ("namespace", "workspace_id")}
    return ProposalPlace(
        label="Person",
        section=people.SECTION,
        path=("people", visit["user"]),
        query=query,
        up=people.crumbs(visit),
        values=people.shared_values(visit, "Proposals"),
        given={"user": visit["user"], **people.place_of(visit)},
        name=visit["user"],
        field="user",
    )


def _store(visit: Visit) -> ProposalPlace:
    store = visit.hf.memory_stores.retrieve(visit["s"])
    return ProposalPlace(
        label="Store",
        section=stores.SECTION,
        path=("stores", store.id),
        query={},
        up=(*stores.crumbs(), (store.name, address("stores", store.id))),
        values={"tabs": stores.tabs(store, "Proposals"), "off": False},
        given={"store": store.id},
        name=store.id,
        field="store",
    )


def _agent(visit: Visit) -> ProposalPlace:
    agent = visit["agent"]
    return ProposalPlace(
        label="Agent",
        section=agents.SECTION,
        path=("agents", agent),
        query={},
        up=agents.crumbs(visit, agent),
        values={"tabs": agents.tabs(agent, "Proposals"), "off": False},
        given={"agent": agent},
        name=agent,
        field="agent",
    )


class ShownText(Struct, frozen=True):
    """A file, an entry or the items of a change, as rows of a diff, below its name."""

    name: str | None
    rows: tuple[DiffRow, ...]


class ShownChange(Struct, frozen=True):
    """A proposed change, and its texts before and after it."""

    change: ProposedChange
    texts: tuple[ShownText, ...]


def list_proposals(place_of: PlaceOf, visit: Visit) -> Answer:
    """Show the jobs that proposed changes to one memory, newest first."""
    place = place_of(visit)
    mine: dict[str, Any] = {place.field: place.name}
    found = visit.hf.consolidations.list(limit=visit.limit, page=visit.page, **mine)
    values = place.values | {
        "jobs": found.data,
        "place": place,
        "pager": pager(visit, found, *place.path, "proposals"),
    }
    return PageView(
        template="proposals.html",
        title="Proposals",
        section=place.section,
        values=values,
        up=place.up,
    )


def propose(place_of: PlaceOf, visit: Visit) -> Answer:
    """Start a job that proposes changes by rules; it changes nothing itself."""
    place = place_of(visit)
    _demand_on(place)
    return Redirect(place.where(visit.hf.consolidations.create(**place.given).id))


def show_proposal(place_of: PlaceOf, visit: Visit) -> Answer:
    """Show what a job proposes, as diffs, and what was decided on each."""
    place, job = _proposal(place_of, visit)
    changes = job.proposal.changes
    values = place.values | {
        "place": place,
        "job": job,
        "changes": [ShownChange(each, _texts(each)) for each in changes],
        "open": any(each.state == "open" for each in changes),
        "acceptable": any(each.state == "open" and each.op != "conflict" for each in changes),
        "applied": any(each.state == "applied" for each in changes),
        "ended": job.ended_at is not None,
    }
    up = (*place.up, ("Proposals", place.where()))
    return PageView(
        template="proposal.html", title="Proposal", section=place.section, values=values, up=up
    )


def accept_proposal(place_of: PlaceOf, visit: Visit) -> Answer:
    """Apply the ticked changes of a proposal, in one transaction."""
    place, job = _proposal(place_of, visit)
    _demand_on(place)
    ticked = visit.ticks("change")
    if not ticked:
        raise InvalidInput("change", "is not ticked", next="Tick what is to be done.")
    stale = visit.hf.consolidations.accept(job.id, ticked).stale
    return Redirect(place.where(job.id, done="applied-part" if stale else "applied"))


def reject_proposal(place_of: PlaceOf, visit: Visit) -> Answer:
    """Reject the open changes of a proposal."""
    place, job = _proposal(place_of, visit)
    visit.hf.consolidations.reject(job.id)
    return Redirect(place.where(job.id, done="proposal-rejected"))


def undo_proposal(place_of: PlaceOf, visit: Visit) -> Answer:
    """Undo what was accepted of a proposal, but for what was changed since."""
    place, job = _proposal(place_of, visit)
    _demand_on(place)
    undone = visit.hf.consolidations.undo(job.id)
    return Redirect(place.where(job.id, done="unapplied-part" if undone.kept else "unapplied"))


def _demand_on(place: ProposalPlace) -> None:
    if place.field == "user":
        people.demand_on()


def _proposal(place_of: PlaceOf, visit: Visit) -> tuple[ProposalPlace, Consolidation]:
    """Return the job of the address; raise NotFound if it is of another memory."""
    place, job = place_of(visit), visit.hf.consolidations.retrieve(visit["job"])
    if not place.owns(job):
        raise NotFound("consolidation", visit["job"], next="Look at the list of proposals.")
    return place, job


def _texts(change: ProposedChange) -> tuple[ShownText, ...]:
    """Return the diffs of *change*: of its items together, or of each file or entry."""
    if not change.texts:
        rows = _diff(change.diff)
        return (ShownText(None, rows),) if rows else ()
    return tuple(
        ShownText(
            each.place if each.to is None else f"{each.place} → {each.to}",
            diff_rows(each.before or "", each.after or ""),
        )
        for each in change.texts
    )


def _diff(unified: str) -> tuple[DiffRow, ...]:
    """Return the rows of a *unified* diff."""
    lines = [each for each in unified.splitlines() if not each.startswith(("---", "+++", "@@"))]
    before = "\n".join(each[1:] for each in lines if each[:1] in {"-", " "})
    return diff_rows(before, "\n".join(each[1:] for each in lines if each[:1] in {"+", " "}))


def _routes(
    above: str, place_of: PlaceOf, bound: Literal["never", "user"]
) -> tuple[ConsoleRoute, ...]:
    all_of, one = f"{above}/proposals", f"{above}/proposals/{{job}}"
    listed, shown = partial(list_proposals, place_of), partial(show_proposal, place_of)
    return (
        page(all_of, listed, bound=bound),
        act(all_of, partial(propose, place_of), bound=bound, again=listed),
        page(one, shown, bound=bound),
        act(f"{one}/accept", partial(accept_proposal, place_of), bound=bound, again=shown),
        act(f"{one}/reject", partial(reject_proposal, place_of), bound=bound, again=shown),
        act(f"{one}/undo", partial(undo_proposal, place_of), bound=bound, again=shown),
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    *_routes("/people/{user}", _person, "user"),
    *_routes("/stores/{s}", _store, "never"),
    *_routes("/agents/{agent}", _agent, "never"),
)
