"""What is not there answers before what is asked of it."""

from collections.abc import Generator
from contextlib import contextmanager

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.caller import StoresContext
from holdfast.memories.stores.missing import missing, sought
from holdfast.memories.stores.rows import memory_of, store_of
from holdfast.memories.stores.session_access import reach


@contextmanager
def existence_first(
    caller: StoresContext, store_id: str, memory_id: str | None = None, *, write: bool = False
) -> Generator[None, None, None]:
    """Let InvalidInput out only once the store, and the memory if one is named, are there.

    Otherwise NotFound, or what `reach` raises, takes its place. Costs nothing when the input is
    good.
    """
    try:
        yield
    except InvalidInput:
        engine = caller.engine
        reach(caller, engine, store_id, write=write)
        demand_store(caller, engine, store_id)
        if memory_id is not None:
            sql = caller.engine.queries("holdfast.memories.stores")
            if not engine.first(
                memory_of, sql.get_memory_basic, memory=sought("mem", memory_id), store=store_id
            ):
                raise missing("mem", memory_id) from None
        raise


def demand_store(caller: StoresContext, reader: Reader, store_id: str) -> None:
    """Raise NotFound unless the store is there."""
    sql = caller.engine.queries("holdfast.memories.stores")
    if reader.first(store_of, sql.get_store, store=sought("memstore", store_id)) is None:
        raise missing("memstore", store_id)
