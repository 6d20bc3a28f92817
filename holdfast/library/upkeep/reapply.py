"""Repeat deletions and revocations in a restored database; their ledger file."""

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, LiteralString

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.clock import Clock, SystemClock, from_microseconds
from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, LOCAL, Actor, ActorKind, Scope, user_hash
from holdfast.library.erasure.ledger import (
    CarriedLedger,
    carry_ledger,
    carry_secrets,
    ledger_of,
)
from holdfast.library.erasure.mentions import redact_mentions_again
from holdfast.library.erasure.places import (
    erase_linked,
    outside_durable,
    outside_longterm,
    upkeep_context,
)
from holdfast.library.erasure.receipt import canonical, write_private
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.verify_durable import (
    Named,
    NameTombstone,
    NameTombstones,
    StoredTombstone,
    Tombstones,
    changes,
    entries,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_agent, forget_entries_again
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryLocation, by_of
from holdfast.memories.longterm.context import CollectionContext, Shared
from holdfast.memories.longterm.forget import Grave, clear_again, forget_items_again, forget_user
from holdfast.memories.state.thread import ThreadsContext
from holdfast.memories.state.threads import (
    delete_thread_again,
    delete_turn_again,
    thread_hash,
)
from holdfast.memories.stores.rows import StoresContext


class Redaction(Struct, frozen=True, kw_only=True):
    """A redacted version, with the time and actor of the redaction."""

    id: str
    redacted_at: int
    redacted_by_kind: ActorKind
    redacted_by_id: str


class Redone(Struct, kw_only=True):
    """Number of versions redacted, and memories deleted because one was their head."""

    redacted: int = 0
    deleted: tuple[str, ...] = ()


class _Version(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    store_id: str
    memory_id: str
    redacted_at: int | None
    live_memory_id: str | None


class _At(Struct, frozen=True):
    """A clock with a fixed time."""

    at: int

    def now(self) -> datetime:
        """Return the fixed instant."""
        return from_microseconds(self.at)


def redactions(reader: Reader, sql: SimpleNamespace) -> list[Redaction]:
    """Return every redaction, oldest first."""
    return reader.all(Redaction, sql.redacted_versions)


def redact_again(engine: Engine, made: Iterable[Redaction], redone: Redone) -> None:
    """Redact the versions in *made* that *engine* still holds; add to *redone*.

    A head cannot be redacted, so its memory is deleted first, and the path with it.
    """
    sql = engine.queries("holdfast.library.upkeep")
    all_owners = engine.scoped(EVERYBODY)
    ids = Ids()
    for redaction in made:
        version = all_owners.first(_Version, sql.version_anywhere, version=redaction.id)
        if version is None or version.redacted_at is not None:
            continue
        context = StoresContext(
            engine=engine.scoped(Scope(workspace=version.workspace)),
            workspace=version.workspace,
            actor=Actor(redaction.redacted_by_kind, redaction.redacted_by_id),
            clock=_At(redaction.redacted_at),
            ids=ids,
        )
        stores = Holdfast(engine, context).memory_stores
        if version.live_memory_id is not None:
            stores.memories.delete(version.live_memory_id, memory_store_id=version.store_id)
            last = all_owners.one(scalar, sql.last_version_of, memory=version.memory_id)
            stores.memory_versions.redact(last, memory_store_id=version.store_id)
            redone.deleted += (version.memory_id,)
        stores.memory_versions.redact(version.id, memory_store_id=version.store_id)
        redone.redacted += 1


class Revocation(Struct, frozen=True, kw_only=True):
    """A revoked key or session token, with the time of the revocation."""

    id: str
    revoked_at: int


def revocations(reader: Reader, sql: SimpleNamespace) -> list[Revocation]:
    """Return every revocation."""
    return reader.all(Revocation, sql.revoked_credentials)


def revoke_again(engine: Engine, made: Iterable[Revocation]) -> int:
    """Revoke the keys and tokens in *made* that are valid in *engine*.

    Return how many were.
    """
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> int:
        return sum(
            tx.run(statement, id=each.id, revoked_at=each.revoked_at)
            for each in made
            for statement in (sql.revoke_key_again, sql.revoke_token_again)
        )

    return engine.scoped(EVERYBODY).write(work)


class LongTermGrave(Struct, frozen=True, kw_only=True):
    """Tombstone of a forgotten item or turn, with its owner."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    collection_id: str
    id: str
    at: int
    terms: bytes
    fingerprint: bytes | None
    secret: bytes

    @property
    def grave(self) -> Grave:
        """The tombstone without the owner."""
        return Grave(id=self.id, at=self.at, terms=self.terms, fingerprint=self.fingerprint)


class ClearedCollection(Struct, frozen=True, kw_only=True):
    """A cleared collection, with its owner and the number of the clearing."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    collection_id: str
    seq: int


class _Cleared(Struct, frozen=True, kw_only=True):
    collection_id: str
    seq: int


def forget_user_again(engine: Engine, user: Named, clock: Clock) -> None:
    """Forget all data of *user* in *engine*, at the instant of *clock*."""
    name = _CollectionName(workspace=user.workspace, user_id=user.name)
    context = _collection_context(engine, Shared(), name, clock)
    erase_linked(upkeep_context(engine, user.workspace, clock), user.name)
    forget_user(context, outside_longterm(engine, user.workspace, user.name))


def clear_collections_again(engine: Engine, made: Iterable[ClearedCollection]) -> int:
    """Clear collections in *made* that *engine* holds from before their clearing.

    Return how many were cleared.
    """
    sql = engine.queries("holdfast.library.upkeep")
    all_owners, shared, count = engine.scoped(EVERYBODY), Shared(), 0
    found = all_owners.all(_Cleared, sql.collection_clearings)
    known = {each.collection_id: each.seq for each in found}
    for each in made:
        if each.seq > known.get(each.collection_id, each.seq):
            context = _collection_context(engine, shared, each, _At(0))
            count += clear_again(context, each.collection_id, each.seq)
    return count


def forget_rows_again(engine: Engine, graves: Iterable[LongTermGrave]) -> int:
    """Forget the rows of *graves* that *engine* still holds; return how many.

    Rows that it does not hold stay forgotten there too, if both hash with the same secret.
    """
    shared, count = Shared(), 0
    for each in graves:
        context = _collection_context(engine, shared, each, _At(each.at))
        count += forget_items_again(context, each.collection_id, each.grave, secret=each.secret)
    return count


class _CollectionName(Struct, frozen=True, kw_only=True):
    """Name of a collection."""

    workspace: str
    user_id: str
    namespace: str = "chat"
    workspace_id: str = ""


def _collection_context(
    engine: Engine,
    shared: Shared,
    name: _CollectionName | ClearedCollection | LongTermGrave,
    clock: Clock,
) -> CollectionContext:
    return CollectionContext(
        engine=engine.scoped(Scope(workspace=name.workspace, user=name.user_id)),
        workspace=name.workspace,
        user=name.user_id,
        namespace=name.namespace,
        workspace_id=name.workspace_id,
        actor=LOCAL,
        clock=clock,
        ids=Ids(),
        shared=shared,
    )


class RedactedChange(Struct, frozen=True, kw_only=True):
    """A redacted change, with the time of the redaction.

    It is `live` if it is the last of its entry, which a redaction leaves alone.
    """

    workspace: str
    seq: int
    redacted_at: int
    live: int


class ForgottenRecords(Struct, frozen=True, kw_only=True):
    """Erasures and redactions of one database, and the last number of its order."""

    tombstones: tuple[StoredTombstone, ...] = ()
    redacted: tuple[RedactedChange, ...] = ()
    cleared: tuple[ClearedCollection, ...] = ()
    longterm: tuple[LongTermGrave, ...] = ()
    users: tuple[NameTombstone, ...] = ()
    threads: tuple[NameTombstone, ...] = ()
    ledger: CarriedLedger = CarriedLedger()
    seq: int = 0


class Repeated(Struct, frozen=True, kw_only=True):
    """Numbers of erasures that were repeated; `erased` are the people and agents.

    `redacted` counts texts of others in which names of erased people were redacted.
    """

    forgotten: int = 0
    erased: int = 0
    redacted: int = 0

    def __add__(self, other: "Repeated") -> "Repeated":
        return Repeated(
            forgotten=self.forgotten + other.forgotten,
            erased=self.erased + other.erased,
            redacted=self.redacted + other.redacted,
        )


class _Owner(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str


def forgotten_of(reader: Reader, engine: Engine) -> ForgottenRecords:
    """Return all erasures and redactions of a database."""
    sql = engine.queries("holdfast.library.upkeep")
    return ForgottenRecords(
        tombstones=tuple(reader.all(StoredTombstone, sql.tombstones)),
        redacted=tuple(reader.all(RedactedChange, sql.redacted_changes)),
        cleared=tuple(reader.all(ClearedCollection, sql.cleared_collections)),
        longterm=tuple(reader.all(LongTermGrave, sql.longterm_graves)),
        users=tuple(reader.all(NameTombstone, sql.user_tombstones)),
        threads=tuple(reader.all(NameTombstone, sql.thread_tombstones)),
        ledger=ledger_of(reader, engine),
        seq=reader.one(scalar, sql.last_seq),
    )


def forget_all_again(engine: Engine, made: ForgottenRecords) -> Repeated:
    """Repeat the erasures in *made* that apply to *engine*; return how many.

    Data that it does not hold must not return with an older copy either: so the tombstones are
    copied, if both hash with the same secret. Later writes are numbered above them.
    """
    sql = engine.queries("holdfast.library.upkeep")
    all_owners = engine.scoped(EVERYBODY)
    known = {_mark(each) for each in all_owners.all(StoredTombstone, sql.tombstones)}
    new = [each for each in made.tombstones if _mark(each) not in known]
    carry_secrets(engine, made.ledger)
    erased = _forget_agents(engine, sql, Tombstones(new))
    count = _forget_keys(engine, sql, Tombstones(new)) + _forget_redacted(engine, sql, made)

    def work(tx: Transaction) -> None:
        _carry(tx, sql, new)
        for each in made.redacted:
            tx.run(
                sql.redact_change_again,
                of=each.workspace,
                seq=each.seq,
                redacted_at=each.redacted_at,
            )

    all_owners.write(work)
    all_owners.write(lambda tx: tx.all(dict[str, object], sql.raise_seq, seq=made.seq))
    users = _Kind(
        sql.user_tombstones,
        sql.users_with_memory,
        sql.carry_user_tombstone,
        user_hash,
        forget_user_again,
    )
    threads = _Kind(
        sql.thread_tombstones,
        sql.threads_with_rows,
        sql.carry_thread_tombstone,
        thread_hash,
        _delete_thread,
    )
    erased += _forget_names(engine, sql, made.users, users)
    count += clear_collections_again(engine, made.cleared)
    count += forget_rows_again(engine, made.longterm)
    count += _forget_names(engine, sql, made.threads, threads)
    carry_ledger(engine, made.ledger)
    redacted = _redact_names(engine, made.ledger)
    return Repeated(forgotten=count + erased, erased=erased, redacted=redacted)


def _redact_names(engine: Engine, ledger: CarriedLedger) -> int:
    """Redact the names of erased people in texts of others; return how many changed."""
    clock, count = SystemClock(), 0
    for each in ledger.erasures:
        if each.redacted:
            context = upkeep_context(engine, each.workspace, clock)
            count += redact_mentions_again(
                context, each.secret, each.redacted, at=each.at, seq=each.seq
            )
    return count


def _forget_agents(engine: Engine, sql: SimpleNamespace, buried: Tombstones) -> int:
    count = 0
    for owner in engine.scoped(EVERYBODY).all(_Owner, sql.agents_with_memory):
        grave = buried.over_agent(owner.workspace, owner.agent, 0)
        if grave is not None:
            context = _agent_context(engine, grave)
            also = outside_durable(context.engine, owner.workspace, owner.agent)
            forget_agent(context, owner.agent, also)
            count += 1
    return count


def _forget_keys(engine: Engine, sql: SimpleNamespace, buried: Tombstones) -> int:
    found: dict[tuple[EntryLocation, str], StoredTombstone] = {}

    def look(reader: Reader) -> None:
        for rows in (entries(reader, sql), changes(reader, sql)):
            for row in rows:
                grave = buried.over(row)
                if grave is not None and row.key is not None:
                    found[EntryLocation(grave.agent, grave.run_id), row.key] = grave

    engine.scoped(EVERYBODY).read(look)
    for (place, key), grave in found.items():
        forget_entries_again(_agent_context(engine, grave), place, key, before=grave.seq)
    return len(found)


def _forget_redacted(engine: Engine, sql: SimpleNamespace, made: ForgottenRecords) -> int:
    """Forget entries of *engine* that hold contents which were redacted since.

    Those that no entry of the other database has any more must not return as one.
    """
    redacted = {(each.workspace, each.seq): each for each in made.redacted if not each.live}
    if not redacted:
        return 0
    all_owners = engine.scoped(EVERYBODY)
    heads = all_owners.read(
        lambda reader: [e for e in entries(reader, sql) if (e.workspace, e.seq) in redacted]
    )
    for each in heads:
        context = AgentContext(
            engine=engine.scoped(Scope(workspace=each.workspace, agent=each.agent or "*")),
            workspace=each.workspace,
            agent=each.agent,
            actor=LOCAL,
            clock=_At(redacted[each.workspace, each.seq].redacted_at),
            ids=Ids(),
        )
        place = EntryLocation(each.agent, each.run_id)
        forget_entries_again(context, place, each.key, before=each.seq + 1)
    return len(heads)


class _Kind(Struct, frozen=True):
    """Statements and functions for the tombstones of users, or of threads."""

    tombstones: LiteralString
    names: LiteralString
    carry: LiteralString
    hashed: Callable[[bytes, str], bytes]
    forget: Callable[[Engine, Named, Clock], None]


def _forget_names(
    engine: Engine, sql: SimpleNamespace, made: Iterable[NameTombstone], kind: _Kind
) -> int:
    """Forget the names in *made* that *engine* holds; copy unknown tombstones."""
    all_owners = engine.scoped(EVERYBODY)
    found = NameTombstones(made, kind.hashed)
    new = found.newer(all_owners.all(NameTombstone, kind.tombstones))
    if not new:
        return 0
    buried, count = NameTombstones(new, kind.hashed), 0
    for each in all_owners.all(Named, kind.names):
        tombstone = buried.over(each.workspace, each.name)
        if tombstone is not None:
            kind.forget(engine, each, _At(tombstone.at))
            count += 1

    def carry(tx: Transaction) -> None:
        for each in new:
            tx.run(sql.carry_tombstone_secret, of=each.workspace, secret=each.secret)
            ours = tx.one(scalar, sql.tombstone_secret, of=each.workspace)
            if ours == each.secret:
                tx.run(
                    kind.carry,
                    of=each.workspace,
                    name_hash=each.name_hash,
                    seq=each.seq,
                    at=each.at,
                )

    all_owners.write(carry)
    return count


def _delete_thread(engine: Engine, thread: Named, clock: Clock) -> None:
    context = ThreadsContext(
        engine=engine.scoped(Scope(workspace=thread.workspace)),
        workspace=thread.workspace,
        clock=clock,
        demand=lambda _: None,
    )
    name, _, turn = thread.name.partition("/")
    if turn:
        delete_turn_again(context, name, turn)
    else:
        delete_thread_again(context, name)


def _carry(tx: Transaction, sql: SimpleNamespace, new: list[StoredTombstone]) -> None:
    for each in new:
        tx.run(sql.carry_secret, of=each.workspace, secret=each.secret)
        ours = tx.one(scalar, sql.secret_of_workspace, of=each.workspace)
        if ours == each.secret:
            tx.run(
                sql.carry_tombstone,
                of=each.workspace,
                owner=each.agent,
                run=each.run_id,
                key_hash=each.key_hash,
                seq=each.seq,
                at=each.at,
                actor=each.actor,
            )


_mark: Final = attrgetter("workspace", "agent", "run_id", "key_hash", "seq")


def _agent_context(engine: Engine, grave: StoredTombstone) -> AgentContext:
    """Return a context with the actor and time of *grave*."""
    return AgentContext(
        engine=engine.scoped(Scope(workspace=grave.workspace, agent=grave.agent)),
        workspace=grave.workspace,
        agent=grave.agent,
        actor=by_of(grave.actor).actor,
        clock=_At(grave.at),
        ids=Ids(),
    )


# Ledger file of erasures, for a restore into an empty database. It holds the keys of the hashes,
# so that names can be tested with it.

LEDGER_TYPE: Final = "erasure_ledger"
LEDGER_VERSION: Final = 1


class LedgerFile(Struct, frozen=True, kw_only=True):
    """The content of a ledger file."""

    type: str
    version: int
    made: ForgottenRecords


def write_ledger(engine: Engine, path: str | Path) -> None:
    """Write the erasures of people and agents of all workspaces to a new file.

    Raises InvalidInput if *path* exists.
    """
    all_owners = engine.scoped(EVERYBODY)
    found = all_owners.read(lambda reader: forgotten_of(reader, engine))
    agents = [each for each in found.tombstones if (each.agent, each.run_id) == (SHARED, NO_RUN)]
    made = ForgottenRecords(
        tombstones=tuple(agents),
        users=found.users,
        ledger=replace(found.ledger, backups=()),
        seq=found.seq,
    )
    wire: dict[str, Any] = {
        "type": LEDGER_TYPE,
        "version": LEDGER_VERSION,
        "made": msgspec.to_builtins(made),
    }
    write_private("ledger", path, canonical(wire))


def read_ledger(path: str | Path) -> ForgottenRecords:
    """Return the erasures in the ledger file *path*; InvalidInput if it is none."""
    try:
        body = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput("erasures", "cannot be read", given=str(path)) from error
    try:
        found = msgspec.json.decode(body, type=LedgerFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput("erasures", "is no ledger file", given=str(path)) from error
    if (found.type, found.version) != (LEDGER_TYPE, LEDGER_VERSION):
        raise UnknownFormat(
            "erasures",
            format=found.type,
            version=found.version,
            known=f"{LEDGER_TYPE}, version {LEDGER_VERSION}",
            next="Make one with holdfast forget --ledger, or upgrade holdfast.",
        )
    return found.made
