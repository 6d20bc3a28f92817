"""Screen texts for secrets, write rows and re-index them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground import secrets
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.trust import USERS
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.analyze import VERSION, analyze
from holdfast.memories.longterm.recall.dedupe import ComparedText, said
from holdfast.memories.longterm.records import (
    TIER_OF_ORIGIN,
    TIER_OF_ROLE,
    HoldReason,
    Item,
    Kind,
    Origin,
    Skipped,
    Tier,
    Turn,
    fingerprint,
)
from holdfast.memories.longterm.rows import ORDERS, bits_of, bits_of_turn
from holdfast.memories.longterm.transaction import (
    CollectionTransaction,
    NewItem,
    NewTurn,
    PostingChange,
    take_means,
)
from holdfast.memories.longterm.trust.canary import is_canary_in, is_tainted, note_canary
from holdfast.memories.longterm.trust.rules import tier_of_turn
from holdfast.memories.longterm.validation import (
    checked_importance,
    checked_instant,
    checked_item_text,
    checked_kind,
    checked_source,
    checked_turn_ids,
    microseconds,
    microseconds_or_none,
)

_SECRETS: Final = REGISTRY.counter(
    "ltm_secrets_total", "Texts that held a secret, by its kind.", kind=(), action=()
)


class Screened(Struct, frozen=True, kw_only=True):
    """Texts that may be stored, or the kinds of secret for which they are refused.

    `redacted` are the kinds of secret that were removed from the texts.
    """

    texts: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()


def screen(context: CollectionContext, texts: Iterable[str]) -> Screened:
    """Check *texts* for secrets; redact or refuse them as the caller's options say."""
    given = tuple(texts)
    hits = [hit for text in given if text for hit in secrets.find(text)]
    if not hits:
        return Screened(texts=given)
    kinds = tuple(dict.fromkeys(hit.kind for hit in hits))
    redacts = context.options.secrets == "redact"
    for kind in kinds:
        _SECRETS.add(kind, "redacted" if redacts else "refused")
    if not redacts:
        return Screened(refused=kinds)
    return Screened(texts=tuple(secrets.redact(text) for text in given), redacted=kinds)


class ItemRequest(Struct, frozen=True, kw_only=True):
    """The parameters of `remember`."""

    text: str
    kind: str = "fact"
    importance: float = 0.5
    source: str = ""
    turns: Iterable[str] = ()
    origin: Origin = "api"
    valid_from: datetime | str | None = None
    valid_to: datetime | str | None = None

    def checked(self) -> "ItemRequest":
        """Return a validated copy; `InvalidInput` names the field that breaks a rule."""
        return replace(
            self,
            text=checked_item_text(self.text),
            kind=checked_kind(self.kind),
            importance=checked_importance(self.importance),
            source=checked_source(self.source),
            turns=checked_turn_ids(self.turns),
            **checked_span(self.valid_from, self.valid_to),
        )


def checked_span(valid_from: object, valid_to: object) -> dict[str, Any]:
    """Return both times of an item, None where not given, in their order."""
    first, last = checked_instant("valid_from", valid_from), checked_instant("valid_to", valid_to)
    if first is not None and last is not None and first > last:
        raise InvalidInput("valid_from", "must not be later than valid_to", given=first)
    return {"valid_from": first, "valid_to": last}


class ItemTrust(Struct, frozen=True, kw_only=True):
    """Who stands behind a new item, and why it is held, if it is."""

    tier: Tier
    hold: HoldReason | None = None
    said_by: str = ""
    origin_ref: str = ""


class Ready(Struct, frozen=True, kw_only=True):
    """The text of an item with its analysis."""

    text: str
    said: ComparedText
    flags: int

    @property
    def body(self) -> str:
        """Its terms as they are stored."""
        return " ".join(self.said.terms)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the text and its analysis in the row of an item."""
        terms, fold = len(self.said.terms), self.said.fold
        return {
            "flags": self.flags,
            "terms": terms,
            "fold": fold,
            "body": self.body,
            "text": self.text,
        }


class PreparedTurn(Struct, frozen=True, kw_only=True):
    """A turn of a batch with its analysis; `index` is its place there."""

    index: int
    turn: Turn
    terms: int
    body: str
    flags: int


def ready(text: str) -> Ready:
    """Analyse the text of an item."""
    return Ready(text=text, said=said(text), flags=bits_of(text))


def turn_terms(text: str, caption: str | None) -> list[str]:
    """Return the terms of a turn, in order."""
    return analyze(f"{text} {caption}" if caption else text)


def screened_turn(context: CollectionContext, turn: Turn) -> tuple[Turn, Screened]:
    """Return *turn* as it may be stored, and the result of the check for secrets."""
    given = (turn.text, turn.speaker or "", turn.caption or "")
    found = screen(context, given)
    if found.refused or found.texts == given:
        return turn, found
    text, speaker, caption = found.texts
    return replace(turn, text=text, speaker=speaker or None, caption=caption or None), found


def ready_turns(
    context: CollectionContext, turns: Sequence[tuple[int, Turn]]
) -> tuple[list[PreparedTurn], list[Skipped]]:
    """Prepare *turns*, each with its place; return also the skipped ones."""
    fit: list[PreparedTurn] = []
    skipped: list[Skipped] = []
    for index, given in turns:
        if not given.text.strip() and not (given.caption or "").strip():
            skipped.append(Skipped(index, "blank"))
            continue
        turn, found = screened_turn(context, given)
        if found.refused:
            skipped.append(Skipped(index, "secret"))
            continue
        terms = turn_terms(turn.text, turn.caption)
        flags = bits_of_turn(turn.text, turn.caption)
        body = " ".join(terms)
        fit.append(PreparedTurn(index=index, turn=turn, terms=len(terms), body=body, flags=flags))
    return fit, skipped


def print_of(unit: CollectionTransaction, turn: Turn) -> bytes:
    """Return the fingerprint by which *turn* is recognised."""
    return fingerprint(unit.secret, turn.role, turn.speaker, turn.text)


def hold_by_text(tier: str, flags: int) -> HoldReason | None:
    """Return why a row of *tier* with *flags* is held for what it says, or None.

    The user's own orders are preferences.
    """
    return "instruction" if flags & ORDERS and tier not in USERS else None


def new_item(
    unit: CollectionTransaction,
    request: ItemRequest,
    text: Ready,
    trust: ItemTrust | None = None,
) -> NewItem:
    """Return the item to write for *request*, which is validated."""
    now, behind = unit.now, trust or ItemTrust(tier=TIER_OF_ORIGIN[request.origin])
    return NewItem(
        id=unit.context.ids.new("item", now),
        kind=request.kind,
        importance=request.importance,
        origin=request.origin,
        source=request.source,
        created_at=now,
        updated_at=now,
        tier=behind.tier,
        held=behind.hold,
        held_at=now if behind.hold else None,
        said_by=behind.said_by,
        origin_ref=behind.origin_ref,
        valid_from=microseconds(cast("datetime | None", request.valid_from), now),
        valid_to=microseconds_or_none(cast("datetime | None", request.valid_to)),
        **text.columns,
    )


def item_of(new: NewItem, turns: Sequence[str]) -> Item:
    """Return the item that was just written, which came from *turns*."""
    return Item(
        id=new.id,
        text=new.text,
        kind=cast("Kind", new.kind),
        importance=new.importance,
        origin=cast("Origin", new.origin),
        source=new.source,
        turns=tuple(turns),
        supersedes=(),
        superseded_by=None,
        superseded_at=None,
        created_at=from_microseconds(new.created_at),
        updated_at=from_microseconds(new.updated_at),
        last_accessed_at=None,
        access_count=0,
        tier=cast("Tier", new.tier),
        flags=new.flags,
        held=cast("HoldReason | None", new.held),
        origin_ref=new.origin_ref or None,
        valid_from=from_microseconds(new.valid_from),
        valid_to=from_microseconds_or_none(new.valid_to),
    )


def put_turns(
    unit: CollectionTransaction, turns: Sequence[PreparedTurn], *, covered: bool = False
) -> tuple[list[int], list[Turn]]:
    """Write *turns*; return their numbers, and the turns as they are stored.

    They are *covered* if a job to mine them is queued with them.
    """
    numbers = list(unit.numbers(len(turns)))
    new = _held_for_canaries(
        unit, [replace(_new_turn(unit, each), covered=int(covered)) for each in turns]
    )
    unit.put_turns(list(zip(numbers, new, strict=True)))
    created = from_microseconds(unit.now)
    stored = [
        replace(
            ready.turn,
            id=made.id,
            at=from_microseconds(made.at),
            created_at=created,
            tier=cast("Tier", made.tier),
            held=cast("HoldReason | None", made.held),
            items=(),
        )
        for ready, made in zip(turns, new, strict=True)
    ]
    return numbers, stored


def _held_for_canaries(unit: CollectionTransaction, turns: list[NewTurn]) -> list[NewTurn]:
    """Return *turns*; those with a canary, and those after it in its thread, are held."""
    if not unit.context.guarded:
        return turns
    tainted: dict[str, bool] = {}
    found: list[NewTurn] = []
    for turn in turns:
        thread, kept = turn.thread_id, turn
        if thread not in tainted:
            tainted[thread] = is_tainted(unit, thread=thread)
        seen = is_canary_in(unit, (turn.text, turn.caption))
        if seen:
            note_canary(unit, thread=thread)
        if seen or tainted[thread]:
            kept = replace(turn, held="canary", held_at=unit.now)
        tainted[thread] = tainted[thread] or (seen and bool(thread))
        found.append(kept)
    return found


def _new_turn(unit: CollectionTransaction, ready: PreparedTurn) -> NewTurn:
    turn = ready.turn
    tier = tier_of_turn(turn, unit.context.user)
    held = turn.held or hold_by_text(tier, ready.flags)
    if not unit.context.guarded:
        tier, held = TIER_OF_ROLE[turn.role], None
    return NewTurn(
        id=turn.id or unit.context.ids.new("turn", unit.now),
        role=turn.role,
        speaker=turn.speaker or "",
        at=microseconds(turn.at, unit.now),
        thread_id=turn.thread_id or "",
        session=turn.session or "",
        created_at=microseconds(turn.created_at, unit.now),
        tier=tier,
        held=held,
        held_at=unit.now if held else None,
        said_by=turn.by or "",
        origin_ref=turn.origin_ref or "",
        flags=ready.flags,
        terms=ready.terms,
        fingerprint=print_of(unit, turn),
        caption=turn.caption or "",
        body=ready.body,
        text=turn.text,
    )


# Re-analysis after a change of VERSION runs in the background, some rows in each transaction, so no
# call waits for it. After an interruption it starts again; a row that is up to date is not written.
# An older release that opens the database meanwhile leaves newer terms alone.

ROWS_AT_ONCE: Final = 100
"""Rows of one transaction: other writers wait for milliseconds."""


class _Item(Struct, frozen=True, kw_only=True):
    number: int
    flags: int
    terms: int
    fold: bytes
    body: str
    text: str
    superseded_at: int | None


class _Turn(Struct, frozen=True, kw_only=True):
    number: int
    flags: int
    terms: int
    body: str
    text: str
    caption: str


class Reindexing:
    """Background task that analyses the rows of one collection again."""

    def __init__(self, context: CollectionContext) -> None:
        self._caller = context
        self._after: dict[str, int] = {"turns": 0, "items": 0}

    def tend(self) -> float | None:
        """Analyse some rows again; see `Tender`."""
        after = self._caller.engine.write(lambda tx: _piece(self._caller, tx, self._after))
        if after is None:
            self._caller.shared.reindexing.pop(self._caller.place, None)
            return None
        self._after = after
        return 0.0


def bring_up_to_date(context: CollectionContext, analyzer: int) -> None:
    """Schedule re-analysis if the collection's version *analyzer* is outdated."""
    if analyzer < VERSION:
        shared = context.shared
        tender = shared.reindexing.setdefault(context.place, Reindexing(context))
        shared.worker.wake(("analyze", context.place), tender)


def _piece(
    context: CollectionContext, tx: Transaction, after: dict[str, int]
) -> dict[str, int] | None:
    """Analyse the rows after the numbers in *after*; return the last numbers.

    None at the end.
    """
    unit = CollectionTransaction(context, tx, make=False)
    if unit.found is None or unit.found.analyzer >= VERSION:
        return None
    last = {"turns": _turns(unit, after["turns"]), "items": _items(unit, after["items"])}
    if last == after:
        tx.send(unit.sql.set_analyzer, collection=unit.number, analyzer=VERSION)
        if unit.there.mean_rows is not None:
            take_means(unit)
    unit.close()
    return None if last == after else last


def _turns(unit: CollectionTransaction, after: int) -> int:
    place = {"collection": unit.number}
    rows = unit.tx.all(_Turn, unit.sql.turn_texts, after=after, rows=ROWS_AT_ONCE, **place)
    for row in rows:
        terms, flags = turn_terms(row.text, row.caption), bits_of_turn(row.text, row.caption)
        body = " ".join(terms)
        if (body, flags, len(terms)) == (row.body, row.flags, row.terms):
            continue
        columns = {"number": row.number, "body": body, "flags": flags, "terms": len(terms)}
        unit.tx.send(unit.sql.set_turn_terms, **columns, **place)
        unit.changed(PostingChange(row.number, row.body), PostingChange(row.number, body))
    return rows[-1].number if rows else after


def _items(unit: CollectionTransaction, after: int) -> int:
    place = {"collection": unit.number}
    rows = unit.tx.all(_Item, unit.sql.item_texts, after=after, rows=ROWS_AT_ONCE, **place)
    for row in rows:
        text = ready(row.text)
        columns = text.columns
        del columns["text"]
        if all(getattr(row, name) == value for name, value in columns.items()):
            continue
        unit.tx.send(unit.sql.set_item_terms, number=row.number, **columns, **place)
        if row.superseded_at is None:
            unit.changed(PostingChange(row.number, row.body), PostingChange(row.number, text.body))
        else:
            unit.changed()
    return rows[-1].number if rows else after
