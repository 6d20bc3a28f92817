"""Write records of runs: leases, reports, checkpoints.

A repeated report is applied once, because its sender does not know whether the first arrived.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Conflict, NotFound
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import checked_name
from holdfast.memories.run.listeners import notice_of
from holdfast.memories.run.records.record import (
    LOST_AFTER,
    MILLISECOND,
    ReportedEntry,
    RunReport,
    RunRow,
    RunsContext,
    RunStart,
)

_EVICTED: Final = REGISTRY.counter(
    "run_records_evicted_total", "Records of ended runs evicted for newer ones."
)


ENDED_MOST: Final = 1_000
"""Stored records of ended runs in a workspace; the oldest are evicted."""

EVENTS_KEPT: Final = 1_000
"""Stored events of a run, for clients that follow it later."""

PACKAGE: Final = "holdfast.memories.run"
_PER_REPORT: Final = 1_000_000
"""More than the entries of one report, so that write numbers of two reports never overlap."""

_text: Final = msgspec.json.Encoder(order="deterministic").encode


class _Size(Struct, frozen=True):
    key: str
    value_bytes: int


def begin(context: RunsContext, opening: RunStart, *, cap: int = ENDED_MOST) -> None:
    """Record the run of *opening* as running; a repeat by its holder does nothing.

    A run of the same id is started again: its entries are deleted, and reports of its former holder
    are refused.
    """
    now = context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        there = tx.first(RunRow, sql.lock_run, run=opening.run_id)
        if there is not None and there.holder == opening.holder:
            return
        if there is not None:
            tx.run(sql.clear_entries, run=opening.run_id)
        tx.run(
            sql.begin_run,
            run=opening.run_id,
            name=opening.name,
            agent=opening.agent,
            metadata=_text(opening.metadata).decode(),
            holder=opening.holder,
            place=opening.place,
            started_at=opening.started_at * MILLISECOND,
            now=now,
        )
        _make_room(context, tx, sql, now=now, cap=cap)

    return context.engine.write(work)


def take(
    context: RunsContext,
    run_id: str,
    report: RunReport,
    *,
    relay: bool = False,
    cap: int = ENDED_MOST,
) -> None:
    """Apply *report* to the record; also an empty report is a heartbeat.

    With *relay* its events are published on this process's bus as well. Raise `NotFound` if the
    record was deleted, `Conflict` if the run is over or another holder reports it.
    """
    now = context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        run = _held(tx.first(RunRow, sql.lock_run, run=run_id), run_id, report)
        if report.number <= run.batch:
            return
        taken = _Taking(tx, sql, run, report)
        grown, heavier = taken.entries()
        tx.run(
            sql.set_run,
            run=run_id,
            state=report.ended or "running",
            batch=report.number,
            seq=taken.events(),
            entries=grown,
            bytes=heavier,
            now=now,
            ended_at=now - now % MILLISECOND if report.ended else None,
        )
        if report.ended:
            _make_room(context, tx, sql, now=now, cap=cap)
        if relay:
            tx.after_commit(lambda: _relay(context, run_id, report))

    return context.engine.write(work)


def delete(context: RunsContext, run_id: str) -> None:
    """Delete the record and checkpoint of a run that is over; erase their bytes.

    Raise `NotFound`, and `Conflict` for a run that is running.
    """
    now = context.now()

    def work(tx: Transaction) -> None:
        sql = statements(context)
        run = tx.first(RunRow, sql.lock_run, run=run_id)
        if run is None:
            raise missing(run_id)
        if run.state_at(now) == "running":
            raise Conflict(
                f"The run {run_id} is running, in {run.place}.",
                reason="running",
                next="Cancel it, or wait for its end.",
            )
        _drop(tx, sql, run_id)
        tx.run(sql.delete_checkpoint, run=run_id)

    context.engine.write(work)
    context.engine.scrub()


def forget_runs(engine: Engine, tx: Transaction, *, workspace: str, agent: str) -> dict[str, int]:
    """Delete every record of a run of *agent*, live ones too; return their number.

    The caller must scrub the engine.
    """
    sql, scope = engine.queries(PACKAGE), {"workspace": workspace}
    found = tx.all(scalar, sql.runs_of_agent, named=agent, **scope)
    for id in found:
        _drop(tx, sql, id, **scope)
        tx.run(sql.delete_checkpoint, run=id, **scope)
    return {"runs": len(found)}


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
            yield {"run": self._run.id, "written": start + place, **_stored(entry)}

    def events(self) -> int:
        """Write events, delete the oldest, and return the number of the last."""
        first = self._run.seq + self._report.missed + 1
        rows = [
            {
                "run": self._run.id,
                "seq": seq,
                "type": event.type,
                "at": event.at * MILLISECOND,
                "data": _text(event.data).decode(),
            }
            for seq, event in enumerate(self._report.events, start=first)
        ]
        last = first + len(rows) - 1
        if rows:
            self._tx.run_many(self._sql.add_event, rows)
            self._tx.run(self._sql.trim_events, run=self._run.id, seq=last - EVENTS_KEPT)
        return last


def _stored(entry: ReportedEntry) -> dict[str, object]:
    facts: dict[str, object] = asdict(entry)
    texts = {name: facts.pop(name) for name in ("source", "title", "description")}
    return facts | {
        "told": _text(texts).decode(),
        "failed": int(entry.failed),
        "created_at": entry.created_at * MILLISECOND,
        "updated_at": entry.updated_at * MILLISECOND,
    }


def _held(run: RunRow | None, run_id: str, report: RunReport) -> RunRow:
    """Return *run*; raise `Conflict` for a report of another holder, or after the end."""
    if run is None:
        raise missing(run_id)
    if run.holder != report.holder:
        raise Conflict(
            f"The run {run_id} was started again, in {run.place}.",
            reason="superseded",
            next="Give each run its own id.",
        )
    if run.state != "running" and report.number > run.batch:
        raise Conflict(
            f"The run {run_id} is {run.state}.", reason="ended", next="Attach it once more."
        )
    return run


def _make_room(
    context: RunsContext, tx: Transaction, sql: SimpleNamespace, *, now: int, cap: int
) -> None:
    """Evict the oldest records of ended runs beyond *cap*, and add events of it."""
    surplus = tx.all(scalar, sql.surplus_runs, lost_before=now - LOST_AFTER, cap=cap)
    for id in surplus:
        _drop(tx, sql, id)
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


def _drop(tx: Transaction, sql: SimpleNamespace, run_id: str, **scope: str) -> None:
    for statement in (sql.clear_entries, sql.clear_events, sql.delete_run):
        tx.run(statement, run=run_id, **scope)


def _relay(context: RunsContext, run_id: str, report: RunReport) -> None:
    if context.engine.events.heard:
        for event in report.events:
            context.engine.events.publish(
                notice_of(context.workspace, run_id, event.type, event.at, event.data)
            )


class CheckpointRows:
    """The checkpoints of a workspace's runs, as bytes: a row for the whole, one for each change."""

    def __init__(self, context: RunsContext) -> None:
        self._caller = context

    def load(self, run_id: str) -> list[bytes]:
        """Return the checkpoint of the run *run_id* and its changes; an empty list for none."""
        checked_name("run_id", run_id)
        return self._caller.engine.all(scalar, statements(self._caller).get_checkpoint, run=run_id)

    def save(self, run_id: str, content: bytes) -> int:
        """Save *content* as the checkpoint of the run *run_id*; return the number of its row.

        It replaces the former one and its changes.
        """
        checked_name("run_id", run_id)
        context, sql, now = self._caller, statements(self._caller), self._caller.now()

        def work(tx: Transaction) -> int:
            number = (tx.first(scalar, sql.last_checkpoint, run=run_id) or 0) + 1
            tx.run(sql.delete_checkpoint, run=run_id)
            tx.run(sql.set_checkpoint, run=run_id, number=number, now=now, content=content)
            return number

        return context.engine.write(work)

    def append(self, run_id: str, content: bytes, *, after: int) -> bool:
        """Save *content* as a change, if the last row of the run *run_id* is number *after*."""
        checked_name("run_id", run_id)
        context, sql, now = self._caller, statements(self._caller), self._caller.now()

        def work(tx: Transaction) -> bool:
            if tx.first(scalar, sql.last_checkpoint, run=run_id) != after:
                return False
            row = {"run": run_id, "number": after + 1, "now": now, "content": content}
            return bool(tx.run(sql.add_checkpoint, **row))

        return context.engine.write(work)

    def delete(self, run_id: str) -> bool:
        """Delete the checkpoint of the run *run_id*; return whether there was one."""
        checked_name("run_id", run_id)
        context = self._caller

        def work(tx: Transaction) -> bool:
            return bool(tx.run(statements(context).delete_checkpoint, run=run_id))

        return context.engine.write(work)
