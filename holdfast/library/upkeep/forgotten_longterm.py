"""What a database forgot of long-term memory, forgotten in one that does not know of it."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import Clock, from_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, LOCAL, Scope
from holdfast.library.upkeep.tombstones import Named
from holdfast.memories.longterm.context import CollectionContext, Shared
from holdfast.memories.longterm.forget import (
    Grave,
    clear_again,
    forget_items_again,
    forget_user,
)


class LongTermGrave(Struct, frozen=True, kw_only=True):
    """What is left of an item or a turn that was forgotten, and whose it was."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    collection_id: str
    id: str
    at: int
    terms: bytes
    fingerprint: bytes | None
    secret: bytes

    @property
    def grave(self) -> Grave:
        """It without whose it was."""
        return Grave(id=self.id, at=self.at, terms=self.terms, fingerprint=self.fingerprint)


class ClearedCollection(Struct, frozen=True, kw_only=True):
    """A collection that was cleared, whose it is, and at which number."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    collection_id: str
    seq: int


class _Cleared(Struct, frozen=True, kw_only=True):
    collection_id: str
    seq: int


class _At(Struct, frozen=True):
    """A clock that stands still."""

    at: int

    def now(self) -> datetime:
        """Return its one instant."""
        return from_microseconds(self.at)


def forget_user_again(engine: Engine, user: Named, clock: Clock) -> None:
    """Forget all that *engine* holds of *user*, at the instant of *clock*."""
    whose = _Whose(workspace=user.workspace, user_id=user.name)
    forget_user(_collection_context(engine, Shared(), whose, clock))


def clear_collections_again(engine: Engine, made: Iterable[ClearedCollection]) -> int:
    """Clear in *engine* what *made* names and it holds from before; return how many collections."""
    sql = engine.queries("holdfast.library.upkeep")
    everybody, shared, count = engine.scoped(EVERYBODY), Shared(), 0
    found = everybody.all(_Cleared, sql.collection_clearings)
    known = {each.collection_id: each.seq for each in found}
    for each in made:
        if each.seq > known.get(each.collection_id, each.seq):
            whose = _Whose(
                workspace=each.workspace,
                user_id=each.user_id,
                namespace=each.namespace,
                workspace_id=each.workspace_id,
            )
            caller = _collection_context(engine, shared, whose, _At(0))
            count += clear_again(caller, each.collection_id, each.seq)
    return count


def forget_rows_again(engine: Engine, graves: Iterable[LongTermGrave]) -> int:
    """Forget in *engine* what *graves* name and it still holds; return how many rows.

    What it does not hold stays forgotten there too, where both hash with one secret.
    """
    shared = Shared()
    return sum(_forget(engine, shared, each) for each in graves)


def _forget(engine: Engine, shared: Shared, each: LongTermGrave) -> bool:
    whose = _Whose(
        workspace=each.workspace,
        user_id=each.user_id,
        namespace=each.namespace,
        workspace_id=each.workspace_id,
    )
    caller = _collection_context(engine, shared, whose, _At(each.at))
    return forget_items_again(caller, each.collection_id, each.grave, secret=each.secret)


class _Whose(Struct, frozen=True, kw_only=True):
    """A collection by its name."""

    workspace: str
    user_id: str
    namespace: str = "chat"
    workspace_id: str = ""


def _collection_context(
    engine: Engine, shared: Shared, whose: _Whose, clock: Clock
) -> CollectionContext:
    return CollectionContext(
        engine=engine.scoped(Scope(workspace=whose.workspace, user=whose.user_id)),
        workspace=whose.workspace,
        user=whose.user_id,
        namespace=whose.namespace,
        workspace_id=whose.workspace_id,
        actor=LOCAL,
        clock=clock,
        ids=Ids(),
        shared=shared,
    )
