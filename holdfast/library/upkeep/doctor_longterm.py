"""What a person should look after in long-term memory."""

from collections.abc import Iterator
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.library.upkeep.tables import Check
from holdfast.library.upkeep.verify_longterm import miscounted_collections
from holdfast.memories.longterm.recall.analyze import VERSION


class _Failed(Struct, frozen=True, kw_only=True):
    kind: str
    error: str
    jobs: int


class _Others(Struct, frozen=True, kw_only=True):
    collections: int
    newer: int


def look_at_longterm(engine: Engine, sql: SimpleNamespace) -> Iterator[Check]:
    """Give what there is to say of it; *engine* is scoped to everybody."""
    wrong = len(list(miscounted_collections(engine, sql)))
    yield Check(
        name="long-term counters",
        ok=not wrong,
        says=f"{wrong:,} differ from the data; holdfast verify names them"
        if wrong
        else "match the data",
    )
    failed = engine.all(_Failed, sql.failed_jobs)
    told = ", ".join(f"{each.jobs:,} {each.kind} ({each.error})" for each in failed)
    yield Check(
        name="long-term jobs",
        ok=not failed,
        says=f"failed for good: {told}; retry() queues them again" if failed else "none failed",
    )
    others = engine.one(_Others, sql.other_analyzers, ours=VERSION)
    older = others.collections - others.newer
    says = [f"version {VERSION}"]
    if older:
        says.append(f"{older:,} collections are of an older one, until they are next recalled from")
    if others.newer:
        says.append(f"{others.newer:,} are of a newer one: upgrade holdfast")
    yield Check(name="long-term analyzer", ok=not others.newer, says="; ".join(says))
