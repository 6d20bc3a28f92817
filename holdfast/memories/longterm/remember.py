"""Remember and update items."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, SecretRefused
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.longterm.context import CollectionContext, publish
from holdfast.memories.longterm.recall.dedupe import EVERY, Like, SimilarityBounds, bounds, twin
from holdfast.memories.longterm.records import (
    TIER_OF_ORIGIN,
    Item,
    Outcome,
    Remembered,
    alike,
    terms_hash,
)
from holdfast.memories.longterm.removal import evict_items, expire_held
from holdfast.memories.longterm.rows import ItemRow, NumberedRow, ids_text, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction, PostingChange
from holdfast.memories.longterm.trust.evidence import (
    HELD,
    outranks,
    remembered_trust,
    settled_trust,
)
from holdfast.memories.longterm.validation import (
    checked_importance,
    checked_instant,
    checked_item_text,
    checked_kind,
    checked_source,
    is_id,
    microseconds_or_none,
)
from holdfast.memories.longterm.vectors.compare import Meant, meant
from holdfast.memories.longterm.write import (
    ItemRequest,
    ItemTrust,
    Ready,
    item_of,
    new_item,
    ready,
    screen,
)

OUTCOMES: Final = REGISTRY.counter(
    "ltm_outcomes_total", "Results of remember, by outcome.", outcome=get_args(Outcome)
)


class Linked(Struct, frozen=True):
    """A turn that an item came from."""

    number: int
    id: str
    at: int


class Grave(Struct, frozen=True, kw_only=True):
    """The tombstone of a forgotten row: hashes of its terms and its fingerprint."""

    id: str
    at: int
    terms: bytes
    fingerprint: bytes | None


def remember(context: CollectionContext, request: ItemRequest) -> Remembered:
    """Store the item of *request*, unless it is blank or holds a secret."""
    request = request.checked()
    if not request.text:
        return _not_kept(context, "blank")
    found = screen(context, (request.text, request.source))
    if found.refused:
        return _not_kept(context, "secret", found.refused)
    text, source = found.texts
    if not source and context.session is not None and context.session.thread_id:
        source = checked_source(f"thread:{context.session.thread_id}")
    kept = replace(request, text=text, source=source)
    prepared = ready(text)
    trust = remembered_trust(context, kept, prepared)
    # A text that will be held is not sent to an embedder.
    means = meant(context, text) if trust.hold is None else None

    def work(tx: Transaction) -> Remembered:
        unit = CollectionTransaction(context, tx)
        done = store(unit, kept, prepared, trust, meant=means)
        done = replace(done, reasons=(*found.redacted, *done.reasons))
        if done.outcome != "held":
            blank_tombstones(unit, prepared)
        unit.close()
        return done

    return context.engine.write(work)


def store(
    unit: CollectionTransaction,
    request: ItemRequest,
    text: Ready,
    trust: ItemTrust,
    *,
    meant: Meant | None = None,
) -> Remembered:
    """Write an item in the transaction of *unit*, hold it, or refresh its duplicate.

    Texts are compared by vectors if *meant* has them, else by terms.
    """
    expire_held(unit)
    turns = turns_named(unit, tuple(request.turns))
    same = find_twin(unit, text, meant.cosines if meant else None)
    settled = trust if same is not None else settled_trust(unit, request, text, trust)
    if same is not None:
        refreshed = _refreshed(unit, same, request, turns, trust)
        done = Remembered(stored=refreshed, outcome="duplicate")
        unit.note("duplicate", {"item": [same.id]})
    elif settled.hold is not None:
        done = _held(unit, request, text, settled, turns)
    else:
        number = unit.numbers(1)[0]
        new = new_item(unit, _dated(request, turns), text, settled)
        unit.put_items([(number, new)])
        if meant is not None and unit.vectors.put([(new.id, meant.vector)]):
            unit.vectors.made(number)
        unit.put_links(number, [turn.number for turn in turns])
        unit.note("stored", {"item": [new.id]}, items=1, origin=request.origin)
        gone = evict_items(unit, keep=number)
        item = item_of(new, [turn.id for turn in turns])
        done = Remembered(stored=item, outcome="stored", evicted=gone)
    unit.tx.after_commit(lambda: OUTCOMES.add(done.outcome))
    return done


def _held(
    unit: CollectionTransaction,
    request: ItemRequest,
    text: Ready,
    trust: ItemTrust,
    turns: Sequence[Linked],
) -> Remembered:
    """Store an item that waits for a person, unless one says the same."""
    reason = str(trust.hold)
    outcome: Outcome = "ungrounded" if reason == "ungrounded" else "held"
    place = {"collection": unit.number, "fold": text.said.fold}
    same = unit.tx.first(NumberedRow, unit.sql.held_alike, **place) if unit.held > 0 else None
    if same is not None:
        return Remembered(
            stored=item_numbered(unit, same.number), outcome=outcome, reasons=(reason,)
        )
    number = unit.numbers(1)[0]
    new = new_item(unit, _dated(request, turns), text, trust)
    unit.put_items([(number, new)])
    unit.put_links(number, [turn.number for turn in turns])
    unit.note("held", {"item": [new.id]}, reason=reason, tier=new.tier)
    if reason == "ungrounded":
        unit.note("ungrounded", {"item": [new.id]}, tier=new.tier)
    unit.tx.after_commit(lambda: HELD.add(reason))
    item = item_of(new, [turn.id for turn in turns])
    return Remembered(stored=item, outcome=outcome, reasons=(reason,))


def _dated(request: ItemRequest, turns: Sequence[Linked]) -> ItemRequest:
    """Return *request*, true from the first of *turns* unless it says otherwise."""
    if request.valid_from is not None or not turns:
        return request
    return replace(request, valid_from=from_microseconds(min(turn.at for turn in turns)))


def find_twin(
    unit: CollectionTransaction, text: Ready, cosines: Mapping[str, float] | None
) -> Like | None:
    """Return the live item that is a duplicate of *text*, or None."""
    least = unit.context.options.dedupe_similarity
    if not least or unit.there.items == unit.there.superseded:
        return None
    # With vectors any item may be near, however many terms it has.
    like = (
        SimilarityBounds(least=0, most=EVERY)
        if cosines is not None
        else bounds(text.said.terms, least)
    )
    near = unit.tx.all(
        Like,
        unit.sql.alike,
        collection=unit.number,
        fold=text.said.fold,
        **like.params,
    )
    return twin(text.said, near, least, cosines)


def turns_named(unit: CollectionTransaction, ids: Sequence[str]) -> list[Linked]:
    """Return the turns called *ids*, oldest first.

    Raise `InvalidInput` for one that does not exist.
    """
    found = turns_there(unit, ids)
    there = {each.id for each in found}
    for id in ids:
        if id not in there:
            raise InvalidInput("turns", "names a turn that is not there", given=id)
    return sorted(found, key=lambda each: each.number)


def turns_there(unit: CollectionTransaction, ids: Iterable[str]) -> list[Linked]:
    """Return those of the turns *ids* that exist."""
    named = ids_text(tuple(ids))
    if named == "[]":
        return []
    return unit.tx.all(Linked, unit.sql.turns_by_id, collection=unit.number, ids=named)


def blank_tombstones(unit: CollectionTransaction, text: Ready) -> None:
    """Blank the tombstones of rows like *text*, so that it may be mined again."""
    if not unit.there.buried:
        return
    terms = terms_hash(unit.secret, text.said.terms)
    for grave in graves(unit):
        if alike(terms, grave.terms):
            unit.tx.send(unit.sql.blank_tombstone, collection=unit.number, id=grave.id, none=b"")


def graves(unit: CollectionTransaction) -> list[Grave]:
    """Return all tombstones of the collection."""
    return unit.tx.all(Grave, unit.sql.graves, collection=unit.number)


def item_numbered(unit: CollectionTransaction, number: int) -> Item:
    """Return the item of that number."""
    numbers = numbers_text([number])
    return unit.tx.one(
        ItemRow, unit.sql.items_numbered, collection=unit.number, numbers=numbers
    ).record()


def _refreshed(
    unit: CollectionTransaction,
    same: Like,
    request: ItemRequest,
    turns: Sequence[Linked],
    trust: ItemTrust,
) -> Item:
    place = {"collection": unit.number, "number": same.number}
    there = unit.tx.one(HeldItem, unit.sql.held_item, **place)
    may = outranks(trust.tier, there.tier)
    importance = request.importance if may else 0.0
    believed = trust.tier == "said" and not outranks(there.tier, "said")
    raised = there.importance < importance or believed
    if raised:
        unit.keep_state(same.number)
    unit.tx.send(unit.sql.refresh_item, importance=importance, now=unit.now, **place)
    if believed:
        unit.tx.send(unit.sql.raise_tier, tier="said", **place)
    if raised:
        unit.record_state(same.number, "update")
    unit.tx.send(unit.sql.mark_access, at=unit.now, times=0, **place)
    if may:
        unit.put_links(same.number, [turn.number for turn in turns])
    unit.changed()
    return item_numbered(unit, same.number)


def _not_kept(
    context: CollectionContext, outcome: Outcome, reasons: tuple[str, ...] = ()
) -> Remembered:
    OUTCOMES.add(outcome)
    publish(context, "refused", outcome=outcome, reasons=" ".join(reasons))
    done = Remembered(stored=None, outcome=outcome, reasons=reasons)
    # An empty write, so that the result is awaitable on an engine with awaited writes.
    return context.engine.write(lambda _: done)


class ItemUpdate(Struct, frozen=True, kw_only=True):
    """The parameters of `update`; an UNSET field stays as it is."""

    text: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    valid_from: datetime | str | UnsetType = UNSET
    valid_to: datetime | str | UnsetType | None = UNSET


_TEXT: Final = ("flags", "terms", "fold", "body", "text")
"""The columns of an item's text and its analysis."""


class HeldItem(Struct, frozen=True, kw_only=True):
    """An item to change."""

    number: int
    kind: str
    importance: float
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str
    superseded_at: int | None
    tier: str
    held: str | None
    valid_from: int
    valid_to: int | None


def update(context: CollectionContext, id: str, wanted: ItemUpdate) -> Item:
    """Apply *wanted* to the item *id*, and return it.

    Raise `NotFound`, `SecretRefused`, and `InvalidInput` for a turn, which never changes.
    """
    text = None if wanted.text is UNSET else _checked_text(context, wanted.text)
    kind = None if wanted.kind is UNSET else checked_kind(wanted.kind)
    importance = None if wanted.importance is UNSET else checked_importance(wanted.importance)
    first = _instant("valid_from", wanted.valid_from)
    last = _instant("valid_to", wanted.valid_to)
    if is_id("turn", id):
        raise InvalidInput(
            "id", "is a turn, and turns cannot be changed", given=id, next="Forget it instead."
        )
    if not is_id("item", id):
        raise _missing(id)

    def work(tx: Transaction) -> Item:
        unit = CollectionTransaction(context, tx, make=False)
        number = unit.found and tx.first(
            NumberedRow, unit.sql.item_number, collection=unit.number, id=id
        )
        if not number:
            raise _missing(id)
        place = {"collection": unit.number, "number": number.number}
        held = tx.one(HeldItem, unit.sql.held_item, **place)
        if held.held is not None:
            raise InvalidInput("id", "is held", given=id, next="Accept or reject it first.")
        unit.keep_state(held.number)
        tx.send(
            unit.sql.change_item,
            kind=held.kind if kind is None else kind,
            importance=held.importance if importance is None else importance,
            now=unit.now,
            **_span(held, first, last),
            **(text.columns if text else {name: getattr(held, name) for name in _TEXT}),
            **place,
        )
        if text is not None:
            tier = TIER_OF_ORIGIN[context.origin]
            tx.send(unit.sql.raise_tier, tier=tier, **place)
        unit.record_state(held.number, "update")
        if held.superseded_at is None and text is not None:
            unit.changed(
                PostingChange(held.number, held.body), PostingChange(held.number, text.body)
            )
        else:
            unit.changed()
        if text is not None:
            unit.vectors.drop(id, replaced=True)
            unit.vectors.due(held.number)
        unit.note("stored", {"item": [id]}, items=1, changed=True)
        unit.close()
        return item_numbered(unit, held.number)

    return context.engine.write(work)


def _instant(field: str, given: object) -> int | UnsetType | None:
    return UNSET if given is UNSET else microseconds_or_none(checked_instant(field, given))


def _span(
    held: HeldItem, first: int | UnsetType | None, last: int | UnsetType | None
) -> dict[str, int | None]:
    """Return the times of an item after a change; it must not end before it begins."""
    since = held.valid_from if first is UNSET or first is None else first
    until = held.valid_to if last is UNSET else last
    if until is not None and since > until:
        raise InvalidInput("valid_to", "must not be earlier than valid_from")
    return {"valid_from": since, "valid_to": until}


def _checked_text(context: CollectionContext, given: str) -> Ready:
    text = checked_item_text(given)
    if not text:
        raise InvalidInput("text", "must not be blank", next="Forget the item instead.")
    found = screen(context, (text,))
    if found.refused:
        raise SecretRefused(found.refused)
    return ready(found.texts[0])


def _missing(id: object) -> NotFound:
    return NotFound("item", str(id))
