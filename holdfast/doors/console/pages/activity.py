"""Pages of what happened and whether all is well: events, checks, sizes, numbers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from holdfast.doors.console.pages.overview import growth_of
from holdfast.doors.console.pages.runs import POLL, is_crowded
from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    Fragment,
    Live,
    PageView,
    Visit,
    act,
    address,
    page,
    pager,
    stream,
)
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.events import Event, EventBus
from holdfast.ground.pages import Page
from holdfast.library import directory, upkeep
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import Check

SECTION: Final = "Activity"
HEALTH: Final = "Health"
DONE: Final[dict[str, str]] = {}

# Denied access: events that no database stores, since who is refused may not write.

DENIED: Final = "access.denied"
DENIED_MOST: Final = 50
"""Refusals that a process remembers."""

_denied: "WeakKeyDictionary[EventBus, deque[Event]]" = WeakKeyDictionary()


def watch(events: EventBus) -> None:
    """Remember the last refusals among *events*; a repeat changes nothing."""
    if events not in _denied:
        last: deque[Event] = deque(maxlen=DENIED_MOST)
        _denied[events] = last
        events.subscribe(last.append, types=(DENIED,))


# Events


class EventQuery(Struct, frozen=True, kw_only=True):
    """The filters in the address of the page; what is None admits every event."""

    types: tuple[str, ...] | None
    owner: str | None
    id: str | None
    actor: str | None

    def admits(self, event: Event) -> bool:
        """Return whether *event*, which is not stored, passes."""
        by = event.actor.id if event.actor else None
        among = {part for each in event.ids.values() for part in each.split(" ")}
        return (
            (self.types is None or event.type in self.types)
            and self.owner in (None, event.owner)
            and (self.id is None or self.id in among)
            and self.actor in (None, by)
        )


def _query(visit: Visit) -> EventQuery:
    given = (part.strip() for each in visit.ticks("types") for part in each.split(","))
    return EventQuery(
        types=tuple(filter(None, given)) or None,
        owner=visit.text("owner"),
        id=visit.text("id"),
        actor=visit.text("actor"),
    )


def list_activity(visit: Visit) -> Answer:
    """Show what happened, newest first, as far as it is kept."""
    try:
        query, found = _listed(visit)
    except InvalidInput as error:
        query, found, visit.error = _query(visit), Page[Event]([], None), error
    live = visit.text("live") == "1" and visit.page is None
    filters = {"types": ", ".join(query.types or ()), "owner": query.owner, "id": query.id}
    address_now = {name: each for name, each in visit.query.items() if name != "done"}
    values = _event_values(visit, query, found) | {
        "filters": {name: each or "" for name, each in (filters | {"actor": query.actor}).items()},
        "pager": pager(visit, found, "activity"),
        "live": live,
        "stream": address("activity", "live", **address_now) if live else None,
    }
    return PageView(template="activity.html", title="Activity", section=SECTION, values=values)


def _listed(visit: Visit) -> tuple[EventQuery, Page[Event]]:
    query = _query(visit)
    return query, visit.hf.activity(
        query.types,
        owner=query.owner,
        id=query.id,
        actor=query.actor,
        limit=visit.limit,
        page=visit.page,
    )


def _event_values(
    visit: Visit, query: EventQuery, found: Page[Event], unstored: Sequence[Event] = ()
) -> dict[str, Any]:
    """Return what the table shows; its first page has events that are not stored."""
    events = list(found.data)
    if visit.page is None:
        others = [*_denied.get(visit.server.hf.events, ()), *unstored]
        oldest = events[-1].at if events and found.next_page else None
        kept = [
            each
            for each in sorted(others, key=_at, reverse=True)
            if _is_shown(visit, each) and query.admits(each) and (not oldest or each.at >= oldest)
        ]
        # Stored ones stay in their order.
        room = min(DENIED_MOST, ROWS_MOST - len(events))
        events = list(merge(events, kept[:room], key=_at, reverse=True))
    given = (query.types, query.owner, query.id, query.actor)
    return {
        "events": events,
        "denied": DENIED,
        "filtered": any(each is not None for each in given),
        "looked": not found.data and found.next_page is not None,
        "poll": None,
        "trigger": POLL,
    }


def _at(event: Event) -> datetime:
    return event.at


def _is_shown(visit: Visit, event: Event) -> bool:
    """Return whether *event* is the workspace's; admins see those of none, too."""
    if not event.workspace:
        return visit.visitor.may("admin")
    return event.workspace == visit.visitor.workspace


# Live

LOOKS_EVERY: Final = 2.0
"""Seconds after which the database is looked at, for what other processes wrote."""
_LOGGED_MOST: Final = 20


def poll_activity(visit: Visit) -> Answer:
    """Return the events as they are now, for a page that is not live."""
    values = _event_values(visit, *_listed(visit))
    poll = address("activity", "poll", **visit.query)
    return Fragment(template="activity_live.html", values={**values, "poll": poll})


async def follow_activity(visit: Visit) -> Live | Answer:
    """Send the events again whenever there are new ones."""
    if is_crowded():
        return await visit.server.run(partial(poll_activity, visit))
    return Live(_follow(visit))


async def _follow(visit: Visit) -> AsyncIterator[tuple[int | None, str, str]]:
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    unstored: deque[Event] = deque(maxlen=_LOGGED_MOST)

    def notice(event: Event) -> None:
        if event.workspace in ("", visit.visitor.workspace):
            if not event.seq and event.type != DENIED:
                unstored.append(event)
            loop.call_soon_threadsafe(news.set)

    off = visit.server.hf.events.subscribe(notice)
    seen: list[tuple[datetime, str, int]] | None = None
    try:
        while True:
            news.clear()
            seen, html = await visit.server.run(partial(_changed, visit, tuple(unstored), seen))
            if html is not None:
                yield None, "", html
            try:
                await asyncio.wait_for(news.wait(), LOOKS_EVERY)
            except TimeoutError:
                continue
    finally:
        off()


def _changed(
    visit: Visit, unstored: Sequence[Event], seen: list[tuple[datetime, str, int]] | None
) -> tuple[list[tuple[datetime, str, int]], str | None]:
    """Return what the events are, and their table unless they are as *seen*."""
    values = _event_values(visit, *_listed(visit), unstored)
    now = [(each.at, each.type, each.seq) for each in values["events"]]
    if now == seen:
        return now, None
    return now, visit.render("activity_live.html", values)


# Health

EXAMINED_FOR: Final = timedelta(minutes=10)
"""How long the overview repeats what an examination found."""
EXAMINED_AGAIN: Final = timedelta(seconds=5)
"""How long the page of checks does, however often it is opened."""


class _Examination(Struct, frozen=True):
    at: datetime
    checks: tuple[Check, ...]


_examined: "WeakKeyDictionary[Holdfast, _Examination]" = WeakKeyDictionary()
_examining: Final = Lock()


def _examine(visit: Visit, most: timedelta) -> _Examination:
    """Return the checks of the database, examined *most* ago at most.

    One examination runs at a time: it reads the whole database.
    """
    root = visit.server.hf
    with _examining:
        last = _examined.get(root)
        if last is None or visit.now - last.at >= most:
            last = _examined[root] = _Examination(visit.now, tuple(upkeep.doctor.doctor(root)))
        return last


class _Number(Struct, frozen=True):
    """A metric that matters: the sum of its samples, and a sentence."""

    name: str
    says: str


METRICS: Final = (
    _Number("http_requests_total", "Requests that this process answered since it started."),
    _Number("http_auth_failures_total", "Requests refused for want of a valid credential."),
    _Number("store_writes_total", "Versions of memories that were made."),
    _Number("store_conflicts_total", "Writes that met a newer state, and changed nothing."),
    _Number("durable_stored_total", "Writes of durable entries, with any outcome."),
    _Number("durable_evicted_total", "Durable entries that made room for others."),
    _Number("durable_omitted_entries_total", "Durable entries that no longer fitted a prompt."),
    _Number("durable_sweep_lag_seconds", "Seconds since the oldest entry expired unswept."),
    _Number("ltm_items", "Items of long-term memory, in all workspaces."),
    _Number("ltm_turns", "Turns of long-term memory, in all workspaces."),
    _Number("ltm_recall_empty_total", "Recalls that found nothing."),
    _Number("ltm_jobs", "Mining and embedding that is queued, running or failed."),
    _Number("run_live", "Run memories that report to this process now."),
    _Number("engine_queue", "Writes that wait for the database now."),
    _Number("engine_retries_total", "Transactions that were tried again."),
    _Number("engine_erasure_pending", "Erasures that wait until readers end."),
    _Number("console_live", "Pages of the console that are live now."),
)


class NumberRow(Struct, frozen=True):
    """A metric with its value, for the page."""

    name: str
    value: str
    says: str


def numbers_in(text: str) -> list[NumberRow]:
    """Return the metrics that matter, from *text* as Prometheus reads it."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            sample, _, value = line.rpartition(" ")
            name = sample.partition("{")[0].removeprefix("holdfast_")
            sums[name] = sums.get(name, 0.0) + float(value)
    return [
        NumberRow(f"holdfast_{each.name}", f"{sums[each.name]:,.10g}", each.says)
        for each in METRICS
        if each.name in sums
    ]


def show_health(visit: Visit) -> Answer:
    """Show sizes, growth and numbers; the checks come after the page."""
    return _health_view(visit)


def show_verified(visit: Visit) -> Answer:
    """Verify the database, and show the page with what was found."""
    return _health_view(visit, _findings(visit))


def _health_view(visit: Visit, verified: Mapping[str, Any] | None = None) -> PageView:
    may = visit.visitor.may("admin")
    status = visit.hf.engine.status()
    samples = visit.hf.samples()
    values = {
        "status": status,
        "held": directory.holdings(visit.hf),
        "sample": samples[-1] if samples else None,
        "growth": growth_of(visit),
        "numbers": numbers_in(visit.server.metrics_text()),
        # Without script the page with the checks is one of its own.
        "examined": _checks(visit) if may and visit.text("checks") == "1" else None,
        "verified": verified,
    }
    return PageView(template="health.html", title="Health", section=HEALTH, values=values)


def show_checks(visit: Visit) -> Answer:
    """Return the table of checks, once the database was examined."""
    return Fragment(template="health_checks.html", values=_checks(visit))


def _checks(visit: Visit) -> Mapping[str, Any]:
    try:
        found = _examine(visit, EXAMINED_AGAIN)
    except HoldfastError as error:
        return {"checks": None, "failure": error}
    return {"checks": found.checks, "failure": None}


def show_failed(visit: Visit) -> Answer:
    """Return the checks that failed within ten minutes, for the overview."""
    try:
        failed = [each for each in _examine(visit, EXAMINED_FOR).checks if not each.ok]
    except HoldfastError as error:
        return Fragment(template="health_failed.html", values={"failed": [], "failure": error})
    return Fragment(template="health_failed.html", values={"failed": failed, "failure": None})


def verify(visit: Visit) -> Answer:
    """Verify the database, and return what was found as a part of the page."""
    return Fragment(template="health_findings.html", values=_findings(visit))


FINDINGS_MOST: Final = 100


def _findings(visit: Visit) -> Mapping[str, Any]:
    try:
        with _examining:
            report = visit.hf.verify(quick=True)
    except HoldfastError as error:
        return {"report": None, "failure": error}
    return {
        "report": report,
        "findings": report.findings[:FINDINGS_MOST],
        "beyond": max(0, len(report.findings) - FINDINGS_MOST),
        "failure": None,
    }


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/activity", list_activity),
    stream("/activity/live", follow_activity),
    page("/activity/poll", poll_activity),
    page("/health", show_health),
    page("/health/checks", show_checks, needs="admin"),
    page("/health/failed", show_failed, needs="admin"),
    act("/health", show_verified, needs="admin"),
    act("/health/verification", verify, needs="admin"),
)
