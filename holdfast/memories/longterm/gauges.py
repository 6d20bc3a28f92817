"""What long-term memory holds and what waits in it, of all whom an engine is scoped to."""

from msgspec import Struct

from holdfast.engines.base import Engine


class Held(Struct, frozen=True, kw_only=True):
    """How many items, superseded ones among them, and how many turns there are."""

    items: int
    turns: int


class Jobs(Struct, frozen=True, kw_only=True):
    """How many jobs of one kind are in one state."""

    kind: str
    state: str
    jobs: int


def held(engine: Engine) -> Held:
    """Return what is held of every user within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.one(Held, sql.held_by_all)


def jobs(engine: Engine) -> list[Jobs]:
    """Return how many jobs wait, run and failed within *engine*'s scope."""
    sql = engine.queries("holdfast.memories.longterm")
    return engine.all(Jobs, sql.jobs_of_all)
