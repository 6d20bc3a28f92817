"""What a database redacted, redacted once more in one that does not know of it."""

from collections.abc import Iterable
from datetime import datetime
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Engine, Reader
from holdfast.ground.clock import from_microseconds
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, Actor, ActorKind, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.rows import StoresContext


class Redaction(Struct, frozen=True, kw_only=True):
    """A version that was redacted, when and by whom."""

    id: str
    redacted_at: int
    redacted_by_kind: ActorKind
    redacted_by_id: str


class Redone(Struct, kw_only=True):
    """How many versions were redacted, and which memories went because one was their head."""

    redacted: int = 0
    deleted: tuple[str, ...] = ()


class _Version(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    store_id: str
    memory_id: str
    redacted_at: int | None
    live_memory_id: str | None


class _At(Struct, frozen=True):
    """A clock that stands still."""

    at: int

    def now(self) -> datetime:
        """Return its one instant."""
        return from_microseconds(self.at)


def redactions(reader: Reader, sql: SimpleNamespace) -> list[Redaction]:
    """Return every redaction there is, oldest first."""
    return reader.all(Redaction, sql.redacted_versions)


def redact_again(engine: Engine, made: Iterable[Redaction], redone: Redone) -> None:
    """Redact in *engine* what *made* names and it still holds, and add it up in *redone*.

    A head cannot be redacted, so its memory is deleted first, and the path with it.
    """
    sql = engine.queries("holdfast.library.upkeep")
    everybody = engine.scoped(EVERYBODY)
    ids = Ids()
    for redaction in made:
        version = everybody.first(_Version, sql.version_anywhere, version=redaction.id)
        if version is None or version.redacted_at is not None:
            continue
        stores = _as(engine, version.workspace, redaction, ids).memory_stores
        if version.live_memory_id is not None:
            stores.memories.delete(version.live_memory_id, memory_store_id=version.store_id)
            last = everybody.one(_id, sql.last_version_of, memory=version.memory_id)
            stores.memory_versions.redact(last, memory_store_id=version.store_id)
            redone.deleted += (version.memory_id,)
        stores.memory_versions.redact(version.id, memory_store_id=version.store_id)
        redone.redacted += 1


def _as(engine: Engine, workspace: str, redaction: Redaction, ids: Ids) -> Holdfast:
    """Return a handle of *workspace* that writes as who made *redaction*, and when."""
    caller = StoresContext(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        actor=Actor(redaction.redacted_by_kind, redaction.redacted_by_id),
        clock=_At(redaction.redacted_at),
        ids=ids,
    )
    return Holdfast(engine, caller)


def _id(*, id: str) -> str:
    return id
