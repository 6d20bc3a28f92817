"""Objects of a workspace by id or beginning of a name; what needs a person.

Pages for people show these; each list is bounded, and read with one statement.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, LiteralString

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_microseconds
from holdfast.ground.scope import Scope
from holdfast.ground.text import to_nfc
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.records import AgentSummary, DurableLimits
from holdfast.memories.stores.transaction import MEMORIES_CAP

_QUERIES: Final = "holdfast.library"
_HIGHEST: Final = "\U0010ffff"
_ID_DIGITS: Final = 24
_SOON: Final = timedelta(days=1)


def _own(hf: Holdfast) -> Engine:
    """Return the engine in the scope of all agents and users of the workspace."""
    return hf.engine.scoped(Scope(workspace=hf.workspace, agent="*", user="*"))


# What there is


class Holdings(Struct, frozen=True, kw_only=True):
    """How much a workspace holds, by counters, archived stores included."""

    stores: int
    memories: int
    agents: int
    entries: int
    people: int
    items: int
    turns: int


class CollectionSummary(Struct, frozen=True, kw_only=True):
    """A collection of a user, with its items and turns."""

    user_id: str
    namespace: str
    workspace_id: str
    items: int
    turns: int


class EntrySummary(Struct, frozen=True, kw_only=True):
    """A durable entry without its content; `agent` is "" for one of the workspace."""

    agent: str
    key: str
    category: str
    size_bytes: int
    updated_at: datetime


def holdings(hf: Holdfast) -> Holdings:
    """Return how much the workspace of *hf* holds."""
    return _own(hf).one(Holdings, hf.engine.queries(_QUERIES).holdings)


def newest_agents(hf: Holdfast, rows: int) -> list[AgentSummary]:
    """Return the agents that wrote last, at most *rows*."""
    return _own(hf).all(_agent, hf.engine.queries(_QUERIES).newest_agents, rows=rows)


def newest_collections(hf: Holdfast, rows: int) -> list[CollectionSummary]:
    """Return the newest collections that hold anything, at most *rows*."""
    return _own(hf).all(
        CollectionSummary, hf.engine.queries(_QUERIES).newest_collections, rows=rows
    )


def agents_from(hf: Holdfast, prefix: str, rows: int) -> list[AgentSummary]:
    """Return agents with a name that begins with *prefix*, by name, at most *rows*."""
    sql = hf.engine.queries(_QUERIES).agents_from
    return _own(hf).all(_agent, sql, start=prefix, end=prefix + _HIGHEST, rows=rows)


def keys_from(hf: Holdfast, prefix: str, now: datetime, rows: int) -> list[EntrySummary]:
    """Return durable entries with a key that begins with *prefix*, at most *rows*.

    By agent and key, those of the workspace first; entries of runs are left out.
    """
    start = to_nfc(prefix)
    return _own(hf).all(
        _entry,
        hf.engine.queries(_QUERIES).keys_from,
        start=start,
        end=start + _HIGHEST,
        now=to_microseconds(now),
        rows=rows,
    )


def _agent(*, agent: str, entries: int, size_bytes: int, last_write: int | None) -> AgentSummary:
    return AgentSummary(
        agent=agent,
        entries=entries,
        size_bytes=size_bytes,
        last_write=from_microseconds_or_none(last_write),
    )


def _entry(*, updated_at: int, **named: str | int) -> EntrySummary:
    return EntrySummary(updated_at=from_microseconds(updated_at), **named)  # pyright: ignore[reportArgumentType] - the columns of the statement


# Where an id is

ObjectKind = Literal[
    "store", "memory", "version", "session", "token", "key", "agent", "entry", "collection",
    "item", "turn", "run", "thread",
]  # fmt: skip

_KINDS: Final[Mapping[str, tuple[ObjectKind, str | None]]] = {
    "memstore": ("store", None),
    "mem": ("memory", "place_of_memory"),
    "memver": ("version", "place_of_version"),
    "sesn": ("session", None),
    "sestok": ("token", "place_of_token"),
    "apikey": ("key", None),
    "agent": ("agent", None),
    "entry": ("entry", "place_of_entry"),
    "coll": ("collection", "place_of_collection"),
    "item": ("item", "place_of_item"),
    "turn": ("turn", "place_of_turn"),
    "run": ("run", None),
    "thread": ("thread", None),
    "res": ("thread", "place_of_result"),
}
"""By the prefix of an id: its kind, and the statement that finds what holds it."""


class Place(Struct, frozen=True, kw_only=True):
    """Where an object is.

    `holder` is the store of a memory or a version, the session of a token, the agent of an entry,
    the user of a collection, an item or a turn, the thread of a result; `part` an entry's key or a
    namespace, `more` the run of an entry, or a workspace id. Of the others, `holder` is their id.
    """

    kind: ObjectKind
    id: str
    holder: str
    part: str = ""
    more: str = ""


class _PlaceRow(Struct, frozen=True, kw_only=True):
    holder: str
    part: str
    more: str


def is_id(text: str) -> bool:
    """Return whether *text* looks like an id that this package made."""
    prefix, separator, rest = text.partition("_")
    return bool(separator) and prefix in _KINDS and rest.isalnum() and len(rest) == _ID_DIGITS


def place_of(hf: Holdfast, id: str) -> Place | None:
    """Return where the object *id* is; None if it is none of ours.

    Whether a store, session, key, agent, run or thread is there, its own call says.
    """
    prefix, separator, _ = id.partition("_")
    if not separator or prefix not in _KINDS:
        return None
    kind, statement = _KINDS[prefix]
    if statement is None:
        return Place(kind=kind, id=id, holder=id)
    row = _own(hf).first(_PlaceRow, getattr(hf.engine.queries(_QUERIES), statement), id=id)
    if row is None:
        return None
    return Place(kind=kind, id=id, holder=row.holder, part=row.part, more=row.more)


# What needs a person

ConcernKind = Literal[
    "store_full", "agent_full", "shared_full", "expiring", "shared_expiring", "failed_work",
    "held_rows", "lost_run", "erasure",
]  # fmt: skip


class Concern(Struct, frozen=True, kw_only=True):
    """Something that needs a person: its kind, what it is about, and how many.

    `id` is that of a store or a run, an agent or a user; `name` a store's or a run's, a namespace;
    `more` a workspace id. `cap` is the limit that `held` comes near, else 0.
    """

    kind: ConcernKind
    id: str
    name: str
    held: int
    cap: int = 0
    more: str = ""


class _HeldRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    held: int
    cap: int


class _WorkRow(Struct, frozen=True, kw_only=True):
    user_id: str
    namespace: str
    workspace_id: str
    held: int


def concerns(hf: Holdfast, now: datetime, rows: int) -> list[Concern]:
    """Return what of the workspace needs a person, at most *rows* of each kind.

    That are caps used by nine tenths, entries that expire within a day, mining and embedding that
    failed for good, rows that are held, lost runs, and erasures of the database that wait.
    """
    return [*_full(hf, rows), *_expiring(hf, now, rows), *_failed(hf, rows)]


def _full(hf: Holdfast, rows: int) -> Iterator[Concern]:
    engine, sql = _own(hf), hf.engine.queries(_QUERIES)
    for each in engine.all(_HeldRow, sql.full_stores, cap=MEMORIES_CAP, rows=rows):
        yield Concern(kind="store_full", id=each.id, name=each.name, held=each.held, cap=each.cap)
    usual = DurableLimits()
    for each in engine.all(
        _HeldRow, sql.full_agents, cap=usual.cap, workspace_cap=usual.workspace_cap, rows=rows
    ):
        kind = "agent_full" if each.id else "shared_full"
        yield Concern(kind=kind, id=each.id, name=each.name, held=each.held, cap=each.cap)


def _expiring(hf: Holdfast, now: datetime, rows: int) -> Iterator[Concern]:
    found = _own(hf).all(
        _HeldRow,
        hf.engine.queries(_QUERIES).expiring_entries,
        now=to_microseconds(now),
        soon=to_microseconds(now + _SOON),
        rows=rows,
    )
    for each in found:
        kind = "expiring" if each.id else "shared_expiring"
        yield Concern(kind=kind, id=each.id, name=each.name, held=each.held)


def _failed(hf: Holdfast, rows: int) -> Iterator[Concern]:
    sql = hf.engine.queries(_QUERIES)
    kinds: tuple[tuple[ConcernKind, LiteralString], ...] = (
        ("failed_work", sql.failed_work),
        ("held_rows", sql.held_rows),
    )
    for kind, statement in kinds:
        for each in _own(hf).all(_WorkRow, statement, rows=rows):
            yield Concern(
                kind=kind,
                id=each.user_id,
                name=each.namespace,
                held=each.held,
                more=each.workspace_id,
            )
    for run in hf.runs.list(status="lost", limit=rows).data:
        yield Concern(kind="lost_run", id=run.id, name=run.name, held=1)
    pending = int(hf.engine.status().metrics.get("erasure_pending", 0))
    if pending:
        yield Concern(kind="erasure", id="", name="", held=pending)
