"""How the engine is, in words and numbers."""

from time import monotonic

from holdfast.engines.base import EngineStatus
from holdfast.engines.postgres.preamble import APP_ROLE
from holdfast.engines.postgres.protocol import Lost
from holdfast.engines.postgres.server import PostgresServer
from holdfast.ground.errors import Unavailable

_PATIENCE = 2.0


def status_of(server: PostgresServer) -> EngineStatus:
    """Return how *server* is; it is asked whether it answers."""
    reason = _ailment(server)
    found, pool = server.found, server.pool
    return EngineStatus(
        dialect="postgres",
        target=server.target.shown,
        ready=reason is None,
        reason=reason,
        schema=found.schema,
        details={
            "postgres": found.version,
            "synchronous_commit": found.durability,
            "runs_as": APP_ROLE if found.as_app else "login",
            "prepare": server.target.prepare,
            "pool": server.target.most,
        },
        metrics={
            **server.tally.flat(),
            "queue": len(server.lane) + pool.waiting,
            "readers": len(pool),
            "wal_bytes": 0,
            "pool_in_use": pool.in_use,
            "erasure_pending": int(server.erasure.pending),
        },
    )


def _ailment(server: PostgresServer) -> str | None:
    try:
        wire = server.pool.take(monotonic() + _PATIENCE)
    except Unavailable as error:
        return error.reason
    try:
        wire.exchange((), patience=_PATIENCE)
    except Lost:
        return "lost"
    finally:
        server.pool.give(wire)
    return None
