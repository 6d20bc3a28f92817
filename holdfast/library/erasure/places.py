"""What is a person's or an agent's, place by place, and how it is deleted."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import SimpleNamespace
from typing import Final, LiteralString, get_args

from msgspec import Struct

from holdfast import memories
from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.ground.validation import check_one_of, check_text
from holdfast.library.erasure.ledger import OutsideVectors, statements, whole
from holdfast.library.erasure.records import (
    ERASED,
    ErasureOptions,
    ErasureSubject,
    MentionChoice,
    Mentions,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_entries_again
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.rows import EntryLocation
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.vectors.base import provider_call
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed
from holdfast.memories.stores.rows import StoresContext
from holdfast.memories.stores.stores import MemoryStores

_LATEST: Final = 2**62


class LinkRow(Struct, frozen=True, kw_only=True):
    """An object that is linked to a person, and whether to another one too."""

    kind: str
    id: str
    shared: bool | int


class _LinkedVersion(Struct, frozen=True, kw_only=True):
    id: str
    store_id: str
    memory_id: str
    redacted_at: int | None
    live: str | None


class OwnedCollection(Struct, frozen=True, kw_only=True):
    """A collection of a user, and where its vectors are."""

    number: int
    id: str
    provider: str | None


class EntryPlace(Struct, frozen=True, kw_only=True):
    """Where a durable entry is."""

    agent: str
    run_id: str
    key: str


def outside_durable(
    engine: Engine, workspace: str, agent: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return the work that removes *agent* from threads, runs and proposals.

    It takes the agent's results out of threads, deletes its runs, and returns the counts.
    """

    def forget(tx: Transaction) -> dict[str, int]:
        turns = memories.forget_results(engine, tx, workspace=workspace, agent=agent)
        gone = turns | memories.forget_runs(engine, tx, workspace=workspace, agent=agent)
        sql = statements(engine)
        return gone | _consolidations(tx, sql, workspace, ErasureSubject(kind="agent", name=agent))

    return forget


def outside_longterm(
    engine: Engine, workspace: str, user: str
) -> Callable[[Transaction], dict[str, int]]:
    """Return the work that deletes threads, runs, answers and links of *user*."""

    def forget(tx: Transaction) -> dict[str, int]:
        sql, scope = statements(engine), {"workspace": workspace}
        links = tx.all(LinkRow, sql.links_of, user=user, **scope)
        own = [each for each in links if not each.shared]
        for each in own:
            if each.kind == "thread":
                tx.run(sql.own_thread, user=user, id=each.id, **scope)
        gone = memories.forget_user_threads(engine, tx, workspace=workspace, user=user)
        gone["runs"] += sum(
            _drop_run(tx, sql, each.id, workspace)
            for each in own
            if each.kind in ("run", "network_run")
        )
        gone |= memories.forget_user_runs(engine, tx, workspace=workspace, user=user)
        gone |= _consolidations(tx, sql, workspace, ErasureSubject(kind="user", name=user))
        if links:
            gone["subjects"] = tx.run(sql.drop_links, user=user, **scope)
        return gone

    return forget


def _drop_run(tx: Transaction, sql: SimpleNamespace, run: str, workspace: str) -> int:
    for statement in (sql.drop_run_entries, sql.drop_run_events):
        tx.run(statement, id=run, workspace=workspace)
    return tx.run(sql.drop_run, id=run, workspace=workspace)


def _consolidations(
    tx: Transaction, sql: SimpleNamespace, workspace: str, subject: ErasureSubject
) -> dict[str, int]:
    """Delete the proposals about *subject* with their changes and calls."""
    scope = {"workspace": workspace}
    found: list[str] = tx.all(
        scalar, sql.consolidations_of, kind=subject.kind, owner=subject.name, **scope
    )
    tables = ("consolidation_calls", "consolidation_changes", "consolidation")
    for id in found:
        for table in tables:
            tx.run(getattr(sql, f"drop_{table}"), id=id, **scope)
    return {"consolidations": len(found)} if found else {}


class StoresErasure(Struct, kw_only=True):
    """What was deleted of memory stores and durable entries, and what was not."""

    counts: dict[str, int] = {}
    heads: tuple[str, ...] = ()

    def add(self, table: str, rows: int = 1) -> None:
        """Count *rows* of *table*."""
        self.counts[table] = self.counts.get(table, 0) + rows


def erase_linked(context: StoresContext, user: str) -> StoresErasure:
    """Delete the stores, memories, versions and durable entries linked to *user*.

    A version that is the current one of a memory with others stays, and is returned in `heads`.
    """
    engine, done = whole(context), StoresErasure()
    sql, stores = statements(engine), MemoryStores(context)
    links = [each for each in engine.all(LinkRow, sql.links_of, user=user) if not each.shared]
    for store in dict.fromkeys(
        [*engine.all(scalar, sql.stores_of, user=user), *_ids(links, "store")]
    ):
        with suppress(NotFound):
            stores.delete(store)
            done.add("stores")
    for memory in _ids(links, "memory"):
        _erase_memory(stores, engine.all(_LinkedVersion, sql.versions_of_memory, id=memory), done)
    _erase_versions(stores, engine, [*_ids(links, "version")], done)
    for entry in _ids(links, "durable_entry"):
        place = engine.first(EntryPlace, sql.entry_of_link, id=entry)
        if place is not None:
            agent = agent_context(context, place.agent)
            location = EntryLocation(place.agent, place.run_id)
            forget_entries_again(agent, location, place.key, before=_LATEST)
            done.add("durable_entries")
    return done


def _ids(links: list[LinkRow], kind: str) -> Iterator[str]:
    return (each.id for each in links if each.kind == kind)


def _erase_memory(
    stores: MemoryStores, versions: list[_LinkedVersion], done: StoresErasure
) -> None:
    live = [each for each in versions if each.live is not None]
    for each in live:
        stores.memories.delete(each.memory_id, memory_store_id=each.store_id)
        done.add("memories")
    for each in versions:
        if each.redacted_at is None:
            stores.memory_versions.redact(each.id, memory_store_id=each.store_id)
            done.add("versions")


def _erase_versions(
    stores: MemoryStores, engine: Engine, ids: list[str], done: StoresErasure
) -> None:
    """Redact the versions *ids*; delete a memory all of which is among them."""
    sql, wanted = statements(engine), set(ids)
    for id in ids:
        version = engine.first(_LinkedVersion, sql.version_of_link, id=id)
        if version is None or version.redacted_at is not None:
            continue
        family = engine.all(_LinkedVersion, sql.versions_of_memory, id=version.memory_id)
        rest = [each for each in family if each.id not in wanted and each.redacted_at is None]
        if not rest:
            _erase_memory(stores, family, done)
        elif version.live is not None:
            done.heads += (version.memory_id,)
        else:
            stores.memory_versions.redact(id, memory_store_id=version.store_id)
            done.add("versions")


def agent_context(context: StoresContext, agent: str) -> AgentContext:
    """Return the context of *agent*'s durable memory, or of the workspace's for ""."""
    return AgentContext(
        engine=context.engine.scoped(Scope(workspace=context.workspace, agent=agent or "*")),
        workspace=context.workspace,
        agent=agent,
        actor=context.actor,
        clock=context.clock,
        ids=context.ids,
    )


def upkeep_context(engine: Engine, workspace: str, clock: Clock) -> StoresContext:
    """Return a context of *workspace* for work that no client requested."""
    return StoresContext(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        actor=LOCAL,
        clock=clock,
        ids=Ids(),
    )


# Vectors outside the database


def vectors_of(context: StoresContext, user: str) -> tuple[OutsideVectors, ...]:
    """Return the collections of *user* with vectors outside the database."""
    engine = whole(context)
    found = engine.all(OwnedCollection, statements(engine).vectors_of, user=user)
    return tuple(
        OutsideVectors(provider=each.provider, collection=each.id)
        for each in found
        if each.provider is not None and each.provider not in INSIDE
    )


TRIES: Final = 3
"""How often vectors are deleted before they are pending: a background deletion may be at work."""
INSIDE: Final = frozenset({"sqlite", "pgvector"})
"""Providers that store vectors in the database, in the transaction of the rows."""


def drop_vectors(
    context: CollectionContext, vectors: tuple[OutsideVectors, ...]
) -> tuple[OutsideVectors, ...]:
    """Delete *vectors*; return those that a provider does not confirm."""
    return tuple(each for each in vectors if not _is_dropped(context, each))


def _is_dropped(context: CollectionContext, vectors: OutsideVectors) -> bool:
    if context.opens is None:
        return False
    choice = context.opens(vectors.provider)
    if choice.vectors is None or choice.reason is not None:
        return False
    provider = choice.vectors
    for _ in range(TRIES):
        with suppress(EmbeddingFailed):
            provider_call(lambda: provider.drop(vectors.collection))
            if not provider_call(lambda: [*islice(provider.ids(vectors.collection), 1)]):
                return True
    return False


# Names in texts of others

LEAST: Final = 3
"""Code points of the shortest name that is searched."""
MOST_NAMES: Final = 50
_MOST_NAME: Final = 256
_AT_ONCE: Final = 500
_IDS: Final = 100


class MentionRow(Struct, frozen=True, kw_only=True):
    """A text that may contain a name; `place` is its store, agent or thread."""

    mark: int | str
    id: str
    text: str | bytes
    place: str

    @property
    def words(self) -> str:
        """The text as such."""
        return self.text if isinstance(self.text, str) else bytes(self.text).decode()


def checked_mentions(options: ErasureOptions) -> None:
    """Raise InvalidInput unless the choice and the names of *options* are valid."""
    choices = get_args(MentionChoice)
    check_one_of("mentions", options.mentions, choices, "must be report, redact or ignore")
    names = options.names
    if len(names) > MOST_NAMES:
        raise InvalidInput("names", f"must be a list of at most {MOST_NAMES}", limit=MOST_NAMES)
    for name in names:
        check_text("names", name, least=LEAST, most=_MOST_NAME, part="a name ")


def find_mentions(
    context: StoresContext, subject: ErasureSubject, options: ErasureOptions
) -> dict[str, Mentions]:
    """Find the names of *subject* in texts of others; redact them if chosen.

    Texts in stores and durable entries are redacted, those in threads and runs are reported.
    """
    if options.mentions == "ignore":
        return {}
    names = {*options.names, *([subject.name] if len(subject.name) >= LEAST else ())}
    if not names:
        return {}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    word = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
    engine = whole(context)
    sql = statements(engine)
    redact = options.mentions == "redact"
    places: dict[str, tuple[LiteralString, int | str, Callable[[MentionRow], bool] | None]] = {
        "stores": (sql.texts_in_stores, "", lambda row: _redact_memory(context, row, word)),
        "durable_entries": (
            sql.texts_in_entries,
            "",
            lambda row: _redact_entry(context, row, word),
        ),
        "threads": (sql.texts_in_threads, 0, None),
        "runs": (sql.texts_in_runs, "", None),
    }
    found: dict[str, Mentions] = {}
    for place, (statement, start, change) in places.items():
        rows = [each for each in _rows(engine, statement, start) if word.search(each.words)]
        if rows:
            changed = sum(change(each) for each in rows) if redact and change else 0
            ids = tuple(dict.fromkeys(each.id for each in rows))
            found[place] = Mentions(count=len(ids), ids=ids[:_IDS], redacted=changed)
    return found


def _rows(engine: Engine, statement: LiteralString, after: int | str) -> Iterator[MentionRow]:
    while rows := engine.all(MentionRow, statement, after=after, rows=_AT_ONCE):
        yield from rows
        after = rows[-1].mark


def _redact_memory(context: StoresContext, row: MentionRow, word: re.Pattern[str]) -> bool:
    """Write a version without the names, and redact the older ones that have them."""
    stores = MemoryStores(context)
    try:
        stores.memories.update(
            row.id, memory_store_id=row.place, content=word.sub(ERASED, row.words)
        )
    except (Refused, Conflict, NotFound):
        # Archived, changed or deleted meanwhile: it stays in the report.
        return False
    versions = stores.memory_versions
    for each in [*versions.list(row.place, memory_id=row.id, view="full").all()]:
        if each.content is not None and word.search(each.content):
            with suppress(Conflict, Refused):
                versions.redact(each.id, memory_store_id=row.place)
    return True


def _redact_entry(context: StoresContext, row: MentionRow, word: re.Pattern[str]) -> bool:
    """Replace the names in an agent's entry, and redact older contents with them.

    Entries of the workspace and of runs stay in the report.
    """
    engine = whole(context)
    place = engine.first(EntryPlace, statements(engine).entry_of_link, id=row.id)
    if place is None or not place.agent or place.run_id:
        return False
    durable = DurableMemory(agent_context(context, place.agent))
    entry = durable.get(place.key)
    if entry is None:
        return False
    try:
        durable.set(
            place.key,
            word.sub(ERASED, entry.content),
            category=entry.category,
            tags=entry.tags,
            expected_seq=entry.seq,
        )
    except (Refused, Conflict):
        return False
    for change in [*durable.history(place.key).all()]:
        if change.content is not None and word.search(change.content):
            durable.redact(change.seq)
    return True
