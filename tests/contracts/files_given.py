"""Fixtures of the contract of the tool `memory`: calls, and stores with files."""

from typing import Protocol, cast

from contracts.files_commands import Files
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Version
from holdfast.tools.files_arguments import HoldfastHandle

READ_ONLY = "This memory is read-only; only the view command works."


class Run(Protocol):
    """Calls the tool one way; what the tool refuses it raises as ToolRefused."""

    def __call__(
        self,
        hf: HoldfastHandle,
        store_id: str,
        arguments: object,
        /,
        *,
        prefix: str = "/",
        read_only: bool = False,
    ) -> str:
        """Return the answer to *arguments*."""
        ...


class Clear(Protocol):
    """Clears all memory one way."""

    def __call__(
        self, hf: HoldfastHandle, store_id: str, /, *, prefix: str = "/", read_only: bool = False
    ) -> str:
        """Return the answer."""
        ...


def write_files(hf: Holdfast, store_id: str, files: Files) -> None:
    """Make *files* in the store."""
    for path, content in files.items():
        hf.memory_stores.memories.create(store_id, path=path, content=content)


def read_files(hf: Holdfast, store_id: str) -> Files:
    """Return everything in the store."""
    memories = hf.memory_stores.memories.list(store_id, view="full", limit=20).all()
    return {memory.path: str(memory.content) for memory in memories if isinstance(memory, Memory)}


def versions(hf: Holdfast, store_id: str) -> list[Version]:
    """Return the store's versions, the oldest first."""
    return [*hf.memory_stores.memory_versions.list(store_id, limit=100).all()][::-1]


def named_by_command(asks: object) -> str:
    """Return the name of a test by the command in *asks*."""
    return cast("dict[str, str]", asks)["command"]
