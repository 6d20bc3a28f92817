"""What records of runs hold at a moment, for `/metrics`."""

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.memories.run.records.record import LOST_AFTER
from holdfast.memories.run.records.write import PACKAGE


class RunsSize(Struct, frozen=True, kw_only=True):
    """Entries and bytes of all records, and how many runs are alive."""

    entries: int
    bytes: int
    live: int


def held(engine: Engine, now: int) -> RunsSize:
    """Return what is held within *engine*'s scope at *now*, microseconds since 1970."""
    sql = engine.queries(PACKAGE)
    return engine.one(RunsSize, sql.held, lost_before=now - LOST_AFTER)
