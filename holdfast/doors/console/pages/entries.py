"""Pages of one durable entry, and of a hydration.

An entry: content, explanation, history, edit, forget, redact. A hydration: what an agent sees
within a budget, what it does not, and why.
"""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from holdfast.doors.console.diffs import diff_rows
from holdfast.doors.console.pages.agents import (
    CHOSEN,
    SECTION,
    crumbs,
    tabs,
    written_category,
    written_tags,
)
from holdfast.doors.console.pages.forget import ErasureReceipt, pending_erasure, receipt_view
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Redirect,
    Undo,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.errors import InvalidInput, NotFound, PreconditionFailed
from holdfast.memories.durable.records import (
    CORE,
    RANGES,
    WORKSPACE,
    DurableEntry,
    EntryChange,
    Explanation,
)

DIGITS: Final = 18

DONE: Final = {
    "entry-saved": "The entry was saved.",
    "entry-restored": "The earlier content was written once more.",
    "entry-accepted": "The entry was accepted: prompts hold it from now on.",
}


def _where(visit: Visit, *below: str, **query: object) -> str:
    scope = visit.text("scope")
    return address("agents", visit["agent"], "entries", visit["key"], *below, scope=scope, **query)


def _found(visit: Visit) -> tuple[DurableEntry | None, bool]:
    """Return the entry that the address names, and whether a nearer one has its key.

    With the scope `workspace` it is that of the workspace, else the nearest.
    """
    durable, key = visit.hf.durable(visit["agent"]), visit["key"]
    nearest = durable.get(key)
    if visit.text("scope") != WORKSPACE or nearest is None or nearest.scope == WORKSPACE:
        return nearest, False
    entries = durable.list(category=WORKSPACE, key_prefix=key).all()
    return next((each for each in entries if each.key == key), None), True


def show_entry(visit: Visit) -> Answer:
    """Show an entry, why it is hydrated or not, and its changes; also a deleted one."""
    agent, key = visit["agent"], visit["key"]
    durable = visit.hf.durable(agent)
    entry, shadowed = _found(visit)
    explanation = durable.explain(key)
    found = durable.history(key, limit=visit.limit, page=visit.page)
    if entry is None and explanation.reason == "never_stored" and not found.data:
        raise NotFound("entry", key, next="Look at the agent's entries.")
    values: dict[str, Any] = {
        "agent": agent,
        "key": key,
        "entry": entry,
        "shadowed": shadowed,
        "scope": visit.text("scope"),
        "explanation": explanation,
        "changes": found.data,
        "categories": CHOSEN,
        "edited": entry is not None and not shadowed and _edits(visit),
        "shown": visit.form.get("shown") or (entry.seq if entry else 0),
        "mine": None,
        "changed": (),
        "confirm": visit.form.get("confirm") or visit.text("confirm"),
        "token": confirmation(key, entry.id) if entry else "",
        "redaction": _redaction(visit, found.data),
        "pager": pager(visit, found, "agents", agent, "entries", key),
    }
    if entry is not None and isinstance(visit.error, PreconditionFailed):
        mine = visit.written("content")
        values |= {"mine": mine, "changed": diff_rows(entry.content, mine), "shown": entry.seq}
    return PageView(
        template="entry.html",
        title=key,
        section=SECTION,
        values=values,
        up=crumbs(visit, agent),
        undo=_undo(visit, found.data),
    )


def _edits(visit: Visit) -> bool:
    """Return whether the form is shown: on request, and where it was not carried out."""
    return visit.text("edit") == "1" or "content" in visit.form


def _redaction(visit: Visit, changes: list[EntryChange]) -> EntryChange | None:
    """Return the change that the visitor is to confirm the redaction of."""
    chosen = visit.form.get("redact") or visit.text("redact")
    return next((each for each in changes if str(each.seq) == chosen), None)


def _undo(visit: Visit, changes: list[EntryChange]) -> Undo | None:
    """Return the form that writes what was there before the last change."""
    done = visit.text("done") in {"entry-saved", "entry-restored"}
    if not done or visit.page or not visit.visitor.may("write"):
        return None
    before = next((each for each in changes[1:] if each.content is not None), None)
    return before and Undo(_where(visit, "restore"), {"seq": str(before.seq)})


def save_entry(visit: Visit) -> Answer:
    """Save what was typed, unless the entry changed since it was shown."""
    content = visit.written("content")
    if visit.form.get("ends") == "crlf":
        content = content.replace("\n", "\r\n")
    visit.hf.durable(visit["agent"]).set(
        visit["key"],
        content,
        category=written_category(visit),
        tags=written_tags(visit),
        expected_seq=_number(visit, "shown"),
    )
    return Redirect(_where(visit, done="entry-saved"))


def restore_entry(visit: Visit) -> Answer:
    """Write the content of an earlier change once more."""
    visit.hf.durable(visit["agent"]).restore(visit["key"], _number(visit, "seq"))
    return Redirect(_where(visit, done="entry-restored"))


def accept_entry(visit: Visit) -> Answer:
    """Release a held entry."""
    visit.hf.durable(visit["agent"]).accept(visit["key"])
    return Redirect(_where(visit, done="entry-accepted"))


def _number(visit: Visit, name: str) -> int:
    given = visit.written(name)
    if not (given.isascii() and given.isdecimal()) or len(given) > DIGITS:
        raise InvalidInput(name, "must be the number of a change", given=given)
    return int(given)


def _entry(visit: Visit) -> DurableEntry:
    entry, _ = _found(visit)
    if entry is None:
        raise NotFound("entry", visit["key"], next="Look at the agent's entries.")
    return entry


def forget_entry(visit: Visit) -> Answer:
    """Forget an entry for good, once confirmed; show the receipt."""
    entry = _entry(visit)
    visit.confirm(confirmation(entry.key, entry.id))
    if not visit.hf.durable(visit["agent"]).forget(entry.key, scope=entry.scope):
        raise NotFound("entry", entry.key, next="Look at the agent's entries.")
    erasure = ErasureReceipt(
        done="forgotten",
        ids=(entry.id,),
        counts={"durable_entries": 1},
        pending=pending_erasure(visit),
        at=visit.now,
    )
    up = crumbs(visit, visit["agent"])
    return receipt_view(visit, erasure, title="Forgotten", section=SECTION, up=up)


def redact_change(visit: Visit) -> Answer:
    """Erase the content of one change for good, once confirmed; show the receipt."""
    seq = _number(visit, "redact")
    visit.confirm(change_token(seq))
    change = visit.hf.durable(visit["agent"]).redact(seq)
    erasure = ErasureReceipt(
        done="redacted",
        ids=(f"change {change.seq}",),
        counts={"durable_changes": 1},
        pending=pending_erasure(visit),
        at=change.redacted_at or visit.now,
    )
    up = (*crumbs(visit, visit["agent"]), ("Entry", _where(visit)))
    return receipt_view(visit, erasure, title="Redacted", section=SECTION, up=up)


def change_token(seq: int) -> str:
    """Return what is to be typed to confirm the redaction of the change *seq*."""
    return confirmation(f"change {seq}", "")


SHOWN_BYTES: Final = 262_144
"""Bytes up to which the page shows what the model sees; more is a download."""
_LEAST, _MOST = RANGES["budget"]

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


_ENTRY: Final = "/agents/{agent}/entries/{key}"

ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page(_ENTRY, show_entry, bound="agent"),
    act(_ENTRY, save_entry, bound="agent", again=show_entry),
    act(f"{_ENTRY}/accept", accept_entry, bound="agent", again=show_entry),
    act(f"{_ENTRY}/restore", restore_entry, bound="agent", again=show_entry),
    act(f"{_ENTRY}/forget", forget_entry, bound="agent", again=show_entry),
    act(f"{_ENTRY}/redact", redact_change, needs="admin", bound="agent", again=show_entry),
    page("/agents/{agent}/hydration", show_hydration, bound="agent"),
    page("/agents/{agent}/hydration/text", download_block, bound="agent"),
)
