"""Forgetting a whole agent: all that it has, and its name wherever it is written."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import Actor
from holdfast.ground.text import first_of_category, within
from holdfast.memories.durable.context import AgentContext, OnBehalf
from holdfast.memories.durable.records import By, agent_hash
from holdfast.memories.durable.rows import NO_RUN, SHARED, by_text
from holdfast.memories.durable.transaction import (
    AgentTransaction,
    event_of,
    refusals,
    secret_of,
    write,
)

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
