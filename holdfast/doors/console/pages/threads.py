"""Pages of threads: what was said, by whom, and what memory gave to each answer."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec import Struct, ValidationError, convert

from holdfast import InferenceResult, ThreadTurn
from holdfast.doors.console.text import pretty
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.durable.records import DurableEntry
from holdfast.memories.longterm.records import Item, Turn

SECTION: Final = "Threads"
NAMESPACE: Final = "chat"
"""The collection of a person that sessions recall from, unless another is named."""
TEXT_SHOWN: Final = 16_384
"""Characters of a text of a turn that are shown; the whole is behind a link."""
NAMED: Final = 100
"""Rows of what memory gave to one answer."""
ENTRIES: Final = 1_000
"""Entries of an agent among which those of an answer are found."""

DONE: Final = {"thread-deleted": "The thread was deleted, with its turns and its runs."}

REASONS: Final[Mapping[str, str]] = {
    "too_big": "larger than the whole budget",
    "over_budget": "more than was left of the budget when its turn came",
    "shadowed": "a nearer entry has its key",
}
"""Why an entry is left out of a hydration, in words."""


# What a session keeps with a result: ids and numbers. Anything may stand there, since results are
# also stored by clients.


class _KeptOmission(Struct, frozen=True):
    id: str | None = None
    reason: str = ""


class _KeptHydration(Struct, frozen=True):
    entries: list[str] = []
    omitted: list[_KeptOmission] = []
    budget: int | None = None
    more: int = 0


class _KeptRow(Struct, frozen=True):
    id: str
    score: float | None = None


class KeptMemory(Struct, frozen=True):
    """What is kept with a result of what its prompt held from memory."""

    enabled: bool
    hydration: _KeptHydration | None = None
    recalled: list[_KeptRow] = []
    left_out: int = 0


State = Literal["there", "forgotten", "unknown"]


class GivenRow(Struct, frozen=True, kw_only=True):
    """An entry, item or turn of memory: its text or key while it is still there.

    It is `unknown` where it cannot be looked up.
    """

    id: str
    state: State = "unknown"
    text: str = ""
    score: float | None = None
    reason: str = ""
    href: str | None = None


class GivenMemory(Struct, frozen=True, kw_only=True):
    """What memory gave to one answer; `more` counts rows that are not shown.

    `same` is whether the answer before it on the page was given the same entries.
    """

    enabled: bool
    agent: str
    same: bool = False
    hydrated: Sequence[GivenRow] = ()
    omitted: Sequence[GivenRow] = ()
    recalled: Sequence[GivenRow] = ()
    counts: tuple[int, int, int] = (0, 0, 0)
    """Entries hydrated and left out, items and turns recalled."""
    left_out: int = 0
    more: int = 0


class CallView(Struct, frozen=True, kw_only=True):
    """A call of a tool, as a page shows it."""

    name: str
    failed: bool
    sent: str
    returned: str


class TurnView(Struct, frozen=True, kw_only=True):
    """A turn as a page shows it; `cut` is the length of a text that is cut."""

    turn: ThreadTurn
    by: str
    text: str
    cut: int | None = None
    calls: Sequence[CallView] = ()
    error: str = ""
    memory: GivenMemory | None = None


class MemoryLookup:
    """Look-up of what answers of one page were given, by id; each thing is read once."""

    def __init__(self, visit: Visit, user: str | None) -> None:
        self._visit, self._user = visit, user
        self._entries: dict[str, tuple[dict[str, DurableEntry], bool]] = {}
        self._found: dict[str, Item | Turn | None] = {}
        self._last: tuple[str, _KeptHydration] | None = None

    def given(self, result: InferenceResult) -> GivenMemory | None:
        """Return what memory gave to *result*; None if that was not kept."""
        kept = kept_memory(result)
        if kept is None:
            return None
        seen = kept.hydration or _KeptHydration()
        lists = (seen.entries, seen.omitted, kept.recalled)
        same, self._last = (result.agent, seen) == self._last, (result.agent, seen)
        entries, omitted = ([], []) if same else (seen.entries[:NAMED], seen.omitted[:NAMED])
        return GivenMemory(
            enabled=kept.enabled,
            agent=result.agent,
            same=same,
            hydrated=[self._entry(result.agent, each) for each in entries],
            omitted=[self._entry(result.agent, each.id, each.reason) for each in omitted],
            recalled=[self.recalled(each.id, each.score) for each in kept.recalled[:NAMED]],
            counts=(len(seen.entries), len(seen.omitted), len(kept.recalled)),
            left_out=kept.left_out,
            more=seen.more + sum(max(0, len(each) - NAMED) for each in lists),
        )

    def recalled(self, id: str, score: float | None = None) -> GivenRow:
        """Return the item or turn *id* of the person, as it reads now."""
        if self._user is None:
            return GivenRow(id=id, score=score)
        if id not in self._found:
            data = self._visit.hf.longterm_data(self._user, namespace=NAMESPACE)
            self._found[id] = data.get(id)
        if (found := self._found[id]) is None:
            return GivenRow(id=id, score=score, state="forgotten")
        href, text = _where(self._user, found), found.text.replace("\n", " ")
        return GivenRow(id=id, score=score, state="there", text=text, href=href)

    def _entry(self, agent: str, id: str | None, reason: str = "") -> GivenRow:
        why = REASONS.get(reason, reason)
        if id is None:
            return GivenRow(id="", reason=why)
        known, whole = self._entries.get(agent) or self._read(agent)
        if (entry := known.get(id)) is None:
            return GivenRow(id=id, reason=why, state="forgotten" if whole else "unknown")
        href = address("agents", agent, "entries", entry.key)
        return GivenRow(id=id, reason=why, state="there", text=entry.key, href=href)

    def _read(self, agent: str) -> tuple[dict[str, DurableEntry], bool]:
        found = self._visit.hf.durable(agent).list(limit=ENTRIES)
        known = {each.id: each for each in found.data}, found.next_page is None
        self._entries[agent] = known
        return known


def kept_memory(result: InferenceResult) -> KeptMemory | None:
    """Return what is kept with *result* about memory; None if nothing readable is."""
    try:
        return convert(result.extras.get("memory"), KeptMemory | None)
    except ValidationError:
        return None


def _where(user: str, found: Item | Turn) -> str:
    part = "items" if isinstance(found, Item) else "turns"
    return address("people", user, part, found.id)


def turn_views(visit: Visit, turns: Sequence[ThreadTurn], user: str | None) -> list[TurnView]:
    """Return *turns* of a thread of *user*, as a page shows them."""
    lookup, whole = MemoryLookup(visit, user), visit.text("whole")
    return [_turn_view(turn, lookup, whole=whole == turn.id) for turn in turns]


def _turn_view(turn: ThreadTurn, lookup: MemoryLookup, *, whole: bool) -> TurnView:
    most = None if whole else TEXT_SHOWN
    result = turn.result
    if result is None:
        said, by = "", turn.source or ""
        if turn.message is not None:
            said, by = turn.message.content, "You" if turn.kind == "user" else turn.kind
        elif turn.kind == "foreign":
            said = pretty(turn.value)
        return TurnView(turn=turn, by=by, text=said[:most], cut=_cut(said, most))
    said = result.text
    return TurnView(
        turn=turn,
        by=result.agent,
        text=said[:most],
        cut=_cut(said, most),
        calls=call_views(result, most),
        error=_error_of(result),
        memory=lookup.given(result),
    )


def _cut(text: str, most: int | None) -> int | None:
    return len(text) if most is not None and len(text) > most else None


def call_views(result: InferenceResult, most: int | None = TEXT_SHOWN) -> list[CallView]:
    """Return the tool calls of *result*, each text cut at *most* characters."""
    return [
        CallView(
            name=each.tool.name,
            failed="error" in each.content,
            sent=pretty(each.tool.input)[:most],
            returned=pretty(each.content)[:most],
        )
        for each in result.tool_calls
    ]


def _error_of(result: InferenceResult) -> str:
    error: Mapping[str, Any] = result.error or {}
    return ": ".join(str(error[name]) for name in ("name", "message") if error.get(name))


def list_threads(visit: Visit) -> Answer:
    """Show the threads of the workspace, newest first."""
    user = visit.text("user")
    found = visit.hf.threads.list(visit.limit, visit.page, user=user)
    values = {
        "threads": found.data,
        "user": user or "",
        "pager": pager(visit, found, "threads"),
    }
    return PageView(template="threads.html", title="Threads", section=SECTION, values=values)


def show_thread(visit: Visit) -> Answer:
    """Show one page of the turns of a thread, oldest first."""
    thread = visit.hf.threads.retrieve(visit["thread"])
    found = visit.hf.threads.turns(thread.id, visit.limit, visit.page)
    values = {
        "thread": thread,
        "turns": turn_views(visit, found.data, thread.user),
        "pager": pager(visit, found, "threads", thread.id),
        "token": confirmation("", thread.id),
        "confirm": visit.text("confirm") or visit.form.get("confirm"),
        "recorded": runs_of(visit, found.data),
    }
    return PageView(
        template="thread.html",
        title="Thread",
        section=SECTION,
        values=values,
        up=(("Threads", address("threads")),),
    )


def runs_of(visit: Visit, turns: Sequence[ThreadTurn]) -> set[str]:
    """Return the runs of *turns* that have a record, and so a page."""
    found: set[str] = set()
    for id in {turn.run_id for turn in turns if turn.run_id is not None}:
        with suppress(NotFound):
            found.add(visit.hf.runs.retrieve(id).id)
    return found


def delete_thread(visit: Visit) -> Answer:
    """Delete a thread for good, once confirmed."""
    thread = visit.hf.threads.retrieve(visit["thread"])
    visit.confirm(confirmation("", thread.id))
    if not visit.hf.threads.delete(thread.id):
        raise InvalidInput("thread", "was deleted meanwhile", next="Go to the list.")
    return Redirect(address("threads", done="thread-deleted"))


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/threads", list_threads),
    page("/threads/{thread}", show_thread),
    act("/threads/{thread}/delete", delete_thread, again=show_thread),
)
