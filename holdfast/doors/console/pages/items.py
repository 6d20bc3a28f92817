"""Pages of one item or turn of a person: text, sources, edit, forget."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

from holdfast.doors.console.diffs import diff_rows
from holdfast.doors.console.pages.forget import (
    ErasureReceipt,
    pending_erasure,
    receipt_view,
    vectors_outside,
)
from holdfast.doors.console.pages.people import (
    HELD,
    KINDS,
    SECTION,
    crumbs,
    demand_on,
    place_of,
    shared_values,
    where,
    written_share,
)
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    PageView,
    Redirect,
    Visit,
    act,
    confirmation,
    page,
)
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import LongTermOff, NotFound, PreconditionFailed
from holdfast.memories.longterm.records import Item, Turn

SOURCES: Final = 20
"""Turns of an item, and items of a turn, that a page shows."""

DONE: Final = {
    "item-saved": "The item was saved.",
    "accepted": "The row was accepted: it is recalled from now on.",
    "rejected": "The row was rejected: its text is deleted, and mining does not learn it again.",
}


class SourceTurn(Struct, frozen=True):
    """A turn with those before and after it in its session; None where there is none."""

    turn: Turn
    before: Turn | None
    after: Turn | None


def _item(visit: Visit) -> Item:
    found = visit.hf.longterm_data(visit["user"], **place_of(visit)).get(visit["id"])
    if not isinstance(found, Item):
        raise NotFound("item", visit["id"], next="Look at the person's items.")
    return found


def _turn(visit: Visit) -> Turn:
    found = visit.hf.longterm_data(visit["user"], **place_of(visit)).get(visit["id"])
    if not isinstance(found, Turn):
        raise NotFound("turn", visit["id"], next="Look at the person's turns.")
    return found


def _items(visit: Visit, ids: Iterable[str]) -> list[Item]:
    data = visit.hf.longterm_data(visit["user"], **place_of(visit))
    found = (data.get(id) for id in islice(ids, SOURCES))
    return [each for each in found if isinstance(each, Item)]


def _sources(visit: Visit, ids: Iterable[str]) -> list[SourceTurn]:
    """Return the turns *ids* that are stored, with their neighbours."""
    data = visit.hf.longterm_data(visit["user"], **place_of(visit))
    found = (data.get(id) for id in islice(ids, SOURCES))
    return [SourceTurn(each, *data.neighbours(each.id)) for each in found if isinstance(each, Turn)]


def show_item(visit: Visit) -> Answer:
    """Show an item, the turns that it came from, and what it supersedes."""
    item = _item(visit)
    values = shared_values(visit, "Items") | {
        "item": item,
        "sources": _sources(visit, item.turns),
        "hidden_turns": max(0, len(item.turns) - SOURCES),
        "supersedes": _items(visit, item.supersedes),
        "newer": _items(visit, [item.superseded_by] if item.superseded_by else []),
        "kinds": KINDS,
        "edited": visit.text("edit") == "1" or "text" in visit.form,
        "shown": visit.form.get("shown") or to_rfc3339(item.updated_at),
        "confirm": visit.form.get("confirm") or visit.text("confirm"),
        "token": confirmation("", item.id),
        "reasons": HELD,
        "changed": (),
        "mine": None,
    }
    if isinstance(visit.error, PreconditionFailed):
        mine = visit.written("text")
        changed = diff_rows(item.text, mine)
        values |= {"mine": mine, "changed": changed, "shown": to_rfc3339(item.updated_at)}
    return PageView(
        template="item.html", title="Item", section=SECTION, values=values, up=crumbs(visit)
    )


def save_item(visit: Visit) -> Answer:
    """Save what was typed, unless the item changed since it was shown."""
    memory = visit.hf.longterm(visit["user"], enabled=True, **place_of(visit))
    if memory is None:
        raise LongTermOff("server")
    item, shown = _item(visit), visit.written("shown")
    if shown != to_rfc3339(item.updated_at):
        raise PreconditionFailed(item.id, expected=shown, current=to_rfc3339(item.updated_at))
    memory.update(
        item.id,
        text=visit.written("text"),
        kind=visit.written("kind"),
        importance=written_share(visit),
    )
    return Redirect(where(visit, "items", item.id, done="item-saved"))


def show_turn(visit: Visit) -> Answer:
    """Show a turn, its neighbours, and the items mined from it."""
    turn = _turn(visit)
    (source,) = _sources(visit, [turn.id])
    values = shared_values(visit, "Turns") | {
        "source": source,
        "items": _items(visit, turn.items),
        "hidden_items": max(0, len(turn.items) - SOURCES),
        "confirm": visit.form.get("confirm") or visit.text("confirm"),
        "token": confirmation("", turn.id),
        "reasons": HELD,
    }
    return PageView(
        template="turn.html", title="Turn", section=SECTION, values=values, up=crumbs(visit)
    )


def forget_item(visit: Visit) -> Answer:
    """Forget an item and the turns that it came from, once confirmed."""
    return _forget(visit, _item(visit).id)


def forget_turn(visit: Visit) -> Answer:
    """Forget a turn and the items that came from it alone, once confirmed."""
    return _forget(visit, _turn(visit).id)


def _forget(visit: Visit, id: str) -> Answer:
    visit.confirm(confirmation("", id))
    place = place_of(visit)
    collection = (place["namespace"], place["workspace_id"])
    outside = vectors_outside(visit, visit["user"], [collection])
    gone = visit.hf.longterm_data(visit["user"], **place_of(visit)).forget(id)
    erasure = ErasureReceipt(
        done="forgotten",
        ids=(*gone.items, *gone.turns),
        counts={"ltm_items": len(gone.items), "ltm_turns": len(gone.turns)},
        pending=(*pending_erasure(visit), *outside),
        at=visit.now,
    )
    return receipt_view(visit, erasure, title="Forgotten", section=SECTION, up=crumbs(visit))


# Held rows


def accept_item(visit: Visit) -> Answer:
    """Release a held item, which is confirmed by it."""
    return _accept(visit, _item(visit))


def accept_turn(visit: Visit) -> Answer:
    """Release a held turn."""
    return _accept(visit, _turn(visit))


def _accept(visit: Visit, row: Item | Turn) -> Answer:
    demand_on()
    visit.hf.longterm_data(visit["user"], **place_of(visit)).accept(row.id)
    return Redirect(_held(visit, row, "accepted"))


def reject_item(visit: Visit) -> Answer:
    """Forget a held item alone, once confirmed."""
    return _reject(visit, _item(visit))


def reject_turn(visit: Visit) -> Answer:
    """Forget a held turn alone, once confirmed."""
    return _reject(visit, _turn(visit))


def _reject(visit: Visit, row: Item | Turn) -> Answer:
    visit.confirm(confirmation("", row.id))
    visit.hf.longterm_data(visit["user"], **place_of(visit)).reject(row.id)
    return Redirect(_held(visit, row, "rejected"))


def _held(visit: Visit, row: Item | Turn, done: str) -> str:
    """Return the address of the held rows like *row*."""
    what = "turns" if isinstance(row, Turn) else None
    return where(visit, "held", what=what, done=done)


_ITEM: Final = "/people/{user}/items/{id}"
_TURN: Final = "/people/{user}/turns/{id}"

ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page(_ITEM, show_item, bound="user"),
    act(_ITEM, save_item, bound="user", again=show_item),
    act(f"{_ITEM}/forget", forget_item, bound="user", again=show_item),
    act(f"{_ITEM}/accept", accept_item, bound="user", again=show_item),
    act(f"{_ITEM}/reject", reject_item, bound="user", again=show_item),
    page(_TURN, show_turn, bound="user"),
    act(f"{_TURN}/accept", accept_turn, bound="user", again=show_turn),
    act(f"{_TURN}/reject", reject_turn, bound="user", again=show_turn),
    act(f"{_TURN}/forget", forget_turn, bound="user", again=show_turn),
)
