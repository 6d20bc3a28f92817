"""Open a target, a database or a server, and resume work that was left undone."""

from datetime import datetime
from pathlib import Path

from holdfast import engines, library, memories
from holdfast.engines.base import Engine, scalar
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, LOCAL, Actor, Scope, checked_actor, checked_name
from holdfast.ground.validation import check_whole
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import HandleTarget
from holdfast.memories.longterm.cache_budget import CACHE_BYTES
from holdfast.memories.longterm.records import NONE, LongTermOptions
from holdfast.memories.stores.rows import StoresContext

_QUERIES = "holdfast.library.erasure"


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
    check_whole("cache_bytes", cache_bytes)
    text = None if target is None else str(target)
    if text is not None and text.startswith(("http://", "https://")):
        return library.open_remote(
            text,
            workspace=workspace,
            actor=actor,
            api_key=api_key,
            trace_content=trace_content,
        )
    clock = clock or SystemClock()
    engine, reached = _engine(text, clock, migrate=migrate, create=create)
    context = StoresContext(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        actor=actor or LOCAL,
        clock=clock,
        ids=ids or Ids(),
    )
    opened = HandleTarget(target=reached, trace_content=trace_content, cache_bytes=cache_bytes)
    hf = Holdfast(engine, context, opened=opened)
    try:
        if migrate and engine.scoped(EVERYBODY).all(
            scalar, engine.queries(_QUERIES).has_unfinished
        ):
            library.finish_at_open(engine, hf.longterm_shared, clock)
    except BaseException:
        hf.close()
        raise
    return hf


def _engine(target: str | None, clock: Clock, *, migrate: bool, create: bool) -> tuple[Engine, str]:
    """Return the engine on *target*, and the target as an absolute name."""
    if target is not None and target.startswith(("postgresql://", "postgres://")):
        found = engines.PostgresEngine.open(target, clock=clock, migrate=migrate, create=create)
        return found, target
    engine = engines.SQLiteEngine.open(target, clock=clock, migrate=migrate, create=create)
    return engine, engines.resolve(target).path


def resume_work(hf: Holdfast, now: datetime) -> int:
    """Resume mining, embedding and consolidation that a process left undone.

    Work overdue at *now* runs in the background of *hf*, with the models it was queued for, as far
    as this process has their keys, and not at all where long-term memory is off. Return the number
    of collections that are mined or embedded. Raises Unavailable.
    """
    everywhere = library.extractor_variable()
    found = memories.left_over(
        hf.engine, to_microseconds(now), mines_all=everywhere not in (None, NONE)
    )
    for job in memories.unfinished_jobs(hf.engine, to_microseconds(now)):
        hf.acting(workspace=job.workspace).consolidations.retrieve(job.id)
    return sum(_resumed(hf, each, everywhere) for each in found)


def tend_work(hf: Holdfast, clock: Clock) -> None:
    """Resume unfinished work, and serve policies of consolidation that are due.

    Raises Unavailable.
    """
    resume_work(hf, clock.now())
    library.serve_policies(hf.engine, hf.longterm_shared, clock)


def resume_erasures(hf: Holdfast, clock: Clock, *, grace: int = 0) -> int:
    """Finish erasures that a crash, a reader or a vector provider left pending.

    Those younger than *grace* microseconds may be at work. Return how many were finished. Raises
    Unavailable.
    """
    return library.finish_erasures(hf.engine, hf.longterm_shared, clock, grace=grace)


def drop_held(hf: Holdfast, clock: Clock) -> None:
    """Forget what was held for 30 days, in all workspaces. Raises Unavailable."""
    library.forget_held(hf.engine, hf.longterm_shared, clock)


def sweep_runs(hf: Holdfast, clock: Clock) -> None:
    """Store which runs of all workspaces lost their owner. Raises Unavailable."""
    memories.sweep_lost(hf.engine, clock)


def sweep_questions(hf: Holdfast, clock: Clock) -> None:
    """Settle questions of runs of all workspaces that are due. Raises Unavailable."""
    memories.sweep_questions(hf.engine, clock)


def _resumed(hf: Holdfast, left: "memories.LeftOver", everywhere: str | None) -> bool:
    memory = hf.acting(workspace=left.workspace).longterm(
        left.user_id,
        namespace=left.namespace,
        workspace_id=left.workspace_id or None,
        enabled=True,
        embedder=left.embedder or False,
        # Without a wish on record the job is done by the model that it was queued for.
        extractor=left.miner if left.extractor is None and everywhere is None else None,
        options=LongTermOptions(vector_provider=left.vector_provider),
    )
    return memory is not None
