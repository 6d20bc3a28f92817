"""Calls of the tool `memory`, its results, and cases of both for the contract."""

from typing import Any, Protocol, cast

from msgspec import Struct, field

from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Version

Files = dict[str, str]


class Case(Struct, frozen=True, kw_only=True):
    """A command on some files, what it says, and what it leaves (None: all as it was)."""

    name: str
    files: Files = field(default_factory=dict[str, str])
    asks: dict[str, Any]
    says: str
    refused: bool = False
    leaves: Files | None = None


def case(
    name: str,
    asks: dict[str, Any],
    says: str,
    *,
    files: Files | None = None,
    leaves: Files | None = None,
) -> Case:
    """Return a case that succeeds."""
    return Case(name=name, files=files or {}, asks=asks, says=says, leaves=leaves)


def refusal(name: str, asks: dict[str, Any], says: str, *, files: Files | None = None) -> Case:
    """Return a case that is refused and leaves all as it was."""
    return Case(name=name, files=files or {}, asks=asks, says=says, refused=True)


def view(path: str, **more: object) -> dict[str, Any]:
    """Return the arguments of a view."""
    return {"command": "view", "path": path, **more}


def create(path: str, text: str = "x") -> dict[str, Any]:
    """Return the arguments of a create."""
    return {"command": "create", "path": path, "file_text": text}


def str_replace(path: str, old: str, new: str) -> dict[str, Any]:
    """Return the arguments of a str_replace."""
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def insert(path: str, line: int, text: str) -> dict[str, Any]:
    """Return the arguments of an insert."""
    return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}


def delete(path: str) -> dict[str, Any]:
    """Return the arguments of a delete."""
    return {"command": "delete", "path": path}


def rename(old: str, new: str) -> dict[str, Any]:
    """Return the arguments of a rename."""
    return {"command": "rename", "old_path": old, "new_path": new}


def listed(p: str, *lines: str) -> str:
    """Return a directory view."""
    header = f"Here're the files and directories up to 2 levels deep in {p}"
    return "\n".join([f"{header}, excluding hidden items:", *lines])


def numbered(p: str, *lines: str, first: int = 1) -> str:
    """Return a file view."""
    header = f"Here's the content of {p} with line numbers:"
    return "\n".join([header, *(f"{n:6}\t{line}" for n, line in enumerate(lines, first))])


def edited(*lines: str, first: int = 1) -> str:
    """Return the answer to a str_replace."""
    header = "The memory file has been edited. Here is the snippet showing the change"
    shown = (f"{n:6}\t{line}" for n, line in enumerate(lines, first))
    return "\n".join([f"{header} (with line numbers):", *shown])


def bad_range(shown: str, count: int) -> str:
    """Return the refusal of a view_range."""
    return f"Invalid `view_range` parameter: [{shown}]. The file has {count} lines."


def bad_line(line: int, count: int) -> str:
    """Return the refusal of an insert_line."""
    return f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {count}]."


def too_large(p: str, size: int) -> str:
    """Return the refusal of a content over its limit."""
    limit = "a memory holds at most 102,400 bytes. Split it into several files."
    return f"File {p} would be {size} bytes; {limit}"


READ_ONLY = "This memory is read-only; only the view command works."


class Run(Protocol):
    """Calls the tool one way; what the tool refuses it raises as ToolRefused."""

    def __call__(
        self,
        hf: Holdfast,
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
        self, hf: Holdfast, store_id: str, /, *, prefix: str = "/", read_only: bool = False
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
