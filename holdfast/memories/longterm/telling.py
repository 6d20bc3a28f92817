"""Events of long-term memory: ids, counts and outcomes; never a text, a query or a name."""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.ground.clock import from_microseconds
from holdfast.ground.events import Event, Fact
from holdfast.memories.longterm.context import CollectionContext

MOST_IDS: Final = 100
"""Ids of one kind that an event names; how many there are it says besides."""


def event_of(
    caller: CollectionContext,
    what: str,
    collection: str | None,
    ids: Mapping[str, Iterable[str]],
    data: Mapping[str, Fact],
) -> Event:
    """Return the event that `longterm.<what>` happened, now, in the collection of that id.

    *ids* are those of items and turns by `item` and `turn`: one is told as `item_id`, several as
    `item_ids`, with a space between.
    """
    named = {} if collection is None else {"collection_id": collection}
    for kind, given in ids.items():
        some = list(given)
        if some:
            name = f"{kind}_id" if len(some) == 1 else f"{kind}_ids"
            named[name] = " ".join(some[:MOST_IDS])
    return Event(
        type=f"longterm.{what}",
        at=from_microseconds(caller.now()),
        workspace=caller.workspace,
        owner=caller.user,
        actor=caller.actor,
        ids=named,
        data=dict(data),
    )


def publish(
    caller: CollectionContext,
    what: str,
    *,
    collection: str | None = None,
    ids: Mapping[str, Iterable[str]] | None = None,
    **data: Fact,
) -> None:
    """Tell this process alone that `longterm.<what>` happened, in which nothing was written."""
    if caller.engine.events.heard:
        caller.engine.events.publish(event_of(caller, what, collection, ids or {}, data))
