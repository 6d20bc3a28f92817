"""The first page: what there is, what is new, what needs a person."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from holdfast.doors.console.pages.runs import BADGES
from holdfast.doors.console.views import Answer, ConsoleRoute, PageView, Visit, address
from holdfast.library import directory
from holdfast.library.directory import Concern, ConcernKind

SECTION: Final = "Overview"
NEWEST: Final = 5
"""Rows of each region."""
CONCERNS: Final = 5
"""Most lines of one kind below `Needs attention`."""

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
"""None: the address of the console itself is routed by its app."""
DONE: Final[dict[str, str]] = {}


class AttentionLine(Struct, frozen=True, kw_only=True):
    """A line below `Needs attention`: its subject, a sentence, an address.

    `subject` is a name that others chose, or "".
    """

    subject: str
    says: str
    href: str
    grave: bool = False


def show(visit: Visit) -> Answer:
    """Show what the workspace holds, what is new in it, and what needs a person."""
    hf = visit.hf
    stores = hf.memory_stores.list(limit=NEWEST).data
    values = {
        "held": directory.holdings(hf),
        "stores": stores,
        "sizes": hf.memory_stores.sizes(each.id for each in stores),
        "agents": directory.newest_agents(hf, NEWEST),
        "collections": directory.newest_collections(hf, NEWEST),
        "runs": hf.runs.list(limit=NEWEST).data,
        "badges": BADGES,
        "lines": [line_of(each) for each in directory.concerns(hf, visit.now, CONCERNS)],
        "growth": growth_of(visit),
    }
    return PageView(template="overview.html", title="Overview", section=SECTION, values=values)


def growth_of(visit: Visit) -> list[tuple[str, int]]:
    """Return the bytes of the database by day."""
    return [(each.day.isoformat(), each.bytes) for each in visit.hf.samples()]


def line_of(concern: Concern) -> AttentionLine:
    """Return the line about *concern*, with a link to where it can be looked at."""
    subject, says, href = _SAID[concern.kind](concern)
    grave = concern.kind in {"failed_work", "lost_run"}
    return AttentionLine(subject=subject, says=says, href=href, grave=grave)


def _full(concern: Concern, what: str) -> str:
    return f"holds {concern.held:,} of {concern.cap:,} {what}"


def _expires(concern: Concern) -> str:
    return f"{concern.held:,} {'entry expires' if concern.held == 1 else 'entries expire'}"


def _work(concern: Concern) -> tuple[str, str, str]:
    where = {"namespace": concern.name, "workspace_id": concern.more}
    jobs = "job of mining or embedding" if concern.held == 1 else "jobs of mining or embedding"
    href = address("people", concern.id, "status", **where)
    return concern.id, f"{concern.held:,} {jobs} failed for good", href


def _held(concern: Concern) -> tuple[str, str, str]:
    where = {"namespace": concern.name, "workspace_id": concern.more}
    waits = "row waits" if concern.held == 1 else "rows wait"
    href = address("people", concern.id, "held", **where)
    return concern.id, f"{concern.held:,} held {waits} for a decision", href


_SAID: Final[Mapping[ConcernKind, Callable[[Concern], tuple[str, str, str]]]] = {
    "store_full": lambda each: (
        each.name, _full(each, "memories"), address("stores", each.id),
    ),
    "agent_full": lambda each: (
        each.id, _full(each, "entries"), address("agents", each.id, "limits"),
    ),
    "shared_full": lambda each: ("", f"The workspace {_full(each, 'entries')}", address("agents")),
    "expiring": lambda each: (
        each.id, f"{_expires(each)} within a day", address("agents", each.id, category="daily"),
    ),
    "shared_expiring": lambda each: (
        "", f"{_expires(each)} within a day in the workspace", address("agents"),
    ),
    "failed_work": _work,
    "held_rows": _held,
    "lost_run": lambda each: (
        each.name, "The run gives no sign of life", address("runs", each.id),
    ),
    "erasure": lambda each: (
        "", f"{each.held:,} erasures wait until readers end", address("health"),
    ),
}  # fmt: skip
"""For each kind: its subject, the sentence, the address."""
