"""Routes of the records of runs: their entries, and reports of other processes."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field
from msgspec.structs import asdict

from holdfast.doors.http.call import Act, Call
from holdfast.doors.http.params import PAGE, WIDE, Body, one_of, read_json, several, text
from holdfast.doors.http.request import HttpRoute, Visitor
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.pages import Page
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.runs import (
    ADMIN,
    ANSWER,
    CANCEL,
    DELETE,
    FORM,
    LIST_QUESTIONS,
    READ_QUESTION,
    RUN,
    Answerer,
    Question,
)
from holdfast.library.operations.threads import LIMIT
from holdfast.memories.run.entry import filter_of
from holdfast.memories.run.model_view import ORDERS
from holdfast.memories.run.records.read import asked_for, entries_told
from holdfast.memories.run.records.record import (
    RunAcquisition,
    RunReport,
    RunsContext,
    TakeOver,
    checked_opening,
    checked_report,
)
from holdfast.memories.run.records.write import begin, take


def cancel(call: Call, hf: Holdfast, given: dict[str, Any]) -> dict[str, str]:
    """Cancel a run; it ends once its current work is torn down."""
    active = call.state.registry.active(call.visitor.workspace, given["id"])
    if active is None or not active.cancel(given["reason"]):
        hf.runs.cancel(**given)
    return {"id": given["id"]}


def delete(_: Call, hf: Holdfast, given: dict[str, Any]) -> dict[str, str]:
    """Delete the record of a run; run on a thread, which waits for the erasure."""
    hf.runs.delete(**given)
    return {"id": given["id"], "type": "run_deleted"}


def questions(call: Call, hf: Holdfast, given: dict[str, Any]) -> Page[Question]:
    """List questions; a key bound to a user gets those that name this user."""
    user = call.visitor.user
    if user is not None:
        if given.get("who", f"user:{user}") != f"user:{user}":
            raise NotPermitted("The key is bound to one user.", needed=str(given["who"]))
        given["who"] = f"user:{user}"
    return hf.runs.questions(**given)


def question(call: Call, hf: Holdfast, given: dict[str, Any]) -> Question:
    """Return a question; a key bound to a user finds those that name this user."""
    found, user = hf.runs.question(**given), call.visitor.user
    if user is not None and f"user:{user}" not in found.who:
        raise NotFound("question", found.id, next="List the questions that there are.")
    return found


def answer(call: Call, hf: Holdfast, given: dict[str, Any]) -> Question:
    """Answer a question as the holder of the key."""
    found = question(call, hf, {"id": given["question"]})
    return hf.runs.answer(found.run_id, **given, by=_answerer(call.visitor))


def _answerer(visitor: Visitor) -> Answerer:
    """Return who answers: the key, or the user to whom it is bound."""
    if visitor.user is not None:
        by = f"user:{visitor.user}"
        return Answerer(by=by, names=frozenset((by,)))
    by = f"key:{visitor.key or visitor.actor.id}" if visitor.keyed else "local"
    names = [by, f"key:{visitor.actor.id}", *([ADMIN] if visitor.scope == "admin" else ())]
    return Answerer(by=by, names=frozenset(names))


ACTS: Final[Mapping[str, Act]] = {
    CANCEL.name: cancel,
    DELETE.name: delete,
    LIST_QUESTIONS.name: questions,
    READ_QUESTION.name: question,
    ANSWER.name: answer,
}


async def entries(call: Call) -> Response:
    """List the last entries of a run's memory, in the format of its list tool."""
    query = call.query
    filters = [query.get(name) for name in ("kind", "keys", "key_prefix", "sources")]
    order, limit, page = (query.get(name) for name in ("order", "limit", "page"))
    request = asked_for(filter_of(*filters), order=order, limit=limit, page=page)

    def look(hf: Holdfast) -> Response:
        context = _context(hf, "read")
        hf.run_attachments.flush()
        return of_json(entries_told(context, call["run"], request))

    return await call.slow(look)


def _context(hf: Holdfast, right: str) -> RunsContext:
    context = hf.runs.context
    context.demand(right)
    return context


class PutRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that begins, owned by `holder`; in place of it, a record without an owner.

    `started_at` is in milliseconds since 1970 for a run with a holder, else RFC 3339. Further
    members of a record without a holder are its extras.
    """

    holder: str
    name: str
    kind: str = "memory"
    definition: str | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    inputs: tuple[str, ...] = ()
    place: str
    started_at: int
    take_over: TakeOver = "always"
    continues: bool = False


async def put(call: Call) -> Response:
    """Record the start of a run of another process, or a record without an owner."""
    run_id, given = call["run"], read_json(call.raw, WIDE)
    if "holder" not in given:
        if given.get("id", run_id) != run_id:
            raise InvalidInput("id", "must be that of the path", given=given["id"])
        record = {**given, "id": run_id}
        return of_json(FORM.encode(await call.write(lambda hf: hf.runs.put(record))))
    body = call.body(PutRun)
    opening = checked_opening(RunAcquisition(run_id=run_id, **asdict(body)))
    grant = await call.write(lambda hf: begin(_context(hf, "write"), opening))
    run = await call.quick(lambda hf: hf.runs.retrieve(run_id))
    opened = [each.to_dict() for each in grant.opened]
    return of_json(FORM.encode(run) | {"seq": grant.seq, "opened": opened})


async def post(call: Call) -> Response:
    """Record a report of a run."""
    report, run_id = checked_report(call.body(RunReport)), call["run"]
    receipt = await call.write(lambda hf: take(_context(hf, "write"), run_id, report, relay=True))
    return of_json({"id": run_id, "number": report.number, **asdict(receipt)})


_ENTRIES: Final = (
    several("kind", "kind"),
    several("key", "keys"),
    text("key_prefix"),
    several("source", "sources"),
    one_of("order", *ORDERS),
    *PAGE,
)

ROUTES: Final = (
    HttpRoute(
        "GET",
        f"{RUN}/entries",
        "read",
        entries,
        "List what the memory of a run held last, without values.",
        query=_ENTRIES,
    ),
    HttpRoute(
        "PUT",
        RUN,
        "write",
        put,
        "Show a run of another process, or write a run's record.",
        body="any",
        limit=LIMIT,
    ),
    HttpRoute(
        "POST",
        f"{RUN}/events",
        "write",
        post,
        "Report what happened in a run of another process.",
        body=RunReport,
    ),
)
