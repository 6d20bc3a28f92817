"""Decide the tier of a new item by its evidence, and whether it is held.

An item that an agent or a model proposes is confirmed only if turns of the user state it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.engines.base import Reader, scalar
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.trust import RANKS, USERS
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.cache import bring_up
from holdfast.memories.longterm.records import TIER_OF_ORIGIN, HoldReason, Turn
from holdfast.memories.longterm.rows import Collection, ids_text
from holdfast.memories.longterm.transaction import LARGE, CollectionTransaction
from holdfast.memories.longterm.trust.canary import is_canary_in, is_tainted, note_canary
from holdfast.memories.longterm.trust.rules import (
    grounds,
    is_grounded,
    names_in,
    term_weight,
)
from holdfast.memories.longterm.validation import HOLD_REASONS
from holdfast.memories.longterm.write import ItemRequest, ItemTrust, Ready, hold_by_text

HELD: Final = REGISTRY.counter(
    "ltm_held_total", "Rows that were held for a person, by reason.", reason=HOLD_REASONS
)
_MINUTE: Final = 60_000_000
_DAY: Final = 86_400_000_000


def is_stated(
    context: CollectionContext,
    text: Ready,
    texts: Iterable[str],
    speakers: Iterable[str | None] = (),
) -> bool:
    """Check whether *texts* of the user state the item *text*; *speakers* said them."""
    stated = grounds(texts)
    if not stated:
        return False
    weight = _weights(context, text.said.terms)
    return is_grounded(text.said.terms, stated, names_in(context.user, speakers), weight)


def remembered_trust(context: CollectionContext, request: ItemRequest, text: Ready) -> ItemTrust:
    """Return the trust of an item that an application or an agent remembers."""
    tier = TIER_OF_ORIGIN[request.origin]
    if not context.guarded:
        return ItemTrust(tier="said")
    session = context.session
    if session is None or tier in USERS:
        return ItemTrust(tier=tier, hold=hold_by_text(tier, text.flags))
    if is_stated(context, text, session.said):
        tier = "confirmed"
    hold: HoldReason | None = "echo" if session.is_echo(text.text) else None
    return ItemTrust(tier=tier, hold=hold or hold_by_text(tier, text.flags))


def mined_trust(
    context: CollectionContext, text: Ready, turns: Sequence[Turn], others: frozenset[str]
) -> ItemTrust:
    """Return the trust of an item that a model mined and that cites *turns*.

    Without evidence in the user's own turns it is held, unless imported turns state it. *others*
    are names that others wrote in the conversation: with one that the user did not, an item is not
    the user's.
    """
    if not context.guarded:
        return ItemTrust(tier="confirmed")
    speakers = [turn.speaker for turn in turns]
    own = [turn.text for turn in turns if turn.tier == "said" and turn.held is None]
    named = others.intersection(text.said.terms) - names_in(context.user, speakers)
    foreign = bool(named) and not named <= grounds(own)
    if not foreign and is_stated(context, text, own, speakers):
        return ItemTrust(tier="confirmed")
    theirs = [turn.text for turn in turns if turn.tier == "imported" and turn.role == "user"]
    if theirs and is_stated(context, text, (*own, *theirs), speakers):
        return ItemTrust(tier="imported", hold=hold_by_text("imported", text.flags))
    return ItemTrust(tier="assistant", hold="ungrounded")


def settled_trust(
    unit: CollectionTransaction, request: ItemRequest, text: Ready, trust: ItemTrust
) -> ItemTrust:
    """Return *trust* with the reason to hold the item, as the collection stands."""
    if not unit.context.guarded:
        return trust
    thread = request.source.removeprefix("thread:") if request.source.startswith("thread:") else ""
    if is_canary_in(unit, (text.text,)):
        note_canary(unit, thread=thread)
        return replace(trust, hold="canary")
    if is_tainted(unit, thread=thread):
        return replace(trust, hold="canary")
    if trust.hold is None and trust.tier not in USERS and _is_burst(unit, request, trust):
        return replace(trust, hold="burst")
    return trust


def outranks(new: str, old: str) -> bool:
    """Check whether a writer of tier *new* may change an item of tier *old*."""
    return RANKS[new] >= RANKS[old]


def _is_burst(unit: CollectionTransaction, request: ItemRequest, trust: ItemTrust) -> bool:
    """Check whether one source has written too many items in a minute or a day."""
    a_minute, a_day = unit.context.options.rate
    for most, span in ((a_minute, _MINUTE), (a_day, _DAY)):
        recent = unit.tx.one(
            scalar,
            unit.sql.recent_items,
            collection=unit.number,
            since=unit.now - span,
            source=request.source,
            said_by=trust.said_by,
        )
        if recent >= most:
            return True
    return False


def _weights(context: CollectionContext, terms: Sequence[str]) -> Callable[[str], float]:
    """Return the weight of each of *terms* in the collection."""
    wanted = tuple(dict.fromkeys(terms))

    def work(reader: Reader) -> dict[str, float]:
        collection = reader.first(Collection, context.sql.find_collection, **context.named)
        if collection is None or not collection.rows:
            return dict.fromkeys(wanted, term_weight(0, 0))
        if collection.rows > LARGE and collection.indexed:
            rows = reader.rows(
                context.sql.frequencies, collection=collection.number, terms=ids_text(wanted)
            )
            counts = dict.fromkeys(wanted, 0) | dict(rows)
            return {term: term_weight(counts[term], collection.rows) for term in wanted}
        entry = context.shared.kept.entry(collection.number, context.place)
        with entry.lock:
            grown = bring_up(entry, context.engine, reader, collection)
            postings = entry.postings
            found = {term: postings.telling(term) for term in wanted} if postings else {}
        if grown:
            context.shared.kept.weigh(collection.number, entry)
        return found

    return context.engine.read(work).__getitem__
