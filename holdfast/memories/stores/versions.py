"""Versions of memories: listed, read, redacted, restored, compared."""

from datetime import datetime

from holdfast.ground.pages import Page
from holdfast.memories.stores.caller import Caller
from holdfast.memories.stores.records import Memory, Operation, Version, View


class Versions:
    """The versions of a workspace's memories."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def list(
        self,
        memory_store_id: str,
        *,
        memory_id: str | None = None,
        operation: Operation | None = None,
        session_id: str | None = None,
        api_key_id: str | None = None,
        service_account_id: str | None = None,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
    ) -> Page[Version]: ...

    def retrieve(
        self, memory_version_id: str, *, memory_store_id: str, view: View | None = None
    ) -> Version: ...

    def redact(self, memory_version_id: str, *, memory_store_id: str) -> Version: ...

    def restore(self, memory_version_id: str, *, memory_store_id: str) -> Memory: ...

    def diff(self, from_id: str, to_id: str, *, memory_store_id: str) -> str: ...
