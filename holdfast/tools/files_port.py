"""What the tool `memory` needs of a handle: seven acts on the memories of a store."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.memories.stores.records import Memory, MemoryPrefix, Precondition


class MemoryPage(Protocol):
    """One page of a list."""

    @property
    def data(self) -> Sequence[Memory | MemoryPrefix]:
        """What is on it."""
        ...

    @property
    def next_page(self) -> str | None:
        """The cursor of the next, or None."""
        ...


class MemoriesPort(Protocol):
    """The acts, as the library has them."""

    def at(self, memory_store_id: str, path: str, /) -> Memory | None:
        """Return the memory at *path* with its content, or None."""
        ...

    def list(
        self,
        memory_store_id: str,
        /,
        *,
        path_prefix: str | None = None,
        limit: int | None = None,
        page: str | None = None,
    ) -> MemoryPage:
        """Return memories below *path_prefix*, without their content."""
        ...

    def create(self, memory_store_id: str, /, *, path: str, content: str) -> Memory:
        """Make a memory where nothing is."""
        ...

    def update(
        self,
        memory_id: str,
        /,
        *,
        memory_store_id: str,
        content: str,
        precondition: Precondition,
    ) -> Memory:
        """Give a memory another content, if it is still the one that was read."""
        ...

    def rename(self, memory_store_id: str, old_path: str, new_path: str, /) -> Sequence[Memory]:
        """Move a memory, or all below a directory, in one transaction."""
        ...

    def delete_under(self, memory_store_id: str, path: str, /) -> int:
        """Delete a memory, or all below a directory, in one transaction; return how many."""
        ...


class MemoryStoresPort(Protocol):
    """Where a handle keeps the acts."""

    @property
    def memories(self) -> MemoriesPort:
        """The acts on memories."""
        ...


class HoldfastHandle(Protocol):
    """A Holdfast: embedded, on PostgreSQL, remote, narrowed."""

    @property
    def memory_stores(self) -> MemoryStoresPort:
        """The memory stores."""
        ...
