"""Stored events of a workspace, newest first, and its sizes by day."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Final

from msgspec import Struct

from holdfast.engines.base import TRIMMED, Engine, Transaction, cursor_at, event_of, scalar
from holdfast.ground.clock import EPOCH
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event
from holdfast.ground.pages import NEWEST, Page, digest, read_key, write_cursor
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.ground.validation import check_limit, check_text, check_whole, is_list
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

LISTED: Final = 50
MOST_LISTED: Final = 1_000
LOOKED: Final = 20_000
"""Most stored events that one call looks at."""

_LIST: Final = "activity"
_QUERIES: Final = "holdfast.library"
_MOST_NAME: Final = 256
"""Code points of a filter."""
_MOST_TYPES: Final = 100


class EventFilter(Struct, frozen=True, kw_only=True):
    """The filters of stored events; what is None admits every event.

    `types` are types in full, `owner` an agent or a user. `id` is any of the event's ids, `actor`
    the id of its author.
    """

    types: Iterable[str] | None = None
    owner: str | None = None
    id: str | None = None
    actor: str | None = None


def list_events(
    context: StoresContext, filters: EventFilter, *, limit: int | None, page: str | None
) -> Page[Event]:
    """Return a page of the stored events of the workspace, newest first.

    One call looks at 20,000 rows of the feed at most. It may so return fewer events than *limit*,
    or none, and a next page.
    """
    refuse_narrowed(context, "read")
    rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    params = _params(filters)
    stamp = digest(context.workspace, *params.values())
    before = NEWEST if page is None else read_key(_LIST, stamp, page, int)
    sql = context.engine.queries(_QUERIES)
    # Policies hide the rows of other workspaces, so only upkeep's scope can count what is looked
    # at; the events themselves are read in that of the caller.
    upkeep = context.engine.scoped(EVERYBODY)
    floor = upkeep.first(scalar, sql.events_floor, before=before, looked=LOOKED)
    own = context.engine.scoped(Scope(workspace=context.workspace, agent="*", user="*"))
    found = own.all(
        SimpleNamespace,
        sql.events_before,
        before=before,
        floor=0 if floor is None else floor,
        trimmed=TRIMMED,
        rows=rows + 1,
        **params,
    )
    end = found[rows - 1].seq if len(found) > rows else floor
    return Page(
        [event_of(row, _cursor(row)) for row in found[:rows]],
        None if end is None else write_cursor(_LIST, stamp, [end]),
        more=lambda page: list_events(context, filters, limit=limit, page=page),
    )


def _params(filters: EventFilter) -> dict[str, str]:
    """Return the validated filters as parameters of the statement, "" for none."""
    named = {"owner": filters.owner, "id": filters.id, "actor": filters.actor}
    texts = {
        name: "" if given is None else check_text(name, given, least=1, most=_MOST_NAME)
        for name, given in named.items()
    }
    types = checked_types(filters.types)
    return {"types": "" if types is None else f",{','.join(types)},", **texts}


def checked_types(given: object) -> tuple[str, ...] | None:
    """Return *given* as types of events; InvalidInput if it is no list of names."""
    if given is None:
        return None
    types = tuple(given) if is_list(given) else ()
    if not 1 <= len(types) <= _MOST_TYPES:
        reason = f"must be a list of 1 to {_MOST_TYPES} types of events"
        raise InvalidInput("types", reason, limit=_MOST_TYPES, given=repr(given))
    names = [check_text("types", each, least=1, most=_MOST_NAME, part="a type ") for each in types]
    for name in names:
        if "," in name:
            raise InvalidInput("types", "must not hold a comma", given=name)
    return tuple(sorted(set(names)))


def _cursor(row: SimpleNamespace) -> str:
    """Return the position of *row* in the feed of its engine."""
    xid = getattr(row, "xid", None)
    return cursor_at(row.seq) if xid is None else cursor_at(int(xid), row.seq)


SAMPLED: Final = 400
"""Days of which sizes are kept."""
DAYS: Final = 90


class Sample(Struct, frozen=True, kw_only=True):
    """Sizes of a workspace on a day (UTC); `bytes` are those of the whole database.

    `items` are live items of long-term memory, `entries` those of durable memory without the
    entries of runs.
    """

    day: date
    bytes: int
    memories: int
    versions: int
    entries: int
    items: int
    turns: int
    runs: int


def list_samples(context: StoresContext, now: datetime, *, days: int) -> list[Sample]:
    """Return the samples of the last *days* days, oldest first."""
    refuse_narrowed(context, "read")
    reason = f"must be 1 to {SAMPLED}"
    check_whole("days", days, reason, least=1, most=SAMPLED, limit=SAMPLED)
    sql = context.engine.queries(_QUERIES)
    return context.engine.all(_sample, sql.list_samples, after=_day(now) - days)


def take_samples(engine: Engine, now: datetime) -> int:
    """Store the sizes of every workspace that has data; return of how many.

    A day has one row, the last that was taken. Rows of more than 400 days ago are deleted.
    """
    engine, day = engine.scoped(EVERYBODY), _day(now)
    sql = engine.queries(_QUERIES)
    # Counting is left to a reader, as it would keep other writes waiting.
    sizes = engine.all(dict[str, object], sql.sizes_of_all)
    counted = {"day": day, "bytes": engine.one(scalar, sql.database_bytes)}

    def work(tx: Transaction) -> int:
        tx.run(sql.drop_samples, before=day - SAMPLED)
        return tx.run_many(sql.put_sample, [{**each, **counted} for each in sizes])

    return engine.write(work)


def _day(now: datetime) -> int:
    return (now - EPOCH).days


def _sample(*, day: int, **sizes: int) -> Sample:
    return Sample(day=(EPOCH + timedelta(days=day)).date(), **sizes)
