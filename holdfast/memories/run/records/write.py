"""Write records of runs: acquisitions, reports, ends, events.

A repeated report is applied once, because its sender does not know whether the first arrived.
"""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import Conflict, NotFound, RunTaken, StaleRun
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.run.memory import REFUSED
from holdfast.memories.run.records.event import ENDS, RunEvent, notice_of_event
from holdfast.memories.run.records.parts import add_parts
from holdfast.memories.run.records.question import withdraw
from holdfast.memories.run.records.record import (
    LEASE,
    MILLISECOND,
    RESTING,
    LeaseGrant,
    ReportedEntry,
    ReportReceipt,
    RunAcquisition,
    RunReport,
    RunRow,
    RunsContext,
)
from holdfast.memories.run.records.run import Run, merged, stored_facts
from holdfast.memories.state.thread import refuse_erased

_EVICTED: Final = REGISTRY.counter(
    "run_records_evicted_total", "Records of ended runs evicted for newer ones."
)
TAKEOVERS: Final = REGISTRY.counter(
    "run_takeovers_total",
    "Runs taken from another owner: lost, by force, or freed by a worker.",
    how=("expired", "always", "worker"),
)
_LEASES: Final = REGISTRY.counter(
    "run_leases_total",
    "Leases of runs.",
    outcome=("acquired", "refused", "released"),
)
_ENDED: Final = REGISTRY.counter(
    "run_ended_total", "Runs that are over.", kind=(), status=(), reason=()
)
DROPPED: Final = REGISTRY.counter(
    "run_events_dropped_total", "Events of runs that are not stored, for want of room."
)


ENDED_MOST: Final = 1_000
"""Stored records of ended runs in a workspace; the oldest are evicted."""

EVENTS_KEPT: Final = 10_000
"""Stored events of a run, for clients that follow it later."""

EVENT_BYTES_KEPT: Final = 16_777_216
"""Bytes of the data of the stored events of a run."""

PACKAGE: Final = "holdfast.memories.run"
_PER_REPORT: Final = 1_000_000
"""More than the entries of one report, so that write numbers of two reports never overlap."""

_text: Final = msgspec.json.Encoder(order="deterministic").encode


class _Size(Struct, frozen=True):
    key: str
    value_bytes: int


def begin(context: RunsContext, opening: RunAcquisition, *, cap: int | None = None) -> LeaseGrant:
    """Acquire the run of *opening* and record it as running.

    A repeat by its holder does nothing. A run of the same id is started again, or taken over: its
    entries are deleted, and reports of its former holder are refused. Raise `RunTaken` where
    *opening* does not take it over.
    """
    now = context.now()

    def work(tx: Transaction) -> LeaseGrant:
        sql = statements(context)
        refuse_erased(tx, sql, context.subject)
        if opening.thread_id is not None:
            tx.send(sql.hold_thread, thread=opening.thread_id, now=now - now % MILLISECOND)
        there = tx.first(RunRow, sql.lock_run, run=opening.run_id)
        if opening.claimed and (there is None or there.holder != opening.holder):
            raise StaleRun("superseded", token=0, live_token=there.fence if there else None)
        if there is not None and there.holder == opening.holder and there.is_owned:
            return LeaseGrant(fence=there.fence, seq=there.seq)
        if there is not None:
            refuse_taken(there, opening, now)
            tx.run(sql.clear_entries, run=opening.run_id)
            if there.ended:
                _start_again(tx, sql, opening)
        fence, seq = (there.fence + 1, there.seq) if there else (1, 0)
        opened = _opened(opening, there, seq=seq, now=now)
        tx.run(
            sql.begin_run,
            **_row(opening),
            fence=fence,
            until=now + LEASE,
            seq=opened[-1].seq,
            now=now,
        )
        _link(tx, sql, opening, now)
        add_events(tx, sql, opening.run_id, opened)
        make_room(context, tx, sql, now=now, cap=cap)
        tx.after_commit(lambda: published(context, opened))
        tx.after_commit(lambda: _LEASES.add("acquired"))
        if opened[0].type == "run.taken_over":
            tx.after_commit(lambda: TAKEOVERS.add(_how(there, now)))
        return LeaseGrant(fence=fence, seq=opened[-1].seq, opened=opened)

    return context.engine.write(work)


def _link(tx: Transaction, sql: SimpleNamespace, opening: RunAcquisition, now: int) -> None:
    """Link the run to its user and to those of its parent, its thread to the user."""
    facts = {"run": opening.run_id, "kind": link_kind(opening.kind), "now": now}
    if opening.parent_id is not None:
        tx.send(sql.link_run_as, other=opening.parent_id, **facts)
    if opening.user is not None:
        tx.send(sql.link_run, user=opening.user, **facts)
        if opening.thread_id is not None:
            tx.send(sql.link_thread, user=opening.user, thread=opening.thread_id, now=now)


def link_kind(kind: str) -> str:
    """Return the kind of the link of a run of *kind* to a person."""
    return "network_run" if kind == "network" else "run"


def _start_again(tx: Transaction, sql: SimpleNamespace, opening: RunAcquisition) -> None:
    """Delete what the run that is over has left, its versions unless it continues."""
    tx.run(sql.clear_parts, run=opening.run_id)
    if not opening.continues:
        for statement in (
            sql.drop_version_rows,
            sql.drop_versions,
            sql.drop_turns,
            sql.clear_questions,
            sql.forget_versions,
        ):
            tx.run(statement, run=opening.run_id)


def _how(former: RunRow | None, now: int) -> str:
    return "always" if former is not None and former.live_at(now) else "expired"


def refuse_taken(run: RunRow, opening: RunAcquisition, now: int) -> None:
    """Raise `RunTaken` if another owner has *run* and *opening* does not take it over."""
    if opening.take_over == "always" or not run.live_at(now):
        return
    until = run.lease_until
    _LEASES.add("refused")
    REFUSED.add("taken")
    raise RunTaken(
        run.id,
        holder=run.holder or "",
        place=run.place or "",
        until=None if until is None else from_microseconds(until),
    )


def _row(opening: RunAcquisition) -> dict[str, object]:
    """Return the parameters of the row of *opening*."""
    facts: dict[str, object] = asdict(opening)
    for name in ("inputs", "take_over", "continues", "claimed", "user"):
        del facts[name]
    return facts | {
        "run": facts.pop("run_id"),
        "metadata": _text(opening.metadata).decode(),
        "started_at": opening.started_at * MILLISECOND,
    }


def _opened(
    opening: RunAcquisition, former: RunRow | None, *, seq: int, now: int
) -> tuple[RunEvent, ...]:
    """Return the events of the acquisition of a run, after the event *seq*."""
    facts: dict[str, Any] = {"kind": opening.kind, "name": opening.name}
    is_new = former is None or (former.fence == 0 and former.forked_run is None)
    if former is None or is_new or former.ended:
        emitted = [("run.started", facts | {"inputs": list(opening.inputs)})]
    elif former.status in RESTING:
        emitted = [("run.resumed", facts)]
    else:
        taken = {"from": former.place, "fence": former.fence + 1}
        emitted = [("run.taken_over", taken), ("run.resumed", facts)]
        if former.holder is None:
            del emitted[0]
    return tuple(
        RunEvent(
            type=type,
            seq=seq + place,
            at=now // MILLISECOND,
            run_id=opening.run_id,
            thread_id=opening.thread_id,
            network=opening.name if opening.kind == "network" else None,
            agent=opening.agent,
            data=data,
        )
        for place, (type, data) in enumerate(emitted, start=1)
    )


def take(
    context: RunsContext,
    run_id: str,
    report: RunReport,
    *,
    relay: bool = False,
    cap: int | None = None,
) -> ReportReceipt:
    """Apply *report* to the record, and extend the lease.

    With *relay* its events are published on this process's bus as well. Raise `NotFound` if the
    record was deleted, `StaleRun` if the run is over or has another owner.
    """
    now = context.now()

    def work(tx: Transaction) -> ReportReceipt:
        sql = statements(context)
        run = _held(tx.first(RunRow, sql.lock_run, run=run_id), run_id, report)
        if report.number <= run.batch:
            if not run.ended:
                tx.run(sql.set_run, **_unchanged(run), now=now, until=now + LEASE)
            return ReportReceipt(seq=run.seq, cancel=run.cancel_wanted)
        taken = _Taking(tx, sql, run, report)
        grown, heavier = taken.entries()
        events = taken.events(now)
        facts = {
            "run": run_id,
            "batch": report.number,
            "seq": events[-1].seq if events else run.seq,
            "entries": grown,
            "bytes": heavier,
            "now": now,
        }
        if report.ended:
            tx.run(
                sql.end_run, **facts, **_end_of(taken.end(now)), ended_at=now - now % MILLISECOND
            )
            make_room(context, tx, sql, now=now, cap=cap)
            tx.after_commit(lambda: _LEASES.add("released"))
            if not run.ended:
                count_end(tx, run.kind, events[-1])
        else:
            tx.run(sql.set_run, **facts, until=now + LEASE)
        if relay:
            tx.after_commit(lambda: published(context, events))
        return ReportReceipt(seq=events[-1].seq if events else run.seq, cancel=run.cancel_wanted)

    return context.engine.write(work)


def _unchanged(run: RunRow) -> dict[str, object]:
    return {"run": run.id, "batch": run.batch, "seq": run.seq, "entries": 0, "bytes": 0}


def _end_of(event: RunEvent) -> dict[str, object]:
    """Return the columns of the end that *event* tells."""
    error, usage = event.data.get("error"), event.data.get("usage")
    facts: dict[str, object] = {"status": event.type.removeprefix("run.")}
    for name in ("reason", "detail"):
        text = event.data.get(name)
        facts[name] = text if isinstance(text, str) and text else None
    facts["error"] = _text(error).decode() if isinstance(error, dict) else None
    facts["usage"] = _text(usage).decode() if isinstance(usage, dict) else None
    return facts


def put(context: RunsContext, given: Run) -> Run:
    """Write a run's record and return it; writing the same record again does nothing.

    Its thread is created if needed. Raise `Conflict` for a run that ended with another record,
    `StaleRun` for a record with the fence of a former owner. An end is stored with its event; an
    owner that ends the run later adds no other.
    """
    facts, now = asdict(stored_facts(given)), context.now()

    def work(tx: Transaction) -> Run:
        sql = statements(context)
        refuse_erased(tx, sql, context.subject)
        if given.thread_id is not None:
            tx.send(sql.hold_thread, thread=given.thread_id, now=now - now % MILLISECOND)
        end = (_end_event(given, 0),) if given.ended else ()
        row = {"run": given.id, **_columns(given), **facts}
        if tx.run(sql.put_run, **row, seq=len(end)):
            if given.fence:
                # It was acquired, and deleted since, such as with its person.
                raise refused("superseded", given.fence, None)
            _add_end(tx, sql, given, end)
            return given
        held = tx.one(RunRow, sql.lock_run, run=given.id)
        if given.fence not in (0, held.fence):
            raise refused("superseded", given.fence, held.fence)
        record = given
        if held.ended:
            record = merged(held.record(now), given)
            row = {"run": given.id, **_columns(record), **asdict(stored_facts(record))}
        end = ()
        if given.ended and not held.ended:
            asks = held.status == "waiting" or held.lease_until is not None
            withdrawn = withdraw(tx, sql, given.id, now) if asks else ()
            end = numbered(held, (*withdrawn, _end_event(given, 0)))
        tx.send(sql.change_run, **row, seq=held.seq + len(end))
        _add_end(tx, sql, given, end)
        return record

    return context.engine.write(work)


def _add_end(tx: Transaction, sql: SimpleNamespace, run: Run, events: Sequence[RunEvent]) -> None:
    """Write *events*, the last of which tells the end of *run*, if there are any."""
    add_events(tx, sql, run.id, events)
    if events:
        count_end(tx, run.kind, events[-1])


def count_end(tx: Transaction, kind: str, end: RunEvent) -> None:
    """Count the *end* of a run of *kind* once it is stored."""
    status, reason = end.type.removeprefix("run."), end.data.get("reason") or ""
    tx.after_commit(lambda: _ENDED.add(kind, status, reason))


def refused(reason: Literal["superseded", "ended"], token: int, live_token: int | None) -> StaleRun:
    """Return the error for a write of a run that is not its writer's, and count it."""
    REFUSED.add(reason)
    return StaleRun(reason, token=token, live_token=live_token)


def _columns(run: Run) -> dict[str, object]:
    columns: dict[str, object] = {
        name: getattr(run, name)
        for name in (
            "kind", "name", "definition", "agent", "status", "reason", "queue", "priority",
            "thread_id", "parent_id",
        )
    }  # fmt: skip
    columns["metadata"] = _text(run.metadata).decode()
    for name in ("started_at", "seen_at", "ended_at"):
        instant = getattr(run, name)
        columns[name] = None if instant is None else to_microseconds(instant)
    return columns


def _end_event(run: Run, seq: int) -> RunEvent:
    """Return the event that tells the end of *run*, after the event *seq*."""
    ended_at = run.ended_at or run.started_at
    data: dict[str, Any] = {
        "reason": run.reason,
        "detail": run.detail,
        "error": run.error,
        "usage": run.usage.export(),
    }
    return RunEvent(
        type=f"run.{run.status}",
        seq=seq + 1,
        at=to_microseconds(ended_at) // MILLISECOND,
        run_id=run.id,
        agent=run.agent,
        data=data | {name: run.extras[name] for name in ("dropped",) if name in run.extras},
    )


def add_events(
    tx: Transaction, sql: SimpleNamespace, run_id: str, events: Sequence[RunEvent]
) -> None:
    """Write *events* after those of the run, and the parts that they change.

    The oldest events beyond the room of the run are deleted.
    """
    if not events:
        return
    first = events[0].seq == 1
    written: int = 0 if first else tx.first(scalar, sql.last_event, run=run_id) or 0
    rows: list[dict[str, object]] = []
    for event in events:
        data = _text(event.data)
        written += len(data)
        rows.append(
            {
                "run": run_id,
                "seq": event.seq,
                "type": event.type,
                "at": event.at * MILLISECOND,
                "part": event.part,
                "agent": event.agent,
                "call_id": event.call_id,
                "data": data.decode(),
                "written": written,
            }
        )
    tx.run_many(sql.add_event, rows)
    add_parts(tx, sql, run_id, events)
    if events[-1].seq > EVENTS_KEPT:
        _count_dropped(tx, tx.run(sql.trim_events, run=run_id, seq=events[-1].seq - EVENTS_KEPT))
    if written > EVENT_BYTES_KEPT:
        over = written - EVENT_BYTES_KEPT
        _count_dropped(tx, tx.run(sql.trim_event_bytes, run=run_id, written=over))


def _count_dropped(tx: Transaction, events: int) -> None:
    tx.after_commit(lambda: DROPPED.add(by=events))


def numbered(run: RunRow, events: Iterable[RunEvent]) -> tuple[RunEvent, ...]:
    """Return *events* as those of *run* after its last one."""
    network = run.name if run.kind == "network" else None
    return tuple(
        replace(event, seq=seq, run_id=run.id, thread_id=run.thread_id, network=network)
        for seq, event in enumerate(events, start=run.seq + 1)
    )


def published(context: RunsContext, events: Iterable[RunEvent]) -> None:
    """Publish *events* on the bus of this process, without texts."""
    if context.engine.events.heard:
        for event in events:
            context.engine.events.publish(notice_of_event(context.workspace, event))


def delete(context: RunsContext, run_id: str) -> None:
    """Delete a run that is over with all that it has; erase the bytes.

    Raise `NotFound`, and `Conflict` for a run that is running.
    """
    now = context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        if run is None:
            raise missing(run_id)
        if run.live_at(now):
            raise Conflict(
                f"The run {run_id} is running, in {run.place}.",
                reason="running",
                next="Cancel it, or wait for its end.",
            )
        drop(tx, sql, run_id)

    context.engine.write(work)
    context.engine.scrub()


def statements(context: RunsContext) -> SimpleNamespace:
    """Return the statements about records of runs."""
    return context.engine.queries(PACKAGE)


def missing(run_id: str) -> NotFound:
    """Return the error for a missing run."""
    return NotFound("run", run_id, next="List the runs that there are.")


class _Taking:
    """Applies one report to the record of *run*."""

    def __init__(
        self, tx: Transaction, sql: SimpleNamespace, run: RunRow, report: RunReport
    ) -> None:
        self._tx, self._sql, self._run, self._report = tx, sql, run, report

    def entries(self) -> tuple[int, int]:
        """Write and delete entries; return the changes of their number and their bytes."""
        report, run_id = self._report, self._run.id
        keys = [each.key for each in report.entries]
        touched = _text([*keys, *report.deleted]).decode()
        before = self._tx.all(_Size, self._sql.sizes_of, run=run_id, keys=touched)
        if report.deleted:
            gone = _text(report.deleted).decode()
            self._tx.run(self._sql.delete_entries, run=run_id, keys=gone)
        if report.entries:
            self._tx.run_many(self._sql.set_entry, self._rows())
        weight = sum(each.value_bytes for each in report.entries)
        return (
            len(keys) - len(before),
            weight - sum(each.value_bytes for each in before),
        )

    def _rows(self) -> Iterable[dict[str, object]]:
        start = self._report.number * _PER_REPORT
        for place, entry in enumerate(self._report.entries):
            yield {"run": self._run.id, "written": start + place, **stored_entry(entry)}

    def events(self, now: int) -> tuple[RunEvent, ...]:
        """Write the events, numbered after those of the run, and return them."""
        seq, numbered = self._run.seq, list[RunEvent]()
        emitted = list(self._report.events)
        if self._report.ended:
            last = self.end(now)
            emitted = [event for event in emitted if event is not last]
            emitted += [*withdraw(self._tx, self._sql, self._run.id, now), last]
        # The event of an end is the last one.
        for event in () if self._run.ended else emitted:
            seq = max(seq + 1, event.seq)
            numbered.append(replace(event, seq=seq, run_id=self._run.id))
        add_events(self._tx, self._sql, self._run.id, numbered)
        return tuple(numbered)

    def end(self, now: int) -> RunEvent:
        """Return the event of the end, that of the report if it has one."""
        report = self._report
        if report.events and report.events[-1].type in ENDS:
            return report.events[-1]
        return RunEvent(
            type=f"run.{report.ended}", seq=0, at=now // MILLISECOND, run_id=self._run.id
        )


def stored_entry(entry: ReportedEntry) -> dict[str, object]:
    """Return the parameters of the row of *entry*."""
    facts: dict[str, object] = asdict(entry)
    texts = {name: facts.pop(name) for name in ("source", "title", "description")}
    return facts | {
        "told": _text(texts).decode(),
        "failed": int(entry.failed),
        "created_at": entry.created_at * MILLISECOND,
        "updated_at": entry.updated_at * MILLISECOND,
    }


def _held(run: RunRow | None, run_id: str, report: RunReport) -> RunRow:
    """Return *run*; raise `StaleRun` for a former holder, or after the end."""
    if run is None:
        raise missing(run_id)
    if run.holder != report.holder or report.fence not in (0, run.fence):
        raise refused("superseded", report.fence, run.fence)
    if run.ended and run.lease_until is None and report.number > run.batch:
        raise refused("ended", report.fence, None)
    return run


def make_room(
    context: RunsContext, tx: Transaction, sql: SimpleNamespace, *, now: int, cap: int | None
) -> None:
    """Evict the oldest records of ended runs beyond *cap*, and add events of it.

    Without *cap* it is that of the workspace.
    """
    if cap is None:
        cap = tx.first(scalar, sql.most_ended)
        cap = ENDED_MOST if cap is None else cap
    surplus = tx.all(scalar, sql.surplus_runs, now=now, cap=cap)
    for id in surplus:
        drop(tx, sql, id)
        tx.note(
            Event(
                type="run.record_evicted",
                at=from_microseconds(now),
                workspace=context.workspace,
                ids={"run_id": id},
            )
        )
    if surplus:
        tx.after_commit(lambda: _EVICTED.add(by=len(surplus)))


def drop(tx: Transaction, sql: SimpleNamespace, run_id: str, **scope: str) -> None:
    """Delete the run with all that it has."""
    for statement in (sql.clear_entries, sql.clear_events, sql.delete_run):
        tx.run(statement, run=run_id, **scope)
