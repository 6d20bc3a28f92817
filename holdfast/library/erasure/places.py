"""What is a person's or an agent's, place by place, and how it is deleted."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from msgspec import Struct
from platformdirs import user_state_dir

from holdfast import memories
from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.clock import Clock
from holdfast.ground.errors import NotFound
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.library.erasure.ledger import OutsideVectors, statements, whole
from holdfast.library.erasure.records import ErasureSubject
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
    operation: str
    redacted_at: int | None
    held: str | None
    live: str | None


class OwnedCollection(Struct, frozen=True, kw_only=True):
    """A collection of a user, and where its vectors are."""

    number: int
    id: str
    provider: str | None


class _SharedThread(Struct, frozen=True, kw_only=True):
    id: str
    owner: str | None


class EntryPlace(Struct, frozen=True, kw_only=True):
    """Where a durable entry is."""

    agent: str
    run_id: str
    key: str


class _LoggedEntry(EntryPlace, frozen=True, kw_only=True):
    id: str


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
    """Return the work that deletes threads, runs, answers and links of *user*.

    Of threads that are others' too it deletes the turns of the user.
    """

    def forget(tx: Transaction) -> dict[str, int]:
        sql, scope = statements(engine), {"workspace": workspace}
        links = tx.all(LinkRow, sql.links_of, user=user, **scope)
        own = [each for each in links if not each.shared]
        scrubbed = _scrub_threads(tx, sql, user, workspace)
        for each in own:
            if each.kind == "thread":
                tx.run(sql.own_thread, user=user, id=each.id, **scope)
        gone = memories.forget_user_threads(engine, tx, workspace=workspace, user=user)
        gone["thread_turns"] += scrubbed
        gone["runs"] += sum(
            _drop_run(tx, sql, each.id, workspace)
            for each in own
            if each.kind in ("run", "network_run")
        )
        gone |= memories.forget_user_runs(engine, tx, workspace=workspace, user=user)
        gone |= _consolidations(tx, sql, workspace, ErasureSubject(kind="user", name=user))
        if links:
            tx.run(sql.drop_links, user=user, **scope)
            gone["subjects"] = len(links)
        return gone

    return forget


def _scrub_threads(tx: Transaction, sql: SimpleNamespace, user: str, workspace: str) -> int:
    """Delete the turns of *user* in threads with others; return their number.

    Such a thread is then of no user.
    """
    scope, count = {"workspace": workspace}, 0
    for thread in tx.all(_SharedThread, sql.threads_with_others, user=user, **scope):
        tx.all(scalar, sql.hold_thread, id=thread.id, **scope)
        owned = int(thread.owner == user)
        count += tx.run(sql.scrub_turns, id=thread.id, user=user, owned=owned, **scope)
        tx.run(sql.count_turns, id=thread.id, user=user, **scope)
    return count


def _drop_run(tx: Transaction, sql: SimpleNamespace, run: str, workspace: str) -> int:
    for statement in (sql.drop_run_entries, sql.drop_run_events):
        tx.run(statement, id=run, workspace=workspace)
    return tx.run(sql.drop_run, id=run, workspace=workspace)


def _consolidations(
    tx: Transaction, sql: SimpleNamespace, workspace: str, subject: ErasureSubject
) -> dict[str, int]:
    """Delete policies and proposals about *subject*, with changes and calls."""
    scope = {"workspace": workspace}
    found: list[str] = tx.all(
        scalar, sql.consolidations_of, kind=subject.kind, owner=subject.name, **scope
    )
    tables = ("consolidation_calls", "consolidation_changes", "consolidation")
    for id in found:
        for table in tables:
            tx.run(getattr(sql, f"drop_{table}"), id=id, **scope)
    gone = {"consolidations": len(found)} if found else {}
    policies = tx.run(
        sql.drop_consolidation_policies, kind=subject.kind, owner=subject.name, **scope
    )
    return gone | ({"consolidation_policies": policies} if policies else {})


class StoresErasure(Struct, kw_only=True):
    """What was deleted of memory stores and durable entries, and what was not.

    `heads` are memories with a linked version that is current, `spooled` counts unsaved edits of
    mounts in stores of others.
    """

    counts: dict[str, int] = {}
    heads: tuple[str, ...] = ()
    spooled: int = 0

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
        for edit in spooled_in(store):
            edit.unlink(missing_ok=True)
        with suppress(NotFound):
            stores.delete(store)
            done.add("stores")
    for store in engine.all(scalar, sql.stores_of_versions, user=user):
        done.spooled += sum(each.suffix != ".json" for each in spooled_in(store))
    for memory in _ids(links, "memory"):
        _erase_memory(stores, engine, memory, done)
    _erase_versions(stores, engine, [*_ids(links, "version")], done)
    _erase_entries(context, user, {*_ids(links, "durable_entry")}, done)
    return done


def _erase_entries(context: StoresContext, user: str, ids: set[str], done: StoresErasure) -> None:
    """Forget the entries *ids* with their history, and what is left of others.

    Where a key has another entry since, only the contents from before it are redacted.
    """
    engine = whole(context)
    sql = statements(engine)
    logged = engine.all(_LoggedEntry, sql.logged_links, user=user)
    for id in sorted(ids):
        place = engine.first(EntryPlace, sql.entry_of_link, id=id)
        if place is not None:
            _forget_entry(context, place)
            ids.discard(id)
            done.add("durable_entries")
    for each in logged:
        place = EntryPlace(agent=each.agent, run_id=each.run_id, key=each.key)
        there = engine.first(scalar, sql.entry_at, owner=each.agent, key=each.key)
        if each.id not in ids or there == each.id:
            continue
        if there is None:
            _forget_entry(context, place)
            continue
        durable = DurableMemory(agent_context(context, each.agent))
        past: list[int] = engine.all(
            scalar, sql.changes_before, owner=each.agent, key=each.key, id=there
        )
        for seq in past:
            durable.redact(seq)
            done.add("durable_changes")


def _forget_entry(context: StoresContext, place: EntryPlace) -> None:
    location = EntryLocation(place.agent, place.run_id)
    agent = agent_context(context, place.agent)
    forget_entries_again(agent, location, place.key, before=_LATEST)


def spooled_in(store: str) -> list[Path]:
    """Return the files of edits that mounts on this machine have not saved in *store*."""
    folder = Path(user_state_dir("holdfast", appauthor=False)) / "spool" / store
    return [each for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []


def _ids(links: list[LinkRow], kind: str) -> Iterator[str]:
    return (each.id for each in links if each.kind == kind)


def _erase_memory(stores: MemoryStores, engine: Engine, memory: str, done: StoresErasure) -> None:
    """Delete the memory and redact all its versions, that of the deletion too."""
    sql = statements(engine)
    for each in engine.all(_LinkedVersion, sql.versions_of_memory, id=memory):
        if each.live is not None:
            stores.memories.delete(memory, memory_store_id=each.store_id)
            done.add("memories")
    for each in engine.all(_LinkedVersion, sql.versions_of_memory, id=memory):
        if each.redacted_at is None:
            stores.memory_versions.redact(each.id, memory_store_id=each.store_id)
            done.add("versions")


def forget_held_file(context: StoresContext, store: str, memory: str) -> None:
    """Delete a held memory and redact its held versions; others can be restored."""
    engine, stores = whole(context), MemoryStores(context)
    with suppress(NotFound):
        stores.memories.delete(memory, memory_store_id=store)
    for each in engine.all(_LinkedVersion, statements(engine).versions_of_memory, id=memory):
        if each.held is not None and each.redacted_at is None:
            stores.memory_versions.redact(each.id, memory_store_id=store)


def _erase_versions(
    stores: MemoryStores, engine: Engine, ids: list[str], done: StoresErasure
) -> None:
    """Redact the versions *ids*; delete a memory all contents of which are among them."""
    sql, wanted, erased = statements(engine), set(ids), set[str]()
    for id in ids:
        version = engine.first(_LinkedVersion, sql.version_of_link, id=id)
        if version is None or version.memory_id in erased:
            continue
        family = engine.all(_LinkedVersion, sql.versions_of_memory, id=version.memory_id)
        if all(
            each.operation == "deleted" or each.id in wanted or each.redacted_at is not None
            for each in family
        ):
            _erase_memory(stores, engine, version.memory_id, done)
            erased.add(version.memory_id)
        elif version.live is not None:
            done.heads += (version.memory_id,)
        elif version.redacted_at is None:
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
