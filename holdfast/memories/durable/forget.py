"""Erase entries and agents."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import BatchedWork, Transaction, scalar
from holdfast.ground.errors import InvalidInput, RunRequired
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import Actor
from holdfast.ground.text import first_of_category
from holdfast.ground.validation import check_one_of, check_text
from holdfast.memories.durable.context import AgentContext, OnBehalf
from holdfast.memories.durable.idempotency import Replay
from holdfast.memories.durable.records import By, EntryScope, agent_hash, key_hash
from holdfast.memories.durable.rows import NO_RUN, SHARED, EntryLocation, EntryRow, by_text
from holdfast.memories.durable.transaction import (
    AgentTransaction,
    event_of,
    refusals,
    secret_of,
    write,
)
from holdfast.memories.durable.validation import checked_key

_FORGOTTEN: Final = REGISTRY.counter("durable_forgotten_total", "Entries forgotten.")


class _Done(Struct, frozen=True, kw_only=True):
    forgotten: bool
    erased: bool = False


def forget(context: AgentContext, key: str, scope: EntryScope | None = None) -> bool:
    """Forget *key*; return whether an entry was deleted.

    Deletes from the run's and the agent's own scope; if neither has the key, from the workspace.
    *scope* picks one. When this returns True the bytes are in no file of the database, unless a
    reader pins an earlier snapshot: then they are erased once it has ended.
    """
    with refusals(context):
        checked_key(key)
        if scope is not None:
            check_one_of("scope", scope, get_args(EntryScope), "must be agent, workspace or run")
        if scope == "run" and context.run is None:
            raise RunRequired
        replay = Replay(context.idempotency_key, "forget", key, scope)

    def work(tx: Transaction) -> _Done:
        unit, gone = _opened(context, tx, key, scope)
        first = replay.answer(unit, bool)
        if first is not None:
            return _Done(forgotten=first)
        done = _forget(unit, key, scope, gone)
        replay.keep(unit, bool(gone))
        unit.close()
        return done

    if replay or scope == "workspace":
        done = write(context, work)
    else:
        kin = context.kin("forget")
        item: tuple[str, EntryScope | None] = (key, scope)
        done = write(context, BatchedWork(kin, item, partial(_forget_each, context)))
    if done.erased:
        context.engine.scrub()
    return done.forgotten


def _forget_each(
    context: AgentContext, tx: Transaction, items: Sequence[tuple[str, EntryScope | None]]
) -> list[_Done | Exception]:
    """Forget each of *items*, a key and a scope, without an idempotency key."""
    if len(items) == 1:
        [(key, scope)] = items
        unit, gone = _opened(context, tx, key, scope)
        results: list[_Done | Exception] = [_forget(unit, key, scope, gone)]
    else:
        unit = AgentTransaction(context, tx)
        keys = sorted({key for key, _ in items})
        known = unit.open(keys, mutations=len(items), making=context.run is not None)
        if not known or any(row.agent == SHARED for item in items for row in _chosen(unit, *item)):
            raise _NotAlone
        results = [_forget(unit, *item, _chosen(unit, *item)) for item in items]
    unit.close()
    return results


class _NotAlone(Exception):
    """The agent has no row, or an entry of the workspace is to go."""


def _forget(
    unit: AgentTransaction, key: str, scope: EntryScope | None, gone: Sequence[EntryRow]
) -> _Done:
    forget_rows(unit, gone)
    traces = not gone and _forget_traces(unit, key, scope)
    return _Done(forgotten=bool(gone), erased=bool(gone) or traces)


def forget_rows(unit: AgentTransaction, rows: Sequence[EntryRow]) -> None:
    """Delete *rows*, and all that the log has about their keys.

    Tombstones stay. *rows* were read in *unit*.
    """
    for row in rows:
        hashed = key_hash(secret_of(unit), row.key)
        seq = unit.take(row, "forget", key_hash=hashed)
        _erase(unit, row.agent, row.key, hashed)
        if not row.agent and unit.at(EntryLocation(unit.context.agent), row.key) is None:
            # The log of the agent's own entry, from before the key moved to the workspace.
            _erase(unit, unit.context.agent, row.key, hashed)
        unit.tx.send(
            unit.sql.bury,
            owner=row.agent,
            run=row.run_id,
            key_hash=hashed,
            seq=seq,
            now=unit.now,
            actor=unit.by,
        )
        unit.tx.send(unit.sql.set_forgot_seq, owner=row.agent, seq=seq)
    if rows:
        unit.note("forgotten", entries=len(rows))
        unit.count(_FORGOTTEN, by=len(rows))


def forget_entries_again(
    context: AgentContext, place: EntryLocation, key: str, *, before: int
) -> None:
    """Forget entries under *key* at *place* with a `seq` below *before*.

    Traces in the log go too. For a restored copy of the database that does not know of the
    deletion. The caller of this function scrubs the files.
    """

    def work(tx: Transaction) -> None:
        unit = AgentTransaction(context, tx)
        unit.open([key], shared=place.owner == SHARED)
        rows = tx.all(
            EntryRow, unit.sql.entry_before, owner=place.owner, run=place.run, key=key, seq=before
        )
        for row in rows:
            unit.pending.found(row)
        forget_rows(unit, rows)
        if not rows:
            _erase(unit, place.owner, key, key_hash(secret_of(unit), key))
        unit.close()

    context.engine.write(work)


def _opened(
    context: AgentContext, tx: Transaction, key: str, scope: EntryScope | None
) -> tuple[AgentTransaction, list[EntryRow]]:
    """Return the unit of work opened at *key*, and the rows to delete.

    The workspace is locked only if one of its entries is to go.
    """
    unit = AgentTransaction(context, tx)
    # A write creates the agent's row; a request for an unknown key does not.
    if unit.open([key], making=context.run is not None):
        gone = _chosen(unit, key, scope)
        if all(row.agent != SHARED for row in gone):
            return unit, gone
    elif scope == "agent" or not tx.rows(unit.sql.get_entries, key=key):
        return unit, []
    unit = AgentTransaction(context, tx)
    unit.open([key], shared=True)
    return unit, _chosen(unit, key, scope)


def _chosen(unit: AgentTransaction, key: str, scope: EntryScope | None) -> list[EntryRow]:
    found = [row for place in unit.context.places if (row := unit.at(place, key)) is not None]
    if scope is not None:
        return [row for row in found if row.scope == scope]
    own = [row for row in found if row.agent != SHARED]
    return own or found


def _forget_traces(unit: AgentTransaction, key: str, scope: EntryScope | None) -> bool:
    """Delete *key*, which has no entry, from the log.

    Returns whether the log had it.
    """
    owners = (SHARED,) if scope == "workspace" else (unit.context.agent,)
    if scope is None:
        owners = (*owners, SHARED)
    left = [
        owner for owner in owners if unit.tx.first(scalar, unit.sql.trace, owner=owner, key=key)
    ]
    for owner in left:
        _erase(unit, owner, key, key_hash(secret_of(unit), key))
    return bool(left)


def _erase(unit: AgentTransaction, owner: str, key: str, hashed: bytes) -> None:
    unit.tx.send(unit.sql.forget_changes, owner=owner, key=key, key_hash=hashed)
    unit.tx.send(unit.sql.forget_causes, owner=owner, key=key)
    unit.tx.send(unit.sql.trim_forgotten, owner=owner, key_hash=hashed)
    forget_proposals(unit, owner, key)


def forget_proposals(unit: AgentTransaction, owner: str, key: str, *, having: str = "") -> None:
    """Delete what consolidations of *owner* have of *key*.

    That are proposed changes that have the text *having*, and all calls to a model.
    """
    needle = msgspec.json.encode(key).decode()
    unit.tx.send(unit.sql.blank_changes, owner=owner, needle=needle, having=having)
    unit.tx.send(unit.sql.drop_consolidation_calls, owner=owner)


MOST_NAME: Final = 512
"""Characters of a name. Networks accept agent names that durable memory refuses."""

FORGOTTEN: Final = Actor.agent("forgotten")
"""Author of workspace entries after their agent was forgotten."""


def forget_agent(
    context: AgentContext,
    agent: str,
    also: Callable[[Transaction], dict[str, int]],
    done: Callable[[Transaction, dict[str, int]], None] | None = None,
) -> dict[str, int]:
    """Forget *agent*; return how many rows were deleted or anonymised, by table.

    *context* is of no agent, with an engine scoped to the whole workspace. *also* deletes what
    other memories have about the agent, and returns its own counts; *done* records all. Only a
    keyed hash of the name stays, with a number. The caller of this function scrubs the files.
    """
    with refusals(context):
        checked_agent(agent)

    def work(tx: Transaction) -> dict[str, int]:
        behalf = OnBehalf(tx, workspace=context.workspace, agent=agent)
        unit = AgentTransaction(replace(context, agent=agent), behalf)
        there = behalf.one(scalar, unit.sql.count_agent)
        unit.open(shared=True)
        behalf.run(unit.sql.forget_agents)
        counts = _forgotten(behalf, unit, agent) | {"durable_agents": there} | also(behalf)
        if any(counts.values()) or done is not None:
            behalf.send(
                unit.sql.bury,
                owner=SHARED,
                run=NO_RUN,
                key_hash=agent_hash(secret_of(unit), agent),
                seq=tx.seq,
                now=unit.now,
                actor=by_text(context.by),
            )
        if any(counts.values()):
            tx.note(event_of(context, "forgotten", {"agents": 1}, at=unit.now))
        if done is not None:
            done(behalf, counts)
        return counts

    return write(context, work)


def checked_agent(agent: str) -> None:
    """Raise InvalidInput unless *agent* can name one agent that is to be forgotten.

    Names that other memories accept are valid here; `*`, which means all agents, is not.
    """
    check_text("agent", agent, least=1, most=MOST_NAME)
    if agent == "*" or first_of_category(agent, "Cc") is not None:
        raise InvalidInput("agent", "must name an agent", given=agent)


def _forgotten(tx: OnBehalf, unit: AgentTransaction, agent: str) -> dict[str, int]:
    sql = unit.sql
    # The start of each stored actor with this name: JSON needs no escape in kind or name.
    prefix = msgspec.json.encode(["agent", agent]).decode().removesuffix("]") + ","
    signed = {
        "prefix": prefix,
        "length": len(prefix),
        "nobody": by_text(By(actor=FORGOTTEN)),
    }
    return {
        "durable_entries": tx.run(sql.forget_entries) + tx.run(sql.unsign_entries, **signed),
        "durable_changes": tx.run(sql.forget_log) + tx.run(sql.unsign_changes, **signed),
        "durable_tombstones": tx.run(sql.forget_tombstones)
        + tx.run(sql.unsign_tombstones, **signed),
        "durable_runs": tx.run(sql.forget_runs),
        "durable_lanes": tx.run(sql.forget_lanes),
        "durable_limits": tx.run(sql.forget_limits),
        "durable_replays": tx.run(sql.forget_replays),
        "changes": tx.run(sql.forget_feed),
    }
