"""Open a target: a database or a server."""

from pathlib import Path

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Actor, Scope, checked_actor, checked_name
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import HandleTarget
from holdfast.memories.longterm.cache_budget import CACHE_BYTES
from holdfast.memories.stores.rows import StoresContext


def open(
    target: str | Path | None = None,
    *,
    workspace: str = "default",
    actor: Actor | None = None,
    api_key: str | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    migrate: bool = True,
    create: bool = True,
    trace_content: bool = False,
    cache_bytes: int = CACHE_BYTES,
) -> Holdfast:
    """Open the database or server that *target* names; return a handle on it.

    A path, `sqlite:PATH` or ":memory:" is SQLite, embedded; None is the user's data directory;
    `postgresql://…` is PostgreSQL; `https://…` is a server, with *api_key* as its credential.
    *clock* and *ids* replace the defaults. With *trace_content* the OpenTelemetry spans of a
    memory contain queries and the records found or written; otherwise ids and counts only. The
    caches of recall take about *cache_bytes* at most; a server has its own. Without *create* a
    database that does not exist is NotFound, and none is created. Raises InvalidInput for a
    target of no known form, MissingExtra, Unavailable.
    """
    checked_name("workspace", workspace)
    checked_actor(actor or LOCAL)
    if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
        raise InvalidInput("cache_bytes", "must be a whole number of at least 0", given=cache_bytes)
    text = None if target is None else str(target)
    if text is not None and text.startswith(("http://", "https://")):
        from holdfast.library.remote.handle import open_remote

        return open_remote(
            text,
            workspace=workspace,
            actor=actor,
            api_key=api_key,
            trace_content=trace_content,
        )
    clock = clock or SystemClock()
    engine, reached = _engine(text, clock, migrate=migrate, create=create)
    caller = StoresContext(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        actor=actor or LOCAL,
        clock=clock,
        ids=ids or Ids(),
    )
    opened = HandleTarget(target=reached, trace_content=trace_content, cache_bytes=cache_bytes)
    return Holdfast(engine, caller, opened=opened)


def _engine(target: str | None, clock: Clock, *, migrate: bool, create: bool) -> tuple[Engine, str]:
    """Return the engine on *target*, and the target as an absolute name."""
    if target is not None and target.startswith(("postgresql://", "postgres://")):
        from holdfast.engines.postgres import PostgresEngine

        return PostgresEngine.open(target, clock=clock, migrate=migrate, create=create), target
    from holdfast.engines.sqlite import SQLiteEngine
    from holdfast.engines.sqlite.database import resolve

    return SQLiteEngine.open(target, clock=clock, migrate=migrate, create=create), resolve(
        target
    ).path
