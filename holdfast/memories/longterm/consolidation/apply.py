"""Accept a proposal's changes in one transaction, reject them, or undo them.

A change whose items or turns are not as the job saw them is refused alone. Undoing restores the
items that are still as the application left them, and lists the others.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.trust import RANKS
from holdfast.memories.longterm.consolidation.jobs import (
    JobRow,
    ProposedRow,
    job_event,
    statements,
)
from holdfast.memories.longterm.consolidation.records import (
    ENDED,
    AppliedChanges,
    ProposalStatus,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeAfter
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Tier, alike, terms_hash
from holdfast.memories.longterm.remember import find_twin, graves, turns_there
from holdfast.memories.longterm.rows import NumberedRow
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.vectors.compare import Meant
from holdfast.memories.longterm.write import ItemRequest, ItemTrust, new_item, ready

_CHANGES: Final = REGISTRY.counter(
    "consolidation_changes_total",
    "Proposed changes that were decided on, by operation and outcome.",
    op=("merge", "supersede", "promote", "expire", "hold", "conflict"),
    outcome=("applied", "stale", "rejected", "undone"),
)


class ItemImage(Struct, frozen=True, kw_only=True):
    """The columns of an item that an application may change, and its access marks."""

    number: int
    id: str
    kind: str
    importance: float
    tier: str
    valid_from: int
    valid_to: int | None
    superseded_by: str | None
    superseded_at: int | None
    held: str | None
    held_at: int | None
    updated_at: int
    body: str
    last_accessed_at: int | None
    access_count: int | None

    @property
    def is_live(self) -> bool:
        """Whether it is recalled."""
        return self.superseded_at is None and self.held is None

    def same(self, other: "ItemImage") -> bool:
        """Check whether both are the same but for access marks."""
        unmarked = {"last_accessed_at": None, "access_count": None}
        return msgspec.structs.replace(self, **unmarked) == msgspec.structs.replace(
            other, **unmarked
        )


class _Touched(Struct, frozen=True, kw_only=True):
    """An item before and after an application; before is None for a new item."""

    before: ItemImage | None
    after: ItemImage
    linked: tuple[int, ...] = ()


class _Application(Struct, frozen=True, kw_only=True):
    """What one accept wrote for a change, to undo it."""

    number: int
    items: tuple[_Touched, ...]


_MADE: Final[tuple[Tier, ...]] = ("confirmed", "assistant", "imported")
"""The tiers that a new item may have, best first."""

_seen = msgspec.json.Decoder(list[tuple[str, datetime]])
_ids = msgspec.json.Decoder(tuple[str, ...])
Meanings = dict[str, Meant | None]


def seen_of(row: ProposedRow) -> list[tuple[str, datetime]]:
    """Return the ids of a change's items with the last change that the job saw."""
    return _seen.decode(row.before)


def turns_of(row: ProposedRow) -> tuple[str, ...]:
    """Return the ids of the turns that a change rests on."""
    return _ids.decode(row.evidence)


def job_of(context: CollectionContext, reader: Reader, id: str) -> JobRow:
    """Return the job *id*; raise `NotFound`."""
    row = reader.first(JobRow, statements(context).get_job, id=id)
    if row is None:
        raise NotFound("consolidation", id)
    return row


def accept(
    context: CollectionContext,
    id: str,
    only: Sequence[str] | None,
    meanings: Callable[[str], Meant | None],
) -> AppliedChanges:
    """Apply the open changes of the job *id*, or those of *only*, in one transaction.

    *meanings* returns the vector of a new text. Raise `NotFound`, `Conflict` if the job runs or its
    proposal is closed, and `InvalidInput` for ids that are no open changes.
    """
    sql = statements(context)
    rows = context.engine.all(ProposedRow, sql.list_changes, id=id)
    texts = [_after(row).text for row in rows if row.state == "open"]
    meant: Meanings = {text: meanings(text) for text in texts if text is not None}

    def work(tx: Transaction) -> AppliedChanges:
        unit = _unit(context, tx)
        job = job_of(context, tx, id)
        _check_open(job)
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        wanted = _wanted(id, rows, only)
        fresh = [row for row in wanted if row.op != "conflict" and _is_fresh(unit, row)]
        number = 1 + max((_applied_in(row) for row in rows), default=0)
        done = [row for row in fresh if _apply(unit, id, row, number, meant)]
        outcomes = {row.n: "applied" for row in done}
        stale = [row for row in wanted if row.op != "conflict" and row.n not in outcomes]
        for row in stale:
            tx.run(sql.decide_change, id=id, n=row.n, state="stale", applied=None)
        _close_proposal(unit, id)
        _count(unit, done, "applied")
        _count(unit, stale, "stale")
        tx.note(job_event(context, "accepted", id, applied=len(done), stale=len(stale)))
        unit.close()
        return AppliedChanges(
            id=f"{id}.{number}", changed=_names(id, done), stale=_names(id, stale)
        )

    return context.engine.write(work)


def reject(context: CollectionContext, id: str) -> None:
    """Reject the open changes of the job *id*."""
    sql = statements(context)

    def work(tx: Transaction) -> None:
        unit = _unit(context, tx)
        _check_open(job_of(context, tx, id))
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        _count(unit, [row for row in rows if row.state == "open"], "rejected")
        tx.run(sql.reject_changes, id=id)
        if not rows:
            tx.run(sql.set_proposal, id=id, proposal="rejected")
        _close_proposal(unit, id)
        tx.note(job_event(context, "rejected", id))
        unit.close()

    context.engine.write(work)


def undo(context: CollectionContext, id: str, number: int | None) -> AppliedChanges:
    """Undo application *number* of the job *id*, or all of them, the last first."""
    sql = statements(context)

    def work(tx: Transaction) -> AppliedChanges:
        unit = _unit(context, tx)
        job_of(context, tx, id)
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        wanted = [
            row for row in rows if row.state == "applied" and number in (None, _applied_in(row))
        ]
        if not wanted:
            raise Conflict(f"Nothing of {id} is applied.", next="Accept its proposal first.")
        kept: list[str] = []
        for row in sorted(wanted, key=lambda row: (_applied_in(row), row.n), reverse=True):
            kept += _undo(unit, row)
            tx.run(
                sql.decide_change,
                id=id,
                n=row.n,
                state="undone",
                applied=row.applied,
            )
        if not any(row.state == "applied" and row not in wanted for row in rows):
            tx.run(sql.set_proposal, id=id, proposal="undone")
        _count(unit, wanted, "undone")
        tx.note(job_event(context, "undone", id, changes=len(wanted), kept=len(kept)))
        unit.close()
        name = id if number is None else f"{id}.{number}"
        return AppliedChanges(id=name, changed=_names(id, wanted), kept=tuple(dict.fromkeys(kept)))

    return context.engine.write(work)


def _unit(context: CollectionContext, tx: Transaction) -> CollectionTransaction:
    """Return the unit of work on the collection, which locks it."""
    unit = CollectionTransaction(context, tx, make=False)
    if unit.found is None:
        raise Conflict("The collection of this consolidation was deleted.", next="Reject it.")
    return unit


def _check_open(job: JobRow) -> None:
    if job.status not in ENDED:
        raise Conflict(
            f"The consolidation {job.id} is {job.status}.", next="Wait for it, or cancel it."
        )
    if job.proposal != "open":
        raise Conflict(
            f"The proposal of {job.id} is {job.proposal}.", next="Create another consolidation."
        )


def _wanted(id: str, rows: Sequence[ProposedRow], only: Sequence[str] | None) -> list[ProposedRow]:
    """Return the open changes called *only*, or all."""
    known = {f"{id}.{row.n}": row for row in rows if row.state == "open"}
    if only is None:
        return [*known.values()]
    for each in only:
        if each not in known:
            raise InvalidInput("only", "names no open change of this proposal", given=each)
        if known[each].op == "conflict":
            raise InvalidInput(
                "only", "names a conflict", given=each, next="Update or forget one of its items."
            )
    return [known[each] for each in dict.fromkeys(only)]


def _names(id: str, rows: Sequence[ProposedRow]) -> tuple[str, ...]:
    return tuple(f"{id}.{row.n}" for row in sorted(rows, key=lambda row: row.n))


def _after(row: ProposedRow) -> ChangeAfter:
    return msgspec.json.decode(row.after, type=ChangeAfter)


def _application(row: ProposedRow) -> _Application | None:
    return None if row.applied is None else msgspec.json.decode(row.applied, type=_Application)


def _applied_in(row: ProposedRow) -> int:
    found = _application(row)
    return 0 if found is None else found.number


def _count(unit: CollectionTransaction, rows: Sequence[ProposedRow], outcome: str) -> None:
    for row in rows:
        unit.tx.after_commit(lambda op=row.op: _CHANGES.add(op, outcome))


def _close_proposal(unit: CollectionTransaction, id: str) -> None:
    """Close the proposal once none of its changes can be accepted any more."""
    sql = statements(unit.context)
    rows = unit.tx.all(ProposedRow, sql.list_changes, id=id)
    if any(row.state == "open" and row.op != "conflict" for row in rows):
        return
    states = {row.state for row in rows}
    order: tuple[tuple[str, ProposalStatus], ...] = (
        ("applied", "accepted"),
        ("stale", "stale"),
        ("undone", "undone"),
        ("rejected", "rejected"),
    )
    status = next((status for state, status in order if state in states), None)
    if status is not None:
        unit.tx.run(sql.set_proposal, id=id, proposal=status)


def image_of(context: CollectionContext, reader: Reader, number: int, id: str) -> ItemImage | None:
    """Return the item *id* of the collection *number* as it is stored, or None."""
    return reader.first(ItemImage, statements(context).item_image, collection=number, id=id)


def is_fresh(context: CollectionContext, reader: Reader, number: int, row: ProposedRow) -> bool:
    """Check that the items of a change are as its job saw them, and its turns exist."""
    for id, at in seen_of(row):
        found = image_of(context, reader, number, id)
        if found is None or not found.is_live or found.updated_at != to_microseconds(at):
            return False
    turns = turns_of(row)
    ids = encoded(turns)
    place = {"collection": number, "ids": ids}
    return not turns or len(reader.rows(context.sql.turns_by_id, **place)) == len(set(turns))


def _is_fresh(unit: CollectionTransaction, row: ProposedRow) -> bool:
    return is_fresh(unit.context, unit.tx, unit.number, row)


def _image(unit: CollectionTransaction, id: str) -> ItemImage:
    found = image_of(unit.context, unit.tx, unit.number, id)
    if found is None:
        raise NotFound("item", id)
    return found


def _apply(
    unit: CollectionTransaction, id: str, row: ProposedRow, number: int, meant: Meanings
) -> bool:
    """Apply a change that is fresh; return False if a new text may not be stored."""
    after = _after(row)
    images = [_image(unit, each) for each, _ in seen_of(row)]
    touched: list[_Touched] = []
    keep = after.keep
    if keep is None and after.text is not None:
        made = _created(unit, row, after, images, meant)
        if made is None:
            return False
        keep = made.after.id
        touched.append(made)
    for each in images:
        others = [other for other in images if other is not each]
        touched.append(_changed(unit, row, each, others, keep))
    applied = encoded(_Application(number=number, items=tuple(touched)))
    unit.tx.run(
        statements(unit.context).decide_change, id=id, n=row.n, state="applied", applied=applied
    )
    return True


def _changed(
    unit: CollectionTransaction,
    row: ProposedRow,
    image: ItemImage,
    others: Sequence[ItemImage],
    keep: str | None,
) -> _Touched:
    """Write what a change makes of one item; *keep* is the id of the one that stays."""
    after = _after(row)
    linked: tuple[int, ...] = ()
    unit.keep_state(image.number)
    if row.op in ("merge", "supersede") and image.id != keep:
        ends = unit.now if after.valid_to is None else to_microseconds(after.valid_to)
        _write(
            unit,
            image,
            superseded_by=keep,
            superseded_at=unit.now,
            valid_to=max(image.valid_from, min(ends, image.valid_to or ends)),
        )
        unit.record_state(image.number, "supersede")
        unit.superseded(PostingChange(image.number, image.body))
        unit.vectors.drop(image.id)
        unit.note("superseded", {"item": [image.id]}, by=keep or "")
    elif row.op == "merge":
        linked = _joined(unit, row, image, others)
        since = image.valid_from if after.valid_from is None else to_microseconds(after.valid_from)
        importance = image.importance if after.importance is None else after.importance
        _write(unit, image, importance=importance, valid_from=min(since, image.valid_from))
        unit.record_state(image.number, "update")
        unit.changed()
    elif row.op == "expire" and after.valid_to is not None:
        _write(unit, image, valid_to=max(image.valid_from, to_microseconds(after.valid_to)))
        unit.record_state(image.number, "update")
        unit.changed()
    elif row.op == "hold":
        _write(unit, image, held=after.held, held_at=unit.now)
        unit.record_state(image.number, "supersede")
        unit.withheld(PostingChange(image.number, image.body))
        unit.vectors.drop(image.id)
        unit.note("held", {"item": [image.id]}, reason=after.held or "", tier=image.tier)
    return _Touched(before=image, after=_image(unit, image.id), linked=linked)


def _write(unit: CollectionTransaction, image: ItemImage, **changes: object) -> None:
    """Store *image* with *changes*, as of now."""
    columns = {name: getattr(image, name) for name in _WRITTEN}
    unit.tx.run(
        statements(unit.context).set_image,
        collection=unit.number,
        number=image.number,
        **{**columns, "updated_at": unit.now, **changes},
    )


_WRITTEN: Final = (
    "kind",
    "importance",
    "tier",
    "valid_from",
    "valid_to",
    "superseded_by",
    "superseded_at",
    "held",
    "held_at",
)


def _joined(
    unit: CollectionTransaction, row: ProposedRow, image: ItemImage, others: Sequence[ItemImage]
) -> tuple[int, ...]:
    """Give an item the turns and marks of the others; return the turns it lacked."""
    place = {"collection": unit.number, "item": image.number}
    known = {each.number for each in unit.tx.all(NumberedRow, unit.sql.turns_of_item, **place)}
    turns = [turn.number for turn in turns_there(unit, turns_of(row))]
    linked = tuple(number for number in turns if number not in known)
    unit.put_links(image.number, linked)
    last = max((each.last_accessed_at or 0 for each in others), default=0)
    times = sum(each.access_count or 0 for each in others)
    if last:
        place = {"collection": unit.number, "number": image.number}
        unit.tx.send(unit.sql.mark_access, at=last, times=times, **place)
    return linked


def _created(
    unit: CollectionTransaction,
    row: ProposedRow,
    after: ChangeAfter,
    images: Sequence[ItemImage],
    meant: Meanings,
) -> _Touched | None:
    """Write the new item of a change, or return None if it may not be stored.

    It may not if it was forgotten, is known already, or is one more than the limit.
    """
    text = ready(after.text or "")
    cap = unit.context.max_items
    twin = find_twin(unit, text, None)
    replaced = {each.id for each in images}
    if (twin is not None and twin.id not in replaced) or (cap and unit.items >= cap):
        return None
    if unit.there.buried:
        terms = terms_hash(unit.secret, text.said.terms)
        if any(alike(terms, grave.terms) for grave in graves(unit)):
            return None
    lowest = min((RANKS[each.tier] for each in images), default=RANKS["confirmed"])
    tier: Tier = next(each for each in _MADE if RANKS[each] <= lowest)
    turns = turns_there(unit, turns_of(row))
    request = ItemRequest(
        text=text.text,
        kind=after.kind or "fact",
        importance=0.5 if after.importance is None else after.importance,
        turns=tuple(turn.id for turn in turns),
        origin="extraction",
        valid_from=after.valid_from,
    )
    number = unit.numbers(1)[0]
    new = new_item(unit, request, text, ItemTrust(tier=tier))
    unit.put_items([(number, new)])
    vector = meant.get(text.text)
    if vector is not None and unit.vectors.put([(new.id, vector.vector)]):
        unit.vectors.made(number)
    unit.put_links(number, [turn.number for turn in turns])
    made = _image(unit, new.id)
    _joined(unit, row, made, images)
    unit.note("stored", {"item": [new.id]}, items=1, origin="extraction")
    return _Touched(before=None, after=_image(unit, new.id))


def _undo(unit: CollectionTransaction, row: ProposedRow) -> list[str]:
    """Restore the items of an applied change; return the ids of those changed since."""
    kept: list[str] = []
    found = _application(row)
    for touched in reversed(found.items if found else ()):
        id, after, before = touched.after.id, touched.after, touched.before
        now = image_of(unit.context, unit.tx, unit.number, id)
        if now is None or not after.same(now):
            kept.append(id)
            continue
        unit.keep_state(now.number)
        posting = PostingChange(now.number, now.body)
        if before is None:
            _write(unit, now, superseded_at=unit.now, superseded_by=None)
            unit.record_state(now.number, "supersede")
            unit.superseded(posting)
            unit.vectors.drop(id)
            continue
        _write(unit, before)
        _unjoin(unit, touched, before, now)
        unit.record_state(now.number, "update" if after.is_live else "restore")
        if after.held is not None and before.held is None:
            unit.released(posting, item=True)
        elif not after.is_live and before.is_live:
            unit.restored(posting)
        else:
            unit.changed()
    return kept


def _unjoin(
    unit: CollectionTransaction, touched: _Touched, before: ItemImage, now: ItemImage
) -> None:
    """Take back the turns and access marks that a merge added; later accesses stay."""
    sql, place = statements(unit.context), {"collection": unit.number}
    for turn in touched.linked:
        unit.tx.run(sql.drop_link, item=now.number, turn=turn, **place)
    after = touched.after
    marks = before.last_accessed_at, before.access_count
    if marks == (after.last_accessed_at, after.access_count):
        return
    since = (now.access_count or 0) - (after.access_count or 0)
    last = now.last_accessed_at if since else before.last_accessed_at
    unit.tx.run(sql.drop_marks, number=now.number, **place)
    if last is not None:
        times = (before.access_count or 0) + since
        unit.tx.run(
            sql.put_marks, number=now.number, last_accessed_at=last, access_count=times, **place
        )
