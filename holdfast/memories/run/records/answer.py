"""Answer questions of runs, and settle those that are due.

The first answer wins. After the last one the run is queued, in the same transaction. So is a run
that waited for the runs of its items, once they are over.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, NotPermitted, Unavailable
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import NEWEST, Key, Page, digest, place_in, read_cursor, write_cursor
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.ground.validation import check_limit
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.lease import add_queued, upkeep_context, want_cancel
from holdfast.memories.run.records.question import (
    ANSWERS,
    BY_TIMEOUT,
    QUESTION_ID,
    Answerer,
    Question,
    QuestionFilter,
    QuestionRow,
    answered,
    checked_answer,
    demand_named,
    event_of,
    open_ids,
    questions_of,
    settlement,
    waits,
)
from holdfast.memories.run.records.record import MILLISECOND, RunRow, RunsContext
from holdfast.memories.run.records.write import (
    PACKAGE,
    add_events,
    numbered,
    published,
    statements,
)

_LIST: Final = "questions"
MOST_LISTED: Final = 1_000

_log = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

_WAIT: Final = REGISTRY.histogram(
    "run_wait_seconds",
    "From a question to its answer.",
    (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000),
)


def answer(
    context: RunsContext,
    run_id: str,
    value: object,
    answerer: Answerer,
    *,
    question: str | None = None,
    note: str | None = None,
) -> Question:
    """Answer the *question* of the run, or its only open one; return it."""
    settle_seen(context, run_id)
    found = _meant(context, run_id, question)
    demand_named(found, answerer)
    given = checked_answer(found, value, note)
    now = context.now()

    def work(tx: Transaction) -> Question:
        sql, at = statements(context), from_microseconds(now)
        run, there = _locked(tx, sql, found)
        settled = answered(there.settled(at), given, answerer, at)
        if settled is not there:
            _settle(context, tx, run, (settled,), now)
        return settled

    try:
        return context.engine.write(work)
    except Conflict:
        ANSWERS.add("refused")
        raise


def _locked(tx: Transaction, sql: SimpleNamespace, found: Question) -> tuple[RunRow, Question]:
    """Return the run of the question *found*, locked, and the question as it is now."""
    run = tx.first(RunRow, sql.lock_run, run=found.run_id)
    there = tx.first(QuestionRow, sql.get_question, question=found.id)
    if run is None or there is None:
        raise no_question(found.id)
    return run, there.record()


def _meant(context: RunsContext, run_id: str, question: str | None) -> Question:
    """Return the *question* of the run, else its only open one, else its last one."""
    if question is not None:
        found = question_of(context, question)
        if found.run_id != run_id:
            raise no_question(question)
        return found
    sql = statements(context)
    return meant(run_id, context.engine.read(lambda reader: questions_of(reader, sql, run_id)))


def meant(run_id: str, every: Sequence[Question]) -> Question:
    """Return the only open one of *every* question of a run, else the last settled.

    Raise `InvalidInput` for several, `NotFound` if the run has none.
    """
    open = [each for each in every if each.status == "open"]
    if len(open) > 1:
        raise InvalidInput("question", f"must be given: the run has {len(open)} open questions")
    if not every:
        raise NotFound("question of the run", run_id, next="List the questions that there are.")
    return open[0] if open else max(every, key=_settled_at)


def _settled_at(question: Question) -> datetime:
    return question.answered_at or question.asked_at


def no_question(id: str) -> NotFound:
    """Return the error for a missing question."""
    return NotFound("question", id, next="List the questions that there are.")


def question_of(context: RunsContext, id: str) -> Question:
    """Return the question *id* as it is now; raise `NotFound` if there is none."""
    if not isinstance(cast("object", id), str) or not QUESTION_ID.fullmatch(id):
        raise no_question(id)
    found = context.engine.first(QuestionRow, statements(context).get_question, question=id)
    if found is None:
        raise no_question(id)
    return found.record().settled(context.clock.now())


def _settle(
    context: RunsContext, tx: Transaction, run: RunRow, settled: Iterable[Question], now: int
) -> None:
    """Store how questions of *run* were settled; queue the run after the last one."""
    sql, at = statements(context), from_microseconds(now)
    emitted: list[RunEvent] = []
    for each in settled:
        tx.run(sql.settle_question, **settlement(each, now))
        emitted.append(event_of(each, f"question.{each.status}", at))
        tx.after_commit(partial(_count, each))
    status = run.status
    if status == "waiting" and not open_ids(tx, sql, run.id):
        status, data = "queued", {"queue": run.queue}
        emitted.append(
            RunEvent(type="run.queued", seq=0, at=now // MILLISECOND, run_id=run.id, data=data)
        )
    events = numbered(run, emitted)
    add_events(tx, sql, run.id, events)
    tx.run(sql.set_status, run=run.id, status=status, seq=events[-1].seq)
    tx.after_commit(partial(published, context, events))


def _count(question: Question) -> None:
    """Count how *question* was settled, and how long it was open."""
    if question.answered_by == BY_TIMEOUT:
        outcome = "default"
    elif question.status == "answered" and question.kind == "approval":
        outcome = "denied" if question.answer is False else "approved"
    else:
        outcome = question.status
    ANSWERS.add(outcome)
    _WAIT.observe((_settled_at(question) - question.asked_at).total_seconds())


class _DueRun(Struct, frozen=True, kw_only=True):
    workspace: str
    run_id: str


def settle_seen(context: RunsContext, run_id: str = "") -> bool:
    """Settle the questions that are due, of one run or all, if the caller may write.

    Each has its default as the answer, or has expired; its run is queued after the last one.
    Return whether there were any.
    """
    params = {"now": context.now(), "run": run_id}
    found = context.engine.all(_DueRun, statements(context).due_questions, **params)
    try:
        for each in found:
            context.demand("write")
            _settle_due(context, each.run_id)
    except (NotPermitted, Unavailable) as error:
        # Each reader computes it from the clock, so nothing depends on this.
        _log.debug("questions that are due are not settled: %s", type(error).__name__)
    return bool(found)


def _settle_due(context: RunsContext, run_id: str) -> None:
    now = context.now()

    def work(tx: Transaction) -> None:
        sql, at = statements(context), from_microseconds(now)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        due = [each for each in questions_of(tx, sql, run_id) if each.due_at(at)]
        if run is not None and due:
            _settle(context, tx, run, [each.settled(at) for each in due], now)

    context.engine.write(work)


def sweep_questions(engine: Engine, clock: Clock) -> None:
    """Settle the questions that are due in all workspaces of *engine*."""
    everywhere = engine.scoped(EVERYBODY)
    now = to_microseconds(clock.now())
    found = everywhere.all(_DueRun, everywhere.queries(PACKAGE).due_questions, now=now, run="")
    for each in found:
        _settle_due(upkeep_context(engine, each.workspace, clock), each.run_id)


class _IdleRun(Struct, frozen=True, kw_only=True):
    workspace: str
    id: str


def tend_items(engine: Engine, clock: Clock, workspace: str | None) -> None:
    """Queue the runs of *workspace* whose items, which they waited for, are all over.

    Cancel the items of runs that are over. Without *workspace* it is done in all of them.
    """
    scope = EVERYBODY if workspace is None else Scope(workspace=workspace)
    scoped = engine.scoped(scope)
    sql = scoped.queries(PACKAGE)
    for each in scoped.all(_IdleRun, sql.runs_to_go_on):
        _go_on(upkeep_context(engine, each.workspace, clock), each.id)
    for each in scoped.all(_IdleRun, sql.items_of_over):
        with suppress(Conflict):
            want_cancel(upkeep_context(engine, each.workspace, clock), each.id, "its run has ended")


def _go_on(context: RunsContext, run_id: str) -> None:
    """Queue the run *run_id* if it waits for nothing any more."""

    def work(tx: Transaction) -> None:
        sql = statements(context)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        if run is not None and run.status == "waiting" and not waits(tx, sql, run_id):
            tx.run(sql.set_status, run=run_id, status="queued", seq=run.seq + 1)
            add_queued(context, tx, sql, run_id, seq=run.seq + 1, queue=run.queue)

    context.engine.write(work)


def list_questions(
    context: RunsContext, among: QuestionFilter, limit: int | None, page: str | None
) -> Page[Question]:
    """Return a page of the questions that pass *among*, newest first."""
    settle_seen(context, among.run or "")
    rows, now = check_limit(limit, most=MOST_LISTED), context.clock.now()
    stamp = digest(context.workspace, *astuple(among))
    before, before_id = (NEWEST, "")
    if page is not None:
        before, before_id = place_in(read_cursor(_LIST, stamp, page)[0])
    found = context.engine.all(
        QuestionRow,
        statements(context).list_questions,
        before=before,
        before_id=before_id,
        rows=rows + 1,
        statuses=among.statuses(),
        run=among.run or "",
        who=among.who or "",
    )
    shown = found[:rows]
    last: Key | None = [shown[-1].asked_at, shown[-1].id] if len(found) > rows else None
    return Page(
        [each.record().settled(now) for each in shown],
        None if last is None else write_cursor(_LIST, stamp, last),
        more=lambda page: list_questions(context, among, limit, page),
    )
