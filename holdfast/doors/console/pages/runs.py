"""Pages of runs: the list, what two runs differ in, questions to people."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final, Literal, cast

from msgspec import Struct

from holdfast.doors.console.response import LIVE, LIVE_MOST
from holdfast.doors.console.text import pretty
from holdfast.doors.console.timeline import compact
from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    Fragment,
    Live,
    Pager,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    page,
    pager,
    stream,
)
from holdfast.doors.console.visitors import ConsoleVisitor
from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import Page
from holdfast.library.operations.runs import (
    ADMIN,
    KINDS,
    STATUSES,
    Answerer,
    ComparedValue,
    Difference,
    Question,
    Run,
)

SECTION: Final = "Runs"
LIST_EVERY: Final = 1.0
"""Seconds between two looks at the list, of which one takes a millisecond."""
POLL: Final = "every 5s"
"""How often a page looks that is one too many to be live."""

DONE: Final = {
    "answered": (
        "The answer was stored. A worker that knows the definition goes on with the run, or"
        " the next process that executes it under its id."
    ),
    "run-deleted": "The run was deleted, with its entries, versions, messages and questions.",
}

BADGES: Final[Mapping[str, str]] = {
    "running": "accent",
    "completed": "good",
    "failed": "bad",
    "lost": "warn",
    "waiting": "warn",
    "blocked": "warn",
}
"""The class of the badge of a status or a state; others have none."""


def crumbs(run: Run | None = None) -> tuple[tuple[str, str], ...]:
    """Return the links above a page of *run*."""
    first = (("Runs", address("runs")),)
    return first if run is None else (*first, (run.name, address("runs", run.id)))


# The list

_FILTERS: Final = ("status", "kind", "definition", "thread", "parent", "queue")


def list_runs(visit: Visit) -> Answer:
    """Show the runs of the workspace, the latest start first."""
    return PageView(template="runs.html", title="Runs", section=SECTION, values=_list_values(visit))


def _listed(visit: Visit) -> Page[Run]:
    given: dict[str, Any] = {name: visit.text(name) for name in _FILTERS}
    return visit.hf.runs.list(limit=visit.limit, page=visit.page, **given)


def _list_values(visit: Visit, found: Page[Run] | None = None) -> dict[str, Any]:
    found = found or _listed(visit)
    query = {name: each for name, each in visit.query.items() if name not in {"done", "undo"}}
    networks = visit.text("kind") == "network"
    return {
        "runs": found.data,
        "pager": pager(visit, found, "runs"),
        "kinds": [
            ("Runs", address("runs"), not networks),
            ("Networks", address("runs", kind="network"), networks),
        ],
        "statuses": [("", "any"), *STATUSES],
        "run_kinds": [("", "any"), *KINDS],
        "filters": {name: visit.query.get(name, "") for name in _FILTERS},
        "badges": BADGES,
        "stream": address("runs", "live", **query),
        "poll": None,
        "trigger": POLL,
        "filtered": any(visit.text(name) for name in _FILTERS),
    }


def poll_list(visit: Visit) -> Answer:
    """Return the list as it is now, for a page that is not live."""
    values = _polled(visit, _list_values(visit))
    return Fragment(template="runs_live.html", values=values)


def _polled(visit: Visit, values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "poll": address("runs", "poll", **visit.query)}


async def follow_list(visit: Visit) -> Live | Answer:
    """Send the list again whenever it has changed."""
    if is_crowded():
        return await visit.server.run(partial(poll_list, visit))
    return Live(_lists(visit))


def is_crowded() -> bool:
    """Return whether as many pages are live as may be."""
    return LIVE.value() >= LIVE_MOST


async def _lists(visit: Visit) -> AsyncIterator[tuple[int | None, str, str]]:
    seen: list[Run] | None = None
    while True:
        seen, html = await visit.server.run(partial(_changed, visit, seen))
        if html is not None:
            yield None, "", html
        await asyncio.sleep(LIST_EVERY)


def _changed(visit: Visit, seen: list[Run] | None) -> tuple[list[Run], str | None]:
    """Return the runs of the list, and the list as HTML unless it is as *seen*."""
    found = _listed(visit)
    if found.data == seen:
        return found.data, None
    return found.data, visit.render("runs_live.html", _list_values(visit, found))


# Two runs compared


class DifferenceRow(Struct, frozen=True):
    """A difference of two runs: of an entry, a value or a part, by its key."""

    of: str
    key: str
    change: str
    a: ComparedValue | None
    b: ComparedValue | None

    def line(self, side: Literal["a", "b"]) -> str:
        """Return the value of *side* as one line, of any length."""
        found: ComparedValue | None = getattr(self, side)
        return "" if found is None else compact(found.value)


def compare(visit: Visit) -> Answer:
    """Show what two runs differ in, key by key."""
    match visit.ticks("run") or [visit.query.get("a", ""), visit.query.get("b", "")]:
        case [first, second] if first and second:
            a, b = visit.hf.runs.retrieve(first), visit.hf.runs.retrieve(second)
        case _:
            raise InvalidInput("run", "must be two runs", next="Tick two runs to compare.")
    found = visit.hf.runs.compare(a.id, b.id)
    sides: list[tuple[str, dict[str, Difference]]] = [
        ("entry", found.entries),
        ("value", found.values),
        ("part", found.parts),
    ]
    rows = [
        DifferenceRow(of, key, each.change, each.a, each.b)
        for of, differences in sides
        for key, each in differences.items()
    ]
    begin = visit.number("from", 0, least=0, most=10_000_000)
    values = {
        "a": a,
        "b": b,
        "rows": rows[begin : begin + ROWS_MOST],
        "total": len(rows),
        "usage": found.usage,
        "pager": sliced(begin, len(rows), "runs", "compare", a=a.id, b=b.id),
        "badges": BADGES,
    }
    return PageView(
        template="runs_compared.html",
        title="Compare runs",
        section=SECTION,
        values=values,
        up=crumbs(),
    )


def sliced(
    begin: int,
    total: int,
    *segments: str,
    name: str = "from",
    rows: int = ROWS_MOST,
    **query: object,
) -> Pager:
    """Return the links between pages of a list of *total* rows that is read whole."""
    after = begin + rows
    first = address(*segments, **query) if begin else None
    return Pager(first, address(*segments, **query, **{name: after}) if after < total else None)


# Questions

Shape = Literal["approval", "boolean", "options", "number", "text", "json"]
"""The form in which a question is answered."""

_SHAPES: Final[Mapping[str, Shape]] = {
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": "text",
}
_CHOICES: Final = {"approve": True, "deny": False}


class QuestionForm(Struct, frozen=True, kw_only=True):
    """A question with the form that answers it.

    *action* is the address of the form, None for a visitor who may not answer. *options* are those
    that the form offers, as text.
    """

    question: Question
    shape: Shape
    options: tuple[str, ...]
    arguments: str
    action: str | None


def shape_of(question: Question) -> Shape:
    """Return the form in which *question* is answered."""
    if question.kind == "approval":
        return "approval"
    if question.kind == "external":
        return "json"
    if _options(question):
        return "options"
    if question.schema is None:
        return "text"
    return _SHAPES.get(str(question.schema.get("type")), "json")


def _options(question: Question) -> list[JSON]:
    """Return what *question* may be answered with, where it says so."""
    named = (question.schema or {}).get("enum")
    return question.options or (named if isinstance(named, list) else [])


def form_of(visit: Visit, question: Question, *segments: str) -> QuestionForm:
    """Return the form of *question*, sent to the page at *segments*."""
    who = set(question.who)
    may = visit.visitor.may("write") and question.status == "open"
    may = may and (not who or not who.isdisjoint(_answerer(visit.visitor).names))
    options = [each if isinstance(each, str) else pretty(each) for each in _options(question)]
    arguments = "" if question.arguments is None else pretty(question.arguments)
    return QuestionForm(
        question=question,
        shape=shape_of(question),
        options=tuple(options),
        arguments=arguments,
        action=address(*segments, question.id) if may else None,
    )


def list_questions(visit: Visit) -> Answer:
    """Show the questions of all runs, or those for the user of a bound key."""
    status = visit.text("status") or "open"
    user = visit.visitor.user
    found = visit.hf.runs.questions(
        None if status == "all" else cast("Any", status),
        run=visit.text("run"),
        who=f"user:{user}" if user is not None else visit.text("who"),
        limit=visit.limit,
        page=visit.page,
    )
    names = ("open", "answered", "expired", "withdrawn", "all")
    values = {
        "forms": [form_of(visit, each, "questions") for each in found.data],
        "statuses": [(each, address("questions", status=each), each == status) for each in names],
        "status": status,
        "pager": pager(visit, found, "questions"),
        "linked": not visit.visitor.bound,
    }
    return PageView(
        template="questions.html",
        title="Questions",
        section=SECTION,
        values=values,
        up=() if visit.visitor.bound else crumbs(),
    )


def answer_listed(visit: Visit) -> Answer:
    """Answer a question of the list."""
    store_answer(visit, visit["question"])
    return Redirect(address("questions", done="answered"))


def store_answer(visit: Visit, id: str) -> Question:
    """Answer the question *id* with what was typed; return it with its run."""
    question, visitor = visit.hf.runs.question(id), visit.visitor
    if visitor.user is not None and f"user:{visitor.user}" not in question.who:
        raise NotFound("question", id, next="List the questions that there are.")
    value = _typed(visit, question)
    note = visit.form.get("note", "").strip() or None
    by = _answerer(visitor)
    return visit.hf.runs.answer(question.run_id, value, question=id, note=note, by=by)


def _typed(visit: Visit, question: Question) -> object:
    """Return the answer that the form of *question* has; raise InvalidInput for none."""
    shape = shape_of(question)
    if shape in {"approval", "boolean"}:
        choice = _CHOICES.get(visit.form.get("choice", ""))
        if choice is None:
            raise InvalidInput("choice", "must be one of the buttons", next="Approve or deny.")
        return _approved(visit, question) if choice and shape == "approval" else choice
    if shape == "options":
        options, chosen = _options(question), visit.form.get("option", "")
        if not chosen.isdecimal() or int(chosen[:9]) >= len(options):
            raise InvalidInput("option", "must be one of the options", next="Choose one of them.")
        return options[int(chosen[:9])]
    given = visit.written("answer")
    return given if shape == "text" else json_values.read(given, "answer")


def _approved(visit: Visit, question: Question) -> object:
    """Return the approval of a call, with the arguments where they were changed."""
    given = visit.form.get("arguments", "").strip()
    if not given:
        return True
    arguments = json_values.read(given, "arguments")
    same = arguments == question.arguments
    return True if same else {"approved": True, "arguments": arguments}


def _answerer(visitor: ConsoleVisitor) -> Answerer:
    """Return who answers: the key, the user to whom it is bound, or the open console."""
    if visitor.user is not None:
        by = f"user:{visitor.user}"
        return Answerer(by=by, names=frozenset((by,)))
    by = "user:console" if visitor.key_id is None else f"key:{visitor.name}"
    names = [by, *([ADMIN] if visitor.may("admin") else ())]
    if visitor.key_id is not None:
        names.append(f"key:{visitor.key_id}")
    return Answerer(by=by, names=frozenset(names))


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/runs", list_runs),
    stream("/runs/live", follow_list),
    page("/runs/poll", poll_list),
    page("/runs/compare", compare),
    page("/questions", list_questions, bound="user"),
    act("/questions/{question}", answer_listed, bound="user", again=list_questions),
)
