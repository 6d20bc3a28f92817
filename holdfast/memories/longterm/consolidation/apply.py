"""A collection as a memory to consolidate: apply changes of items, and undo them.

Undoing restores the items that are still as the application left them, and lists the others.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import Conflict, NotFound
from holdfast.ground.events import Event, Fact
from holdfast.memories.longterm.consolidation.drafts import CollectionInputs, inputs_at
from holdfast.memories.longterm.consolidation.jobs import JobRow, ProposedRow, statements
from holdfast.memories.longterm.consolidation.records import ChangeState, ProposedChange, encoded
from holdfast.memories.longterm.consolidation.rules import ChangeAfter, ChangeOp
from holdfast.memories.longterm.context import CollectionContext, event_of
from holdfast.memories.longterm.read import collection_of
from holdfast.memories.longterm.records import Item, Tier, alike, terms_hash
from holdfast.memories.longterm.remember import find_twin, graves, turns_there
from holdfast.memories.longterm.rows import ItemRow, NumberedRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.trust.rules import RANKS
from holdfast.memories.longterm.vectors.compare import Meant
from holdfast.memories.longterm.write import ItemRequest, ItemTrust, new_item, ready


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
        """Check whether both are the same but for access marks and the last change's time.

        Undoing a later change sets that time again, though the item is as it was before.
        """
        timeless = {"updated_at": 0, "last_accessed_at": None, "access_count": None}
        return msgspec.structs.replace(self, **timeless) == msgspec.structs.replace(
            other, **timeless
        )


class _Touched(Struct, frozen=True, kw_only=True):
    """An item before and after an application; before is None for a new item."""

    before: ItemImage | None
    after: ItemImage
    linked: tuple[int, ...] = ()


class _Application(Struct, frozen=True, kw_only=True):
    """What one accept wrote for a change, to undo it."""

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


class CollectionMemory(Struct, frozen=True):
    """The collection of a user; see `JobMemory`.

    *meanings* returns the vector of a new text.
    """

    context: CollectionContext
    meanings: Callable[[str], Meant | None] = lambda _text: None

    @property
    def engine(self) -> Engine:
        """The engine, scoped to the user."""
        return self.context.engine

    def now(self) -> int:
        """Return the current time in microseconds since 1970."""
        return self.context.now()

    def moment(self) -> int:
        """Return the moment of a snapshot."""
        return self.context.now()

    def writes_since(self, base: int) -> int:
        """Return how many writes came after the version *base*."""
        found = collection_of(self.context, self.engine)
        return 0 if found is None else max(0, found.version - base)

    def event(self, what: str, data: Mapping[str, Fact]) -> Event:
        """Return the event *what* of the workspace."""
        return event_of(self.context, what, None, {}, data)

    def snapshot(self, reader: Reader, at: int) -> tuple[int, CollectionInputs]:
        """Return the version of the collection, and its rows at that moment."""
        version, rows = inputs_at(self.context, reader, at)
        return version, CollectionInputs(self.context, rows)

    def shown(
        self, reader: Reader, row: JobRow, rows: Sequence[ProposedRow]
    ) -> tuple[ProposedChange, ...]:
        """Return changes with their items as they are now; open ones may be stale by now."""
        collection = collection_of(self.context, reader)
        if collection is None:
            return ()
        number, sql = collection.number, self.context.sql
        items: dict[str, Item] = {}
        for id in sorted({seen for each in rows for seen, _ in seen_of(each)}):
            found = reader.first(NumberedRow, sql.item_number, collection=number, id=id)
            if found is not None:
                place = {"collection": number, "numbers": numbers_text([found.number])}
                items[id] = reader.one(ItemRow, sql.items_numbered, **place).record()
        changes: list[ProposedChange] = []
        for each in rows:
            stale = each.state == "open" and not is_fresh(self.context, reader, number, each)
            state: ChangeState = "stale" if stale else msgspec.convert(each.state, ChangeState)
            changes.append(
                ProposedChange(
                    id=f"{row.id}.{each.n}",
                    op=msgspec.convert(each.op, ChangeOp),
                    state=state,
                    reason=each.reason,
                    before=tuple(items[seen] for seen, _ in seen_of(each) if seen in items),
                    after=_after(each),
                    evidence=turns_of(each),
                )
            )
        return tuple(changes)

    def opener(
        self, row: JobRow, rows: Sequence[ProposedRow], *, accepts: bool
    ) -> Callable[[Transaction], "CollectionDecisions"]:
        """Return what locks the collection; the new texts of *rows* are embedded first."""
        del row
        texts = [
            text
            for each in rows
            if accepts and each.state == "open" and (text := _after(each).text) is not None
        ]
        meant = {text: self.meanings(text) for text in texts}

        def opened(tx: Transaction) -> CollectionDecisions:
            unit = CollectionTransaction(self.context, tx, make=False)
            if unit.found is None:
                raise Conflict(
                    "The collection of this consolidation was deleted.", next="Leave its proposal."
                )
            return CollectionDecisions(unit, meant)

        return opened


class CollectionDecisions:
    """The unit of work of decisions on a collection; see `DecisionUnit`."""

    def __init__(self, unit: CollectionTransaction, meant: Meanings) -> None:
        self.tx, self._unit, self._meant = unit.tx, unit, meant

    def is_fresh(self, row: ProposedRow) -> bool:
        """Check that the items of a change are as its job saw them, and its turns exist."""
        return is_fresh(self._unit.context, self.tx, self._unit.number, row)

    def apply(self, row: ProposedRow) -> dict[str, Any] | None:
        """Apply a fresh change; return None if a new text may not be stored."""
        touched = _apply(self._unit, row, self._meant)
        return None if touched is None else {"items": touched}

    def undo(self, row: ProposedRow) -> list[str]:
        """Restore the items of an applied change; return the ids of those changed since."""
        return _undo(self._unit, row)

    def close(self) -> None:
        """Write the collection's totals."""
        self._unit.close()


def _after(row: ProposedRow) -> ChangeAfter:
    return msgspec.json.decode(row.after, type=ChangeAfter)


def _application(row: ProposedRow) -> _Application | None:
    return None if row.applied is None else msgspec.json.decode(row.applied, type=_Application)


def image_of(context: CollectionContext, reader: Reader, number: int, id: str) -> ItemImage | None:
    """Return the item *id* of the collection *number* as it is stored, or None."""
    return reader.first(ItemImage, statements(context.engine).item_image, collection=number, id=id)


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


def _image(unit: CollectionTransaction, id: str) -> ItemImage:
    found = image_of(unit.context, unit.tx, unit.number, id)
    if found is None:
        raise NotFound("item", id)
    return found


def _apply(
    unit: CollectionTransaction, row: ProposedRow, meant: Meanings
) -> tuple[_Touched, ...] | None:
    """Apply a change that is fresh; return None if a new text may not be stored."""
    after = _after(row)
    images = [_image(unit, each) for each, _ in seen_of(row)]
    touched: list[_Touched] = []
    keep = after.keep
    if keep is None and after.text is not None:
        made = _created(unit, row, after, images, meant)
        if made is None:
            return None
        keep = made.after.id
        touched.append(made)
    for each in images:
        others = [other for other in images if other is not each]
        touched.append(_changed(unit, row, each, others, keep))
    return tuple(touched)


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
        statements(unit.context.engine).set_image,
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
    sql, place = statements(unit.context.engine), {"collection": unit.number}
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
