"""Routes of the records of runs: their entries, and reports of other processes."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import field
from msgspec.structs import asdict

from holdfast.doors.http.call import Act, Call
from holdfast.doors.http.params import PAGE, WIDE, Body, one_of, read_json, several, text
from holdfast.doors.http.request import HttpRoute, Visitor
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.pages import Page
from holdfast.ground.scope import checked_name
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
    VERSION_BYTES,
    Answerer,
    Ending,
    PutVersion,
    Question,
    SavedVersion,
    save_in,
    state_to_wire,
    version_number,
)
from holdfast.library.operations.threads import LIMIT
from holdfast.memories.run.entry import checked_version, filter_of
from holdfast.memories.run.model_view import ORDERS
from holdfast.memories.run.records.read import asked_for, entries_told
from holdfast.memories.run.records.record import (
    MILLISECOND,
    HeldRun,
    RunAcquisition,
    RunReport,
    RunsContext,
    TakeOver,
    checked_opening,
    checked_report,
)
from holdfast.memories.run.records.write import begin, refused, take


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


async def put(call: Call) -> Response:
    """Write the record of a run without an owner, or change what is not its owner's."""
    run_id, given = call["run"], read_json(call.raw, WIDE)
    if given.get("id", run_id) != run_id:
        raise InvalidInput("id", "must be that of the path", given=given["id"])
    record = {**given, "id": run_id}
    return of_json(FORM.encode(await call.write(lambda hf: hf.runs.put(record))))


class LeaseRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `holder` does with the lease of a run.

    To acquire it takes what the run is, for a run that begins; `started_at` is in milliseconds
    since 1970. To renew and to release it takes the `fence` of the lease; without `extend` nothing
    is renewed. With a `status` the release is the end of the run, else the run is queued.
    """

    action: Literal["acquire", "renew", "release"]
    holder: str
    fence: int = 0
    take_over: TakeOver = "expired"
    extend: bool = True
    status: Ending | None = None
    name: str = ""
    kind: str = "memory"
    definition: str | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    user: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    inputs: tuple[str, ...] = ()
    place: str = ""
    started_at: int | None = None
    continues: bool = False


async def lease(call: Call) -> Response:
    """Acquire, renew or release the lease of a run."""
    body = call.body(LeaseRun)
    if body.action == "acquire":
        return await _acquired(call, body)
    held = HeldRun(
        run_id=call["run"],
        holder=checked_name("holder", body.holder),
        fence=checked_version("fence", body.fence, least=1),
        number=0,
    )
    if body.action == "renew":
        return await _renewed(call, held, extend=body.extend)
    event = await call.slow(lambda hf: hf.runs.shown.recorder.release(held, body.status))
    run = await call.quick(lambda hf: hf.runs.retrieve(held.run_id))
    return of_json(FORM.encode(run) | {"event": None if event is None else event.to_dict()})


async def _acquired(call: Call, body: LeaseRun) -> Response:
    run_id, facts = call["run"], asdict(body)
    for name in ("action", "fence", "extend", "status"):
        del facts[name]
    facts["name"], facts["place"] = body.name or run_id, body.place or body.holder
    if body.started_at is None:
        facts["started_at"] = to_microseconds(call.state.clock.now()) // MILLISECOND
    opening = checked_opening(RunAcquisition(run_id=run_id, **facts))
    grant = await call.write(lambda hf: begin(_context(hf, "write"), opening))
    run = await call.quick(lambda hf: hf.runs.retrieve(run_id))
    opened = [each.to_dict() for each in grant.opened]
    return of_json(FORM.encode(run) | {"fence": grant.fence, "seq": grant.seq, "opened": opened})


async def _renewed(call: Call, held: HeldRun, *, extend: bool) -> Response:
    def work(hf: Holdfast) -> Response:
        run = hf.runs.retrieve(held.run_id)
        known = [held] if run.fence == held.fence else []
        signs = hf.runs.shown.recorder.renew(known, extend=extend)
        if held.holder not in signs:
            raise refused("superseded", held.fence, run.fence)
        return of_json({"id": held.run_id, "fence": held.fence, "cancel": signs[held.holder]})

    return await call.slow(work)


async def put_version(call: Call) -> Response:
    """Store a version of a run under its number, with what belongs to it."""

    def work(hf: Holdfast) -> Response:
        number = version_number(call["version"])
        save = save_in(call.body(PutVersion, WIDE), call["run"], number - 1)
        return _saved(hf.runs.shown.recorder.keep(save))

    return await call.slow(work)


async def checkpoint(call: Call) -> Response:
    """Retrieve the newest version of a run, with the messages of parts that go on."""

    def work(hf: Holdfast) -> Response:
        kept = hf.runs.checkpoints.load(call["run"])
        if kept is None:
            raise NotFound("checkpoint", call["run"], next="Begin the run from its start.")
        return of_json({"id": call["run"], **state_to_wire(kept)})

    return await call.slow(work)


async def put_checkpoint(call: Call) -> Response:
    """Store a version of a run that is all that it knows."""

    def work(hf: Holdfast) -> Response:
        save = save_in(call.body(PutVersion, WIDE), call["run"], None)
        return _saved(hf.runs.shown.recorder.replace(save))

    return await call.slow(work)


async def delete_checkpoint(call: Call) -> Response:
    """Delete the versions and the messages of a run; its record stays."""
    run_id = call["run"]
    deleted = await call.write(lambda hf: hf.runs.checkpoints.delete(run_id))
    return of_json({"id": run_id, "deleted": deleted})


def _saved(found: SavedVersion) -> Response:
    events = [each.to_dict() for each in found.events]
    return of_json({"number": found.number, "stored": found.stored, "events": events})


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
        "Write a run's record.",
        body="any",
        limit=LIMIT,
    ),
    HttpRoute(
        "POST",
        f"{RUN}/lease",
        "write",
        lease,
        "Acquire, renew or release the lease of a run.",
        body=LeaseRun,
    ),
    HttpRoute(
        "PUT",
        f"{RUN}/versions/{{version}}",
        "write",
        put_version,
        "Store a version of a run, under the fence of its lease.",
        body=PutVersion,
        limit=VERSION_BYTES,
    ),
    HttpRoute(
        "GET",
        f"{RUN}/checkpoint",
        "write",
        checkpoint,
        "Retrieve the newest version of a run, with what goes on from it.",
    ),
    HttpRoute(
        "DELETE",
        f"{RUN}/checkpoint",
        "write",
        delete_checkpoint,
        "Delete the versions and the messages of a run.",
    ),
    HttpRoute(
        "PUT",
        f"{RUN}/checkpoint",
        "write",
        put_checkpoint,
        "Store a version of a run in place of all that it knew.",
        body=PutVersion,
        limit=VERSION_BYTES,
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
