"""A session's stores as folders on disk, kept in step by the SDK's own sync."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from anthropic import AsyncAnthropic
from anthropic.lib.tools._memories import MARKER_PATH, SessionMemoryStores
from anthropic.types.beta.memory_stores import BetaManagedAgentsMemory
from wire.asking import walked

BEGIN = {"/name.md": "Ada", "/style/tabs.md": "Tabs.\n"}
"""What the store holds when the folder is made."""

A_MINUTE = 60.0
"""More than the sync waits between two looks, and before it believes that a file is gone."""


class Passing:
    """Seconds that pass when they are told to; the sync goes by them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Synced(NamedTuple):
    """One store, seen from the folder and from the server.

    `here` is the session's own client, `there` another's.
    """

    folder: Path
    stores: SessionMemoryStores
    seconds: Passing
    here: AsyncAnthropic
    there: AsyncAnthropic
    store_id: str
    session_id: str

    async def sync(self) -> None:
        """Let the time between two syncs pass, and sync."""
        self.seconds.now += A_MINUTE
        await self.stores.sync_if_due()

    def files(self) -> dict[str, str]:
        """Return what lies in the folder, the sync's own marker left out."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {
            f"/{path.relative_to(self.folder)}": path.read_bytes().decode()
            for path in found
            if path.name != MARKER_PATH
        }

    async def memories(self) -> dict[str, BetaManagedAgentsMemory]:
        """Return what the server keeps, by path."""
        pages = self.there.beta.memory_stores.memories.list(self.store_id, view="full")
        return {each.path: each for each in await walked(pages) if each.type == "memory"}

    async def contents(self) -> dict[str, str | None]:
        """Return the content of what the server keeps, by path."""
        return {path: each.content for path, each in (await self.memories()).items()}

    async def history(self) -> list[tuple[str, str | None, Any]]:
        """Return operation, path and actor of every version, oldest first."""
        versions = await walked(self.there.beta.memory_stores.memory_versions.list(self.store_id))
        return [
            (each.operation, each.path, each.to_dict()["created_by"]) for each in versions[::-1]
        ]

    def session_actor(self) -> dict[str, str]:
        return {"type": "session_actor", "session_id": self.session_id}

    async def create_there(self, path: str, content: str) -> None:
        """Make a memory, as somebody else."""
        memories = self.there.beta.memory_stores.memories
        await memories.create(self.store_id, path=path, content=content)

    async def edit_there(self, path: str, content: str) -> None:
        """Change a memory, as somebody else."""
        memory = (await self.memories())[path]
        memories = self.there.beta.memory_stores.memories
        await memories.update(memory.id, memory_store_id=self.store_id, content=content)


Attach = Callable[..., Awaitable[Synced]]
