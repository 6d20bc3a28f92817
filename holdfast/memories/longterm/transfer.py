"""Export a collection, and import its records again."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, LiteralString, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.ground.validation import check_one_of, check_whole
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.intake import ForeignIntake
from holdfast.memories.longterm.read import collection_of
from holdfast.memories.longterm.records import (
    HoldReason,
    Imported,
    Item,
    RejectedRecord,
    Tier,
    Turn,
)
from holdfast.memories.longterm.remember import turns_there
from holdfast.memories.longterm.removal import evict_items, evict_turns
from holdfast.memories.longterm.rows import (
    ORDERS,
    ItemRow,
    NumberedRow,
    TurnRow,
    ids_text,
    numbers_text,
)
from holdfast.memories.longterm.transaction import CollectionTransaction, NewItem
from holdfast.memories.longterm.validation import (
    checked_hold,
    checked_importance,
    checked_instant,
    checked_item_text,
    checked_kind,
    checked_source,
    checked_turn,
    is_id,
    microseconds,
)
from holdfast.memories.longterm.write import (
    PreparedTurn,
    put_turns,
    ready,
    ready_turns,
    screen,
)

AT_ONCE: Final = 500
"""Records that are read at a time, or written in one transaction."""

_ORIGINS: Final = ("api", "tool", "extraction", "import")
_ITEM_FIELDS: Final = frozenset(Item.__struct_fields__) | {"type"}
_TURN_FIELDS: Final = frozenset(Turn.__struct_fields__) | {"type"}


class _NewItem(Struct, frozen=True, kw_only=True):
    item: NewItem
    turns: tuple[str, ...]
    last_accessed_at: int | None
    access_count: int


def export(context: CollectionContext) -> Iterator[dict[str, object]]:
    """Yield every turn and then every item as dicts with a `type`, in recording order."""
    sql = context.sql
    for kind, make, numbers, rows in (
        ("turn", TurnRow, sql.turn_numbers_after, sql.turns_numbered),
        ("item", ItemRow, sql.item_numbers_after, sql.items_numbered),
    ):
        after = 0
        while batch := _batch(context, make, (numbers, rows), after):
            for row in batch:
                yield {"type": kind, **_plain(row.record())}
            after = batch[-1].number


def import_(
    context: CollectionContext, records: Iterable[object], intake: ForeignIntake | None = None
) -> Imported:
    """Import *records* as `export` yields them; skip those with a stored id.

    Records that cannot be imported are in `rejected`. Secrets are handled as in other writes.
    Records of another program are taken in by *intake*.
    """
    done, numbered = Imported(), enumerate(records)
    while batch := list(islice(numbered, AT_ONCE)):
        more = _take(context, batch) if intake is None else intake.take(batch)
        sums = {name: getattr(done, name) + getattr(more, name) for name in done.__struct_fields__}
        done = Imported(**sums)
    return done


def _plain(record: Item | Turn) -> dict[str, object]:
    """Convert *record* to JSON values: lists for tuples, times as text."""
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, object])


def _batch(
    context: CollectionContext,
    make: type[TurnRow] | type[ItemRow],
    statements: tuple[LiteralString, LiteralString],
    after: int,
) -> list[TurnRow] | list[ItemRow]:
    def work(reader: Reader) -> list[TurnRow] | list[ItemRow]:
        collection = collection_of(context, reader)
        if collection is None:
            return []
        place = {"collection": collection.number}
        chosen = reader.all(NumberedRow, statements[0], after=after, rows=AT_ONCE, **place)
        numbers = numbers_text([each.number for each in chosen])
        rows = reader.all(make, statements[1], numbers=numbers, **place) if chosen else []
        return cast("list[TurnRow]", sorted(rows, key=lambda row: row.number))

    return context.engine.read(work)


def _take(context: CollectionContext, batch: list[tuple[int, object]]) -> Imported:
    now = context.now()
    rejected: list[RejectedRecord] = []
    turns: list[PreparedTurn] = []
    items: list[_NewItem] = []
    for index, each in batch:
        try:
            if _type_of(each) == "turn":
                turns += _ready_turn(context, index, cast("Mapping[str, object]", each), rejected)
            else:
                record = cast("Mapping[str, object]", each)
                items += _ready_item(context, index, record, rejected, now)
        except InvalidInput as error:
            rejected.append(RejectedRecord(index, f"{error.field}: {error.reason}"))

    def work(tx: Transaction) -> tuple[int, int, tuple[str, ...]]:
        unit = CollectionTransaction(context, tx)
        ids = [each.turn.id for each in turns if each.turn.id] + [each.item.id for each in items]
        there = {
            each["id"]
            for each in tx.all(
                dict[str, str], unit.sql.ids_there, collection=unit.number, ids=ids_text(ids)
            )
        }
        new = _distinct([each for each in turns if each.turn.id not in there])
        fresh = [each for each in items if each.item.id not in there]
        fresh = list({each.item.id: each for each in reversed(fresh)}.values())[::-1]
        put_turns(unit, new)
        last = _put_items(unit, fresh)
        _unbury(unit, (*(each.turn.id for each in new), *(each.item.id for each in fresh)))
        gone = (evict_items(unit, keep=last) if fresh else ()) + evict_turns(unit)
        if new or fresh:
            unit.note("stored", items=len(fresh), turns=len(new), imported=True)
        unit.close()
        return len(fresh), len(new), gone

    stored, said, gone = context.engine.write(work) if turns or items else (0, 0, ())
    return Imported(
        items=stored,
        turns=said,
        skipped=len(turns) + len(items) - stored - said,
        rejected=tuple(rejected),
        evicted=gone,
    )


def _unbury(unit: CollectionTransaction, ids: Iterable[str]) -> None:
    """Remove the tombstones of *ids*, because they are imported again."""
    if unit.there.buried:
        for id in ids:
            unit.tx.send(unit.sql.unbury, collection=unit.number, id=id)


def _distinct(turns: list[PreparedTurn]) -> list[PreparedTurn]:
    seen: set[str] = set()
    kept: list[PreparedTurn] = []
    for each in turns:
        if not each.turn.id or each.turn.id not in seen:
            kept.append(each)
            seen.add(each.turn.id)
    return kept


def _put_items(unit: CollectionTransaction, items: list[_NewItem]) -> int:
    """Write *items* with links to their turns; return the number of the last."""
    numbers = unit.numbers(len(items))
    named = tuple(dict.fromkeys(id for each in items for id in each.turns))
    turns = {each.id: each.number for each in turns_there(unit, named)}
    for number, each in zip(numbers, items, strict=True):
        unit.put_items([(number, each.item)])
        unit.put_links(number, [turns[id] for id in each.turns if id in turns])
        if each.last_accessed_at is not None:
            unit.tx.send(
                unit.sql.put_access,
                collection=unit.number,
                number=number,
                last_accessed_at=each.last_accessed_at,
                access_count=each.access_count,
            )
    return numbers[-1] if numbers else 0


def _type_of(given: object) -> str:
    if not isinstance(given, Mapping):
        raise InvalidInput("record", "must be an object", given=given)
    record = cast("Mapping[object, object]", given)
    kind = record.get("type")
    if kind not in {"item", "turn"}:
        raise InvalidInput("type", "must be item or turn", given=kind)
    fields = _ITEM_FIELDS if kind == "item" else _TURN_FIELDS
    for name in record:
        if name not in fields:
            raise InvalidInput(str(name), "is not known")
    return str(kind)


def _ready_turn(
    context: CollectionContext,
    index: int,
    record: Mapping[str, object],
    rejected: list[RejectedRecord],
) -> list[PreparedTurn]:
    fields = {name: value for name, value in record.items() if name not in {"type", "items"}}
    fields.setdefault("tier", "imported")
    id, created = fields.pop("id", None), checked_instant("created_at", fields.get("created_at"))
    turn = replace(checked_turn(fields), id=_checked_id("turn", id), created_at=created)
    fit, skipped = ready_turns(context, [(index, turn)])
    rejected += [RejectedRecord(each.index, each.reason) for each in skipped]
    return [
        replace(
            each,
            turn=replace(each.turn, held=each.turn.held or _hold_of_import(context, each.flags)),
        )
        for each in fit
    ]


def _ready_item(
    context: CollectionContext,
    index: int,
    record: Mapping[str, object],
    rejected: list[RejectedRecord],
    now: int,
) -> list[_NewItem]:
    text = checked_item_text(record.get("text"))
    source = checked_source(record.get("source", ""))
    if not text:
        rejected.append(RejectedRecord(index, "blank"))
        return []
    found = screen(context, (text, source))
    if found.refused:
        rejected.append(RejectedRecord(index, "secret"))
        return []
    prepared = ready(found.texts[0])
    created = _instant(record, "created_at") or now
    superseded = _instant(record, "superseded_at")
    by = record.get("superseded_by")
    accessed = _instant(record, "last_accessed_at")
    tier = str(check_one_of("tier", record.get("tier", "imported"), get_args(Tier)))
    held = checked_hold(record.get("held")) or _hold_of_import(context, prepared.flags)
    new = NewItem(
        id=_checked_id("item", record.get("id")) or context.ids.new("item", now),
        kind=checked_kind(record.get("kind", "fact")),
        importance=checked_importance(record.get("importance", 0.5)),
        origin=str(check_one_of("origin", record.get("origin", "import"), _ORIGINS)),
        source=found.texts[1],
        created_at=created,
        updated_at=_instant(record, "updated_at") or created,
        superseded_by=_checked_id("item", by) or None if superseded is not None else None,
        superseded_at=superseded,
        tier=tier if context.guarded else "said",
        held=held,
        held_at=now if held else None,
        origin_ref=checked_source(record.get("origin_ref") or ""),
        valid_from=_instant(record, "valid_from") or created,
        valid_to=_instant(record, "valid_to"),
        **prepared.columns,
    )
    return [
        _NewItem(
            item=new,
            turns=_checked_turns(record.get("turns", ())),
            last_accessed_at=accessed,
            access_count=check_whole("access_count", record.get("access_count", 0), most=2**62 - 1),
        )
    ]


def _hold_of_import(context: CollectionContext, flags: int) -> HoldReason | None:
    """Return why an imported row with *flags* is held, of any tier, or None."""
    return "instruction" if flags & ORDERS and context.guarded else None


def _instant(record: Mapping[str, object], name: str) -> int | None:
    at = checked_instant(name, record.get(name))
    return None if at is None else microseconds(at, 0)


def _checked_id(prefix: str, given: object) -> str:
    if given in {None, ""}:
        return ""
    if not is_id(prefix, given):
        raise InvalidInput("id", f"must be the id of an {prefix}", given=given)
    return str(given)


def _checked_turns(given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidInput("turns", "must be a list of ids of turns", given=given)
    return tuple(_checked_id("turn", each) for each in cast("list[object]", given))
