"""Whether a write was committed, when the connection broke while its commit was under way."""

from time import monotonic, sleep

import msgspec

from holdfast.engines.postgres.faults import lost
from holdfast.engines.postgres.protocol import BoundStatement, Lost, Wire, asked
from holdfast.engines.postgres.server import PostgresServer
from holdfast.engines.postgres.transaction import PostgresTransaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import Unavailable

STARTED = """
select cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint) as started
"""

# A crashing server may not have written down which transaction numbers it had given out, and
# gives them out again: only the transaction's own change, with its own ids, proves that it was
# the one we mean. One that noted nothing is believed as long as the server did not restart.
_CHANGE = """
select 1 as there from changes
where seq = %(seq)s and xid = cast(%(xid)s as xid8) and type = %(type)s and at = %(at)s
    and ids = cast(%(ids)s as jsonb)
"""
_STATUS = """
select pg_xact_status(cast(%(xid)s as xid8)) as status,
    cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint) as started
"""
_FUTURE = "22023"
_STEP = 0.05


def settled(
    server: PostgresServer, looking: BoundStatement, tx: PostgresTransaction, deadline: float
) -> bool:
    """Return whether *tx* was committed; Unavailable, `written` None, when nobody can tell."""
    if tx.xid is None:
        raise lost(written=None)
    questions = (looking, asked(_STATUS, {"xid": str(tx.xid)}), *_proof(tx))
    while True:
        try:
            wire = server.pool.take(deadline)
        except Unavailable as error:
            if error.reason != "closed" and monotonic() < deadline:
                continue
            raise lost(written=None) from error
        try:
            answer = _ask(server, wire, questions)
        finally:
            server.pool.give(wire)
        if answer is not None:
            return answer
        if monotonic() + _STEP >= deadline:
            raise lost(written=None)
        sleep(_STEP)


def _proof(tx: PostgresTransaction) -> tuple[BoundStatement, ...]:
    if not tx.noted:
        return ()
    event = tx.noted[0]
    row = {
        "seq": event.seq,
        "xid": str(tx.xid),
        "type": event.type,
        "at": to_microseconds(event.at),
        "ids": msgspec.json.encode(event.ids).decode(),
    }
    return (asked(_CHANGE, row),)


def _ask(server: PostgresServer, wire: Wire, questions: tuple[BoundStatement, ...]) -> bool | None:
    """Return whether it was committed, or None while it is under way."""
    try:
        answers = wire.exchange(questions)
    except Lost:
        return None
    if (failure := answers.failure()) is not None:
        _, error = failure
        if error.sqlstate == _FUTURE:
            return False
        raise lost(written=None) from error
    _, status_row, *proof = answers.results
    found = [] if status_row is None else wire.rows(questions[1], status_row, dict[str, object])
    status = found[0]["status"] if found else None
    if status == "in progress":
        return None
    if proof and proof[0] is not None:
        return proof[0].ntuples > 0
    believed = found and found[0]["started"] == server.found.started
    if status == "aborted" or (status == "committed" and believed):
        return status == "committed"
    raise lost(written=None)
