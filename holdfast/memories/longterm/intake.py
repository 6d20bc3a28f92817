"""Take in records of another program, screened, marked and without duplicates.

What a person forgot stays forgotten, and nothing that is there is evicted for what comes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.block import without_blocks
from holdfast.memories.longterm.recall.dedupe import Like, bounds, twin
from holdfast.memories.longterm.records import (
    HoldReason,
    Imported,
    RejectedRecord,
    alike,
    terms_hash,
)
from holdfast.memories.longterm.remember import Grave, find_twin, graves
from holdfast.memories.longterm.removal import evict_items
from holdfast.memories.longterm.rows import ids_text
from holdfast.memories.longterm.transaction import CollectionTransaction, NewItem
from holdfast.memories.longterm.turns import EXTRACT, queue
from holdfast.memories.longterm.validation import (
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
    Ready,
    hold_by_text,
    print_of,
    put_turns,
    ready,
    ready_turns,
    screen,
)

_ITEM_FIELDS: Final = frozenset(
    ("type", "id", "text", "source", "kind", "importance", "created_at", "valid_to")
)
_TURN_FIELDS: Final = frozenset(
    ("type", "id", "role", "text", "speaker", "at", "session", "thread_id", "caption", "origin_ref")
)
TIER: Final = "imported"
_TURNS_A_JOB: Final = 200
"""Turns of one job of mining."""


class _NewFact(Struct, frozen=True, kw_only=True):
    """An item to take in, with the place of its record."""

    index: int
    id: str
    text: Ready
    fields: dict[str, Any]
    created_at: int | None


class _Pending(Struct):
    """What is accepted and not yet stored, as later records compare with it."""

    ids: set[str] = field(default_factory=set[str])
    by_terms: dict[int, list[Like]] = field(default_factory=lambda: defaultdict(list))
    items: int = 0
    turns: int = 0

    def add(self, fact: _NewFact) -> None:
        """Add an accepted item."""
        said = fact.text.said
        like = Like(
            number=self.items, id=fact.id, fold=said.fold, body=fact.text.body, text=fact.text.text
        )
        self.by_terms[len(said.terms)].append(like)
        self.ids.add(fact.id)
        self.items += 1

    def join(self, later: "_Pending") -> None:
        """Add what *later* has."""
        for count, likes in later.by_terms.items():
            self.by_terms[count] += likes
        self.ids |= later.ids
        self.items += later.items
        self.turns += later.turns

    def twin_of(self, text: Ready, least: float) -> Like | None:
        """Return an accepted item that says the same as *text*."""
        if not least:
            return None
        near = bounds(text.said.terms, least)
        counts = range(min(near.least, len(text.said.terms)), near.most + 1)
        found = (each for count in counts for each in self.by_terms.get(count, ()))
        return twin(text.said, found, least)


class _Rehearsed(Exception):
    """A dry run is over, and its transaction is rolled back."""

    def __init__(self, result: Imported, pending: _Pending) -> None:
        super().__init__()
        self.result, self.pending = result, pending


class ForeignIntake:
    """Takes in batches of records, each an object of the type `item` or `turn`.

    A dry run writes nothing, and returns the same results. To *mine* queues the turns of users for
    mining.
    """

    def __init__(self, context: CollectionContext, *, dry_run: bool, mine: bool) -> None:
        self._context, self._dry_run, self._mine = context, dry_run, mine
        self._rehearsed = _Pending()

    def take(self, batch: Iterable[tuple[int, object]]) -> Imported:
        """Take in *batch*, records with their places; return how each ended."""
        rejected: list[RejectedRecord] = []
        turns: list[PreparedTurn] = []
        facts: list[_NewFact] = []
        for index, each in batch:
            try:
                record = _record_of(each)
                if record["type"] == "turn":
                    turns += self._turn(index, record, rejected)
                else:
                    facts += self._fact(index, record, rejected)
            except InvalidInput as error:
                rejected.append(RejectedRecord(index, f"{error.field}: {error.reason}"))
        if not turns and not facts:
            return Imported(rejected=tuple(rejected))
        try:
            done = self._context.engine.write(lambda tx: self._write(tx, turns, facts))
        except _Rehearsed as rehearsed:
            done = rehearsed.result
            self._rehearsed.join(rehearsed.pending)
        ordered = sorted((*rejected, *done.rejected), key=lambda each: each.index)
        return replace(done, rejected=tuple(ordered))

    def _turn(
        self, index: int, record: Mapping[str, object], rejected: list[RejectedRecord]
    ) -> list[PreparedTurn]:
        fields = {name: value for name, value in record.items() if name not in {"type", "id"}}
        turn = replace(
            checked_turn({**fields, "tier": TIER}), id=_id("turn", self._context, record)
        )
        turn = replace(turn, text=without_blocks(turn.text))
        fit, skipped = ready_turns(self._context, [(index, turn)])
        rejected += [RejectedRecord(each.index, each.reason) for each in skipped]
        return fit

    def _fact(
        self, index: int, record: Mapping[str, object], rejected: list[RejectedRecord]
    ) -> list[_NewFact]:
        context = self._context
        text = checked_item_text(record.get("text"))
        if not text:
            rejected.append(RejectedRecord(index, "blank"))
            return []
        found = screen(context, (text, checked_source(record.get("source", ""))))
        if found.refused:
            rejected.append(RejectedRecord(index, "secret"))
            return []
        ends = checked_instant("valid_to", record.get("valid_to"))
        fields = {
            "kind": checked_kind(record.get("kind", "fact")),
            "importance": checked_importance(record.get("importance", 0.5)),
            "source": found.texts[1],
            "valid_to": None if ends is None else microseconds(ends, 0),
        }
        created = checked_instant("created_at", record.get("created_at"))
        return [
            _NewFact(
                index=index,
                id=_id("item", context, record),
                text=ready(found.texts[0]),
                fields=fields,
                created_at=None if created is None else microseconds(created, 0),
            )
        ]

    def _write(self, tx: Transaction, turns: list[PreparedTurn], facts: list[_NewFact]) -> Imported:
        unit = CollectionTransaction(self._context, tx)
        ids = [*(each.turn.id for each in turns), *(each.id for each in facts)]
        choice = _Choice(unit, self._rehearsed, ids)
        chosen = [each for each in turns if choice.admits_turn(each)]
        accepted = [each for each in facts if choice.admits_fact(each)]
        new = [_new_item(unit, each) for each in accepted]
        held = [each for each in chosen if _hold(unit, each.flags) is not None]
        mined = self._mine and self._context.wish(unit.there.extractor).name is not None
        done = Imported(
            items=len(new),
            turns=len(chosen),
            duplicates=choice.duplicates,
            held=len(held) + sum(each.held is not None for each in new),
            queued=len(chosen) - len(held) if mined else 0,
            rejected=tuple(choice.rejected),
        )
        if self._dry_run:
            raise _Rehearsed(done, choice.pending)
        self._put_turns(unit, chosen, mined=mined)
        gone = self._put_items(unit, new)
        if new or chosen:
            unit.note("stored", items=len(new), turns=len(chosen), imported=True)
        unit.close()
        return replace(done, evicted=gone)

    def _put_items(self, unit: CollectionTransaction, new: list[NewItem]) -> tuple[str, ...]:
        """Write *new*; superseded items make room, and their ids are returned."""
        numbers = unit.numbers(len(new))
        unit.put_items(zip(numbers, new, strict=True))
        return evict_items(unit, keep=numbers[-1]) if new else ()

    def _put_turns(
        self, unit: CollectionTransaction, turns: list[PreparedTurn], *, mined: bool
    ) -> None:
        """Write *turns*; queue those that are not held if they are to be *mined*."""
        numbers, stored = put_turns(unit, turns, covered=mined)
        if not mined or not numbers:
            return
        threads: dict[str, list[int]] = defaultdict(list)
        for number, each in zip(numbers, stored, strict=True):
            if each.held is None:
                threads[each.thread_id or ""].append(number)
        for said in threads.values():
            for start in range(0, len(said), _TURNS_A_JOB):
                queue(unit, EXTRACT, said[start : start + _TURNS_A_JOB])
        self._context.shared.expect_mining(self._context.mining_place)
        unit.tx.after_commit(self._context.tend)


class _Choice:
    """Decides which records of a batch are new, and why the others are not.

    *earlier* are those that a dry run accepted in the batches before.
    """

    def __init__(self, unit: CollectionTransaction, earlier: _Pending, ids: list[str]) -> None:
        self._unit, self._earlier, self.pending = unit, earlier, _Pending()
        context, there = unit.context, unit.there
        found = unit.tx.all(
            dict[str, str], unit.sql.ids_there, collection=unit.number, ids=ids_text(ids)
        )
        self._known = {each["id"] for each in found} | earlier.ids
        self._graves: list[Grave] = graves(unit) if there.buried else []
        self._buried = {each.id for each in self._graves}
        self._prints = {each.fingerprint for each in self._graves if each.fingerprint}
        cap, most = context.max_items, context.options.max_turns
        self._room = cap - (there.items - there.superseded) - earlier.items if cap else None
        self._turns_room = most - there.turns - earlier.turns if most else None
        self.duplicates = 0
        self.rejected: list[RejectedRecord] = []

    def admits_turn(self, each: PreparedTurn) -> bool:
        """Return whether *each* is stored; record why not."""
        if self._is_known(each.turn.id):
            return False
        if each.turn.id in self._buried or print_of(self._unit, each.turn) in self._prints:
            return self._refused(each.index, "forgotten")
        if self._turns_room is not None and self.pending.turns >= self._turns_room:
            return self._refused(each.index, "over_limit")
        self.pending.ids.add(each.turn.id)
        self.pending.turns += 1
        return True

    def admits_fact(self, each: _NewFact) -> bool:
        """Return whether *each* is stored; record why not."""
        if self._is_known(each.id):
            return False
        if each.id in self._buried or self._was_forgotten(each.text):
            return self._refused(each.index, "forgotten")
        if self._is_duplicate(each.text):
            self.duplicates += 1
            return False
        if self._room is not None and self.pending.items >= self._room:
            return self._refused(each.index, "over_limit")
        self.pending.add(each)
        return True

    def _is_known(self, id: str) -> bool:
        known = id in self._known or id in self.pending.ids
        self.duplicates += known
        return known

    def _is_duplicate(self, text: Ready) -> bool:
        least = self._unit.context.options.dedupe_similarity
        accepted = (self.pending, self._earlier)
        return any(each.twin_of(text, least) for each in accepted) or bool(
            find_twin(self._unit, text, None)
        )

    def _was_forgotten(self, text: Ready) -> bool:
        if not self._graves or not text.said.terms:
            return False
        terms = terms_hash(self._unit.secret, text.said.terms)
        return any(alike(terms, grave.terms) for grave in self._graves)

    def _refused(self, index: int, reason: str) -> bool:
        self.rejected.append(RejectedRecord(index, reason))
        return False


def _hold(unit: CollectionTransaction, flags: int) -> HoldReason | None:
    """Return why a row with *flags* waits for a person, or None."""
    return hold_by_text(TIER, flags) if unit.context.guarded else None


def _new_item(unit: CollectionTransaction, fact: _NewFact) -> NewItem:
    now, hold = unit.now, _hold(unit, fact.text.flags)
    created = now if fact.created_at is None else min(fact.created_at, now)
    return NewItem(
        id=fact.id,
        origin="import",
        tier=TIER,
        held=hold,
        held_at=now if hold else None,
        created_at=created,
        updated_at=created,
        valid_from=created,
        **fact.fields,
        **fact.text.columns,
    )


def _record_of(given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise InvalidInput("record", "must be an object", given=given)
    record = cast("Mapping[str, object]", given)
    kind = record.get("type")
    if kind not in {"item", "turn"}:
        raise InvalidInput("type", "must be item or turn", given=kind)
    fields = _ITEM_FIELDS if kind == "item" else _TURN_FIELDS
    for name in record:
        if name not in fields:
            raise InvalidInput(str(name), "is not known here")
    return record


def _id(prefix: str, context: CollectionContext, record: Mapping[str, object]) -> str:
    given = record.get("id")
    if given is None:
        return context.ids.new(prefix, context.now())
    if not is_id(prefix, given):
        raise InvalidInput("id", f"must be the id of an {prefix}", given=given)
    return str(given)
