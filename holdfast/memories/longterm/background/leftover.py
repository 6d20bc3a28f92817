"""Which collections have work that nobody sees to: left by a crash, or by a handle that closed."""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background.jobs import LEASE, PACKAGE

MOST: Final = 1_000
"""Collections that are told at once."""


class LeftOver(Struct, frozen=True, kw_only=True):
    """A collection with jobs that are overdue, and the models, by name, that they wait for."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    vector_provider: str | None
    miner: str | None
    embedder: str | None


def left_over(engine: Engine, now: int) -> list[LeftOver]:
    """Return the collections of all workspaces with jobs at *now* that nobody sees to.

    Jobs that only a function can do are its caller's, and are left out.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries(PACKAGE)
    return everybody.all(LeftOver, sql.left_over, now=now, grace=LEASE, most=MOST)
