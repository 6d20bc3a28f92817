"""Pages of agents: the list, and one agent's entries, history, limits and export."""

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast, get_args
from zipfile import ZIP_DEFLATED, ZipFile

from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    page,
    pager,
)
from holdfast.ground.errors import InvalidInput, PreconditionFailed
from holdfast.memories.durable.records import (
    CATEGORIES,
    CONVERSATION,
    RANGES,
    DurableLimits,
    Op,
)

SECTION: Final = "Agents"
CHOSEN: Final = tuple(each for each in CATEGORIES if each != CONVERSATION)
"""Categories of entries that need no run."""
OPS: Final[tuple[str, ...]] = get_args(Op)
_OWN_LIMITS: Final = ("cap", "run_cap", "content_bytes", "budget", "daily_hours")
"""Limits that an agent may have of its own."""

DONE: Final = {
    "entry-created": "The entry was created.",
    "limits-saved": "The limits were saved.",
}


def crumbs(visit: Visit, agent: str | None = None) -> tuple[tuple[str, str], ...]:
    """Return the links above a page of *agent*, as far as the visitor may follow them."""
    first = () if visit.visitor.bound else (("Agents", address("agents")),)
    return first if agent is None else (*first, (agent, address("agents", agent)))


def tabs(agent: str, current: str) -> list[tuple[str, str, bool]]:
    """Return the navigation of one agent."""
    found = (
        ("Entries", address("agents", agent)),
        ("Hydration", address("agents", agent, "hydration")),
        ("History", address("agents", agent, "history")),
        ("Proposals", address("agents", agent, "proposals")),
        ("Limits", address("agents", agent, "limits")),
    )
    return [(label, target, label == current) for label, target in found]


def written_category(visit: Visit) -> str:
    """Return the category that a form names: one of its own, else the chosen one."""
    return visit.form.get("own_category", "").strip() or visit.written("category")


def written_tags(visit: Visit) -> list[str]:
    """Return the tags that a form holds, a line each."""
    return [each for each in map(str.strip, visit.written("tags").split("\n")) if each]


def list_agents(visit: Visit) -> Answer:
    """Show the agents of the workspace that have durable memory, by name."""
    found = visit.hf.durable_agents(limit=visit.limit, page=visit.page)
    values = {"agents": found.data, "pager": pager(visit, found, "agents")}
    return PageView(template="agents.html", title="Agents", section=SECTION, values=values)


def show_agent(visit: Visit) -> Answer:
    """Show the entries of an agent, newest first, as far as they pass the filter."""
    agent = visit["agent"]
    tag = visit.text("tag")
    found = visit.hf.durable(agent).list(
        category=visit.text("category"),
        tags=[tag] if tag else None,
        key_prefix=visit.text("prefix"),
        query=visit.text("words"),
        limit=visit.limit,
        page=visit.page,
    )
    filters = {name: visit.query.get(name, "") for name in ("category", "tag", "words", "prefix")}
    values = {
        "agent": agent,
        "tabs": tabs(agent, "Entries"),
        "entries": found.data,
        "filters": filters,
        "filtered": any(filters.values()),
        "categories": CATEGORIES,
        "pager": pager(visit, found, "agents", agent),
    }
    return PageView(
        template="agent.html", title=agent, section=SECTION, values=values, up=crumbs(visit)
    )


def entry_form(visit: Visit) -> Answer:
    """Show the form of a new entry."""
    taken = None
    if isinstance(visit.error, PreconditionFailed):
        taken = address("agents", visit["agent"], "entries", visit.written("key"))
    values = {"agent": visit["agent"], "categories": CHOSEN, "taken": taken}
    return PageView(
        template="entry_new.html",
        title="New entry",
        section=SECTION,
        values=values,
        up=crumbs(visit, visit["agent"]),
    )


def create_entry(visit: Visit) -> Answer:
    """Create an entry from the form, unless its key is taken."""
    agent, key = visit["agent"], visit.written("key")
    visit.hf.durable(agent).set(
        key,
        visit.written("content"),
        category=written_category(visit),
        tags=written_tags(visit),
        expected_seq=0,
    )
    return Redirect(address("agents", agent, "entries", key, done="entry-created"))


def list_history(visit: Visit) -> Answer:
    """Show the changes of an agent's entries, newest first."""
    agent, op = visit["agent"], visit.text("op")
    if op is not None and op not in OPS:
        raise InvalidInput("op", f"must be one of {', '.join(OPS)}", given=op)
    found = visit.hf.durable(agent).history(
        visit.text("key"), op=cast("Op | None", op), limit=visit.limit, page=visit.page
    )
    values = {
        "agent": agent,
        "tabs": tabs(agent, "History"),
        "changes": found.data,
        "filters": {name: visit.query.get(name, "") for name in ("key", "op")},
        "ops": [("", "any"), *OPS],
        "pager": pager(visit, found, "agents", agent, "history"),
    }
    return PageView(
        template="agent_history.html",
        title="History",
        section=SECTION,
        values=values,
        up=crumbs(visit, agent),
    )


def show_limits(visit: Visit) -> Answer:
    """Show the limits in force for an agent, beside those of the workspace."""
    agent = visit["agent"]
    own, shared = visit.hf.durable(agent).limits(), visit.hf.durable_limits()
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "value": getattr(own, name),
            "shared": getattr(shared, name),
            "usual": getattr(DurableLimits(), name),
            "least": RANGES[name][0],
            "most": RANGES[name][1],
            "own": name in _OWN_LIMITS,
        }
        for name in DurableLimits.__struct_fields__
    ]
    values = {"agent": agent, "tabs": tabs(agent, "Limits"), "rows": rows}
    return PageView(
        template="agent_limits.html",
        title="Limits",
        section=SECTION,
        values=values,
        up=crumbs(visit, agent),
    )


def save_limits(visit: Visit) -> Answer:
    """Save the agent's own limits; an empty field restores the workspace's."""
    agent = visit["agent"]
    durable = visit.hf.durable(agent)
    before, shared = durable.limits(), visit.hf.durable_limits()
    changed: dict[str, int | None] = {}
    for name in _OWN_LIMITS:
        given = visit.written(name).strip().replace(",", "")
        if given and not (given.isascii() and given.isdecimal()):
            raise InvalidInput(name, "must be a whole number, or empty", given=given)
        # Python refuses to convert numbers of thousands of digits.
        number = int(given[:18]) if given else None
        if number != (getattr(before, name) if number is not None else getattr(shared, name)):
            changed[name] = number
    if changed:
        durable.set_limits(evict=visit.form.get("evict") == "1", **changed)
    return Redirect(address("agents", agent, "limits", done="limits-saved"))


def export_markdown(visit: Visit) -> Answer:
    """Give the agent's entries as Markdown files in one archive, for review."""
    agent, packed = visit["agent"], io.BytesIO()
    with TemporaryDirectory() as folder, ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        top = Path(folder) / agent
        visit.hf.durable(agent).export_markdown(top)
        for file in sorted(each for each in top.rglob("*") if each.is_file()):
            archive.write(file, file.relative_to(folder))
    return Download(name=f"{agent}.zip", type="application/zip", body=packed.getvalue())


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/agents", list_agents),
    page("/agents/{agent}", show_agent, bound="agent"),
    page("/agents/{agent}/new", entry_form, needs="write", bound="agent"),
    act("/agents/{agent}/new", create_entry, bound="agent", again=entry_form),
    page("/agents/{agent}/history", list_history, bound="agent"),
    page("/agents/{agent}/limits", show_limits, bound="agent"),
    act("/agents/{agent}/limits", save_limits, needs="admin", bound="agent", again=show_limits),
    page("/agents/{agent}/export", export_markdown, bound="agent"),
)
