"""A store as it is at one moment: all its heads, and the number to follow it from."""

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds_or_none
from holdfast.memories.stores.records import Snapshot
from holdfast.memories.stores.rows import StoresContext, memory_of, missing, reach, sought
from holdfast.memories.stores.transaction import MEMORIES_CAP


class StoreState(Struct, frozen=True, kw_only=True):
    """A store itself, as its followers see it."""

    seq: int
    name: str
    description: str
    metadata: str
    archived_at: int | None
    memories_cap: int | None

    @property
    def cap(self) -> int:
        """How many live memories it may hold."""
        return self.memories_cap or MEMORIES_CAP


def store_state(caller: StoresContext, reader: Reader, store_id: str) -> StoreState:
    """Return how the store is; NotFound, or what `reach` raises."""
    reach(caller, reader, store_id, write=False)
    sql = caller.engine.queries("holdfast.memories.stores")
    state = reader.first(StoreState, sql.store_state, store=sought("memstore", store_id))
    if state is None:
        raise missing("memstore", store_id)
    return state


def snapshot(caller: StoresContext, store_id: str) -> Snapshot:
    """Return the store at one moment; see `Memories.snapshot`."""
    sql = caller.engine.queries("holdfast.memories.stores")

    def work(reader: Reader) -> Snapshot:
        state = store_state(caller, reader, store_id)
        return Snapshot(
            seq=state.seq,
            memories=tuple(reader.all(memory_of, sql.all_heads, store=store_id)),
            cap=state.cap,
            archived_at=from_microseconds_or_none(state.archived_at),
        )

    return caller.engine.read(work)
