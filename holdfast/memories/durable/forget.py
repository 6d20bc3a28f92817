"""Erase entries and agents."""

from collections.abc import Callable, Sequence
from typing import Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, RunRequired
from holdfast.ground.scope import Actor
from holdfast.ground.text import first_of_category, within
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


def forget(
    caller: AgentContext,
    key: str,
    scope: EntryScope | None = None,
    *,
    idempotency_key: str | None = None,
) -> bool:
    """Forget *key*, and tell whether there was anything to forget.

    From the run's and the agent's own scope; if there is nothing, from the workspace. *scope*
    picks one. When this returns True the bytes are in no file of the database, unless a reader
    pins what was before: then that is seen to once it has ended.
    """
    with refusals(caller):
        checked_key(key)
        if scope is not None and scope not in get_args(EntryScope):
            raise InvalidInput("scope", "must be agent, workspace or run", given=scope)
        if scope == "run" and caller.run is None:
            raise RunRequired
        replay = Replay.of(idempotency_key, "forget", key, scope)

    def work(tx: Transaction) -> _Done:
        book, gone = _opened(caller, tx, key, scope)
        first = None if replay is None else replay.answer(book, bool)
        if first is not None:
            return _Done(forgotten=first)
        forget_rows(book, gone)
        traces = not gone and _forget_traces(book, key, scope)
        if replay is not None:
            replay.keep(book, bool(gone))
        book.close()
        return _Done(forgotten=bool(gone), erased=bool(gone) or traces)

    done = write(caller, work)
    if done.erased:
        caller.engine.scrub()
    return done.forgotten


class _Done(Struct, frozen=True, kw_only=True):
    forgotten: bool
    erased: bool = False


def forget_rows(book: AgentTransaction, rows: Sequence[EntryRow]) -> None:
    """Take *rows* of the book away, and all that the log says of their keys; tombstones stay."""
    for row in rows:
        hashed = key_hash(secret_of(book), row.key)
        seq = book.take(row, "forget", key_hash=hashed)
        _erase(book, row.agent, row.key, hashed)
        if not row.agent and book.at(EntryLocation(book.caller.agent), row.key) is None:
            # What the agent itself had under the key before it was the workspace's.
            _erase(book, book.caller.agent, row.key, hashed)
        book.tx.send(
            book.sql.bury,
            owner=row.agent,
            run=row.run_id,
            key_hash=hashed,
            seq=seq,
            now=book.now,
            actor=book.by,
        )
        book.tx.send(book.sql.set_forgot_seq, owner=row.agent, seq=seq)
    if rows:
        book.note("forgotten", entries=len(rows))
        book.count("forgotten_total", by=len(rows))


def forget_entries_again(
    caller: AgentContext, place: EntryLocation, key: str, *, before: int
) -> None:
    """Forget what *place* has under *key* from before the number *before*, and its traces.

    For a copy that does not know that it was forgotten. Whoever calls this scrubs.
    """

    def work(tx: Transaction) -> None:
        book = AgentTransaction(caller, tx)
        book.open([key], shared=place.owner == SHARED)
        rows = tx.all(
            EntryRow, book.sql.entry_before, owner=place.owner, run=place.run, key=key, seq=before
        )
        for row in rows:
            book.pending.found(row)
        forget_rows(book, rows)
        if not rows:
            _erase(book, place.owner, key, key_hash(secret_of(book), key))
        book.close()

    caller.engine.write(work)


def _opened(
    caller: AgentContext, tx: Transaction, key: str, scope: EntryScope | None
) -> tuple[AgentTransaction, list[EntryRow]]:
    """Return the book open at *key*, and what is to go; the workspace locked only if it loses."""
    book = AgentTransaction(caller, tx)
    # An agent that never had anything is made by what it writes, and not by asking in vain.
    if book.open([key], making=caller.run is not None):
        gone = _chosen(book, key, scope)
        if all(row.agent != SHARED for row in gone):
            return book, gone
    elif scope == "agent" or not tx.rows(book.sql.get_entries, key=key):
        return book, []
    book = AgentTransaction(caller, tx)
    book.open([key], shared=True)
    return book, _chosen(book, key, scope)


def _chosen(book: AgentTransaction, key: str, scope: EntryScope | None) -> list[EntryRow]:
    found = [row for place in book.caller.places if (row := book.at(place, key)) is not None]
    if scope is not None:
        return [row for row in found if row.scope == scope]
    own = [row for row in found if row.agent != SHARED]
    return own or found


def _forget_traces(book: AgentTransaction, key: str, scope: EntryScope | None) -> bool:
    """Take *key*, of which no entry is left, out of the log; tell whether it was there."""
    owners = (SHARED,) if scope == "workspace" else (book.caller.agent,)
    if scope is None:
        owners = (*owners, SHARED)
    left = [
        owner for owner in owners if book.tx.first(_Trace, book.sql.trace, owner=owner, key=key)
    ]
    for owner in left:
        _erase(book, owner, key, key_hash(secret_of(book), key))
    return bool(left)


def _erase(book: AgentTransaction, owner: str, key: str, hashed: bytes) -> None:
    book.tx.send(book.sql.forget_changes, owner=owner, key=key, key_hash=hashed)
    book.tx.send(book.sql.forget_causes, owner=owner, key=key)
    book.tx.send(book.sql.trim_forgotten, owner=owner, key_hash=hashed)


class _Trace(Struct, frozen=True):
    seq: int


MOST_NAME: Final = 512
"""Characters of a name: networks have agents whose names durable memory would not take."""

FORGOTTEN: Final = Actor.agent("forgotten")
"""Whom the workspace's entries are by, where that was an agent that was forgotten."""


class _There(Struct, frozen=True, kw_only=True):
    agents: int


def forget_agent(
    caller: AgentContext, agent: str, also: Callable[[Transaction], dict[str, int]]
) -> dict[str, int]:
    """Forget *agent*; return how many rows went, or lost its name, by table.

    *caller* is of no agent, with an engine scoped to all of the workspace's. *also* forgets what
    other memories have of it, and counts that. Only a keyed hash of the name stays, with a
    number. Whoever calls this scrubs.
    """
    with refusals(caller):
        _checked(agent)

    def work(tx: Transaction) -> dict[str, int]:
        behalf = OnBehalf(tx, workspace=caller.workspace, agent=agent)
        book = AgentTransaction(replace(caller, agent=agent), behalf)
        there = behalf.one(_There, book.sql.count_agent).agents
        book.open(shared=True)
        behalf.run(book.sql.forget_agents)
        counts = _forgotten(behalf, book, agent) | {"durable_agents": there} | also(behalf)
        if any(counts.values()):
            behalf.send(
                book.sql.bury,
                owner=SHARED,
                run=NO_RUN,
                key_hash=agent_hash(secret_of(book), agent),
                seq=tx.seq,
                now=book.now,
                actor=by_text(caller.by),
            )
            tx.note(event_of(caller, "forgotten", {"agents": 1}, at=book.now))
        return counts

    return write(caller, work)


def _checked(agent: str) -> None:
    """Raise InvalidInput for what names no agent, here or elsewhere, or stands for all of them."""
    within("agent", agent, least=1, most=MOST_NAME)
    if agent == "*" or first_of_category(agent, "Cc") is not None:
        raise InvalidInput("agent", "must name an agent", given=agent)


def _forgotten(tx: OnBehalf, book: AgentTransaction, agent: str) -> dict[str, int]:
    sql = book.sql
    # As it begins wherever it is stored: neither kind nor name needs an escape.
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
