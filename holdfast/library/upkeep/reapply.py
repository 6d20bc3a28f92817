"""What a database forgot, forgotten once more in one that does not know of it."""

from collections.abc import Callable, Iterable
from datetime import datetime
from types import SimpleNamespace
from typing import LiteralString

from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.clock import Clock, from_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.library.forgetting import elsewhere
from holdfast.library.upkeep.forgotten_longterm import (
    ClearedCollection,
    LongTermGrave,
    clear_collections_again,
    forget_rows_again,
    forget_user_again,
)
from holdfast.library.upkeep.tombstones import Named, NameTombstone, NameTombstones
from holdfast.library.upkeep.verify_durable import StoredTombstone, Tombstones, changes, entries
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget_agent, forget_entries_again
from holdfast.memories.durable.rows import EntryLocation, by_of
from holdfast.memories.longterm.records import user_hash
from holdfast.memories.state.thread import ThreadsContext as ThreadCaller
from holdfast.memories.state.thread_store import delete_thread_again, thread_hash


class RedactedChange(Struct, frozen=True, kw_only=True):
    """A change whose content was redacted, and when."""

    workspace: str
    seq: int
    redacted_at: int


class ForgottenRecords(Struct, frozen=True, kw_only=True):
    """What one database forgot and redacted, and the last number of its order."""

    tombstones: tuple[StoredTombstone, ...] = ()
    redacted: tuple[RedactedChange, ...] = ()
    cleared: tuple[ClearedCollection, ...] = ()
    longterm: tuple[LongTermGrave, ...] = ()
    users: tuple[NameTombstone, ...] = ()
    threads: tuple[NameTombstone, ...] = ()
    seq: int = 0


class _Secret(Struct, frozen=True):
    secret: bytes


class _Owner(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str


class _At(Struct, frozen=True):
    """A clock that stands still."""

    at: int

    def now(self) -> datetime:
        """Return its one instant."""
        return from_microseconds(self.at)


def forgotten_of(reader: Reader, sql: SimpleNamespace) -> ForgottenRecords:
    """Return all that there is."""
    return ForgottenRecords(
        tombstones=tuple(reader.all(StoredTombstone, sql.tombstones)),
        redacted=tuple(reader.all(RedactedChange, sql.redacted_changes)),
        cleared=tuple(reader.all(ClearedCollection, sql.cleared_collections)),
        longterm=tuple(reader.all(LongTermGrave, sql.longterm_graves)),
        users=tuple(reader.all(NameTombstone, sql.user_tombstones)),
        threads=tuple(reader.all(NameTombstone, sql.thread_tombstones)),
        seq=reader.one(_seq, sql.last_seq),
    )


def forget_all_again(engine: Engine, made: ForgottenRecords) -> int:
    """Forget in *engine* what *made* names and it still holds; return how much.

    What it does not hold shall not come back with an older copy either: so the tombstones are
    carried over, where both hash with one secret. What is written later is numbered above them.
    """
    sql = engine.queries("holdfast.library.upkeep")
    everybody = engine.scoped(EVERYBODY)
    known = {_mark(each) for each in everybody.all(StoredTombstone, sql.tombstones)}
    new = [each for each in made.tombstones if _mark(each) not in known]
    count = _forget_agents(engine, sql, Tombstones(new)) + _forget_keys(
        engine, sql, Tombstones(new)
    )

    def work(tx: Transaction) -> None:
        _carry(tx, sql, new)
        for each in made.redacted:
            tx.run(
                sql.redact_change_again,
                of=each.workspace,
                seq=each.seq,
                redacted_at=each.redacted_at,
            )

    everybody.write(work)
    everybody.write(lambda tx: tx.all(dict[str, object], sql.raise_seq, seq=made.seq))
    count += _forget_names(engine, sql, made.users, _users(sql))
    count += clear_collections_again(engine, made.cleared)
    count += forget_rows_again(engine, made.longterm)
    return count + _forget_names(engine, sql, made.threads, _threads(sql))


def _forget_agents(engine: Engine, sql: SimpleNamespace, buried: Tombstones) -> int:
    count = 0
    for owner in engine.scoped(EVERYBODY).all(_Owner, sql.agents_with_memory):
        grave = buried.over_agent(owner.workspace, owner.agent, 0)
        if grave is not None:
            caller = _agent_context(engine, grave)
            also = elsewhere(caller.engine, owner.workspace, owner.agent)
            forget_agent(caller, owner.agent, also)
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


class _Kind(Struct, frozen=True, kw_only=True):
    """How users, or threads, are found, forgotten and carried over."""

    tombstones: LiteralString
    names: LiteralString
    carry: LiteralString
    hashed: Callable[[bytes, str], bytes]
    forget: Callable[[Engine, Named, Clock], None]


def _users(sql: SimpleNamespace) -> _Kind:
    return _Kind(
        tombstones=sql.user_tombstones,
        names=sql.users_with_memory,
        carry=sql.carry_user_tombstone,
        hashed=user_hash,
        forget=forget_user_again,
    )


def _threads(sql: SimpleNamespace) -> _Kind:
    return _Kind(
        tombstones=sql.thread_tombstones,
        names=sql.threads_with_rows,
        carry=sql.carry_thread_tombstone,
        hashed=thread_hash,
        forget=_delete_thread,
    )


def _forget_names(
    engine: Engine, sql: SimpleNamespace, made: Iterable[NameTombstone], kind: _Kind
) -> int:
    """Forget what *made* names and *engine* still holds; carry over what it does not know of."""
    everybody = engine.scoped(EVERYBODY)
    found = NameTombstones(made, kind.hashed)
    new = found.newer(everybody.all(NameTombstone, kind.tombstones))
    buried, count = NameTombstones(new, kind.hashed), 0
    for each in everybody.all(Named, kind.names):
        tombstone = buried.over(each.workspace, each.name)
        if tombstone is not None:
            kind.forget(engine, each, _At(tombstone.at))
            count += 1

    def carry(tx: Transaction) -> None:
        for each in new:
            tx.run(sql.carry_tombstone_secret, of=each.workspace, secret=each.secret)
            ours = tx.one(_Secret, sql.tombstone_secret, of=each.workspace)
            if ours.secret == each.secret:
                tx.run(
                    kind.carry,
                    of=each.workspace,
                    name_hash=each.name_hash,
                    seq=each.seq,
                    at=each.at,
                )

    everybody.write(carry)
    return count


def _delete_thread(engine: Engine, thread: Named, clock: Clock) -> None:
    caller = ThreadCaller(
        engine=engine.scoped(Scope(workspace=thread.workspace)),
        workspace=thread.workspace,
        clock=clock,
        demand=lambda _: None,
    )
    delete_thread_again(caller, thread.name)


def _seq(*, seq: int) -> int:
    return seq


def _carry(tx: Transaction, sql: SimpleNamespace, new: list[StoredTombstone]) -> None:
    for each in new:
        tx.run(sql.carry_secret, of=each.workspace, secret=each.secret)
        ours = tx.one(_Secret, sql.secret_of_workspace, of=each.workspace)
        if ours.secret == each.secret:
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


def _mark(tombstone: StoredTombstone) -> tuple[str, str, str, bytes, int]:
    return (
        tombstone.workspace,
        tombstone.agent,
        tombstone.run_id,
        tombstone.key_hash,
        tombstone.seq,
    )


def _agent_context(engine: Engine, grave: StoredTombstone) -> AgentContext:
    """Return who forgets as who dug *grave* did, and then."""
    return AgentContext(
        engine=engine.scoped(Scope(workspace=grave.workspace, agent=grave.agent)),
        workspace=grave.workspace,
        agent=grave.agent,
        actor=by_of(grave.actor).actor,
        clock=_At(grave.at),
        ids=Ids(),
    )
