"""What a database forgot of long-term memory, forgotten in one that does not know of it."""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import from_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.memories.longterm.caller import Caller
from holdfast.memories.longterm.forgetting import Grave, forget_again
from holdfast.memories.longterm.shared import Shared


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


class _At(Struct, frozen=True):
    """A clock that stands still."""

    at: int

    def now(self) -> datetime:
        """Return its one instant."""
        return from_microseconds(self.at)


def forget_rows_again(engine: Engine, graves: Iterable[LongTermGrave]) -> int:
    """Forget in *engine* what *graves* name and it still holds; return how many rows.

    What it does not hold stays forgotten there too, where both hash with one secret.
    """
    shared = Shared()
    return sum(_forget(engine, shared, each) for each in graves)


def _forget(engine: Engine, shared: Shared, each: LongTermGrave) -> bool:
    caller = Caller(
        engine=engine.scoped(Scope(workspace=each.workspace, user=each.user_id)),
        workspace=each.workspace,
        user=each.user_id,
        namespace=each.namespace,
        workspace_id=each.workspace_id,
        actor=LOCAL,
        clock=_At(each.at),
        ids=Ids(),
        shared=shared,
    )
    return forget_again(caller, each.collection_id, each.grave, secret=each.secret)
