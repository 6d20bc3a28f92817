"""How far a narrowed handle reaches: its own session, and the stores attached to it."""

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import NotAuthenticated, NotPermitted
from holdfast.memories.stores.caller import StoresContext
from holdfast.memories.stores.missing import is_id
from holdfast.memories.stores.records import Access


class _Attachment(Struct, frozen=True, kw_only=True):
    session_archived_at: int | None
    access: Access | None
    name: str | None


def reach(caller: StoresContext, reader: Reader, store_id: str, *, write: bool) -> None:
    """Return if *caller* may read, or with *write* change, the memories of the store *store_id*.

    Only a caller narrowed to a session is asked about; *reader* is its engine, or the read or
    transaction under way. NotAuthenticated when the session is gone or archived; NotPermitted
    when the store is not attached, whether it exists or not, or is attached `read_only` and
    *write* is asked.
    """
    if caller.session_id is None:
        return
    sql = caller.engine.queries("holdfast.memories.stores")
    found = reader.first(
        _Attachment,
        sql.attachment,
        session_id=caller.session_id,
        store_id=store_id if is_id("memstore", store_id) else "",
    )
    if found is None or found.session_archived_at is not None:
        raise NotAuthenticated
    if found.access is None:
        raise NotPermitted(
            "This session reaches only the memory stores that were attached when it was created.",
            needed="attached store",
            next="Use a store of the session, or an API key.",
        )
    if write and found.access != "read_write":
        raise NotPermitted(
            f"The memory store {found.name!r} ({store_id}) is attached {found.access}.",
            needed="read_write access",
            next="Write to a store attached read_write, or only read this one.",
        )


def refuse_narrowed(caller: StoresContext, needed: str) -> None:
    """Raise NotPermitted, naming the right *needed*, if *caller* is narrowed to a session."""
    if caller.session_id is not None:
        raise NotPermitted(
            "A session reaches only itself and the memories of its attached stores.",
            needed=needed,
            next="Use an API key for this.",
        )
