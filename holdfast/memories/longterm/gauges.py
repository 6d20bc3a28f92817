"""What long-term memory holds and what waits in it, of all whom an engine is scoped to."""

from msgspec import Struct

from holdfast.engines.base import Engine


class CollectionSize(Struct, frozen=True, kw_only=True):
    """How many items, superseded ones among them, and how many turns there are."""

    items: int
    turns: int


class JobCount(Struct, frozen=True, kw_only=True):
    """How many jobs of one kind are in one state."""

    kind: str
    state: str
    jobs: int


def held(engine: Engine) -> CollectionSize:
    """Return what is held of every user within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.one(CollectionSize, sql.held_by_all)


def jobs(engine: Engine) -> list[JobCount]:
    """Return how many jobs wait, run and failed within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.all(JobCount, sql.jobs_of_all)
