"""The tool `memory`: a store as a directory of text files."""

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from holdfast import library, memories
from holdfast.ground.errors import (
    InvalidInput,
    NotFound,
    NotPermitted,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    StoreFull,
    ToolRefused,
)
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX
from holdfast.tools import files_arguments as refusals
from holdfast.tools.base import Schema, Tool, wording
from holdfast.tools.files_arguments import (
    COMMANDS,
    ROOT,
    SCHEMAS,
    Command,
    Create,
    Delete,
    Insert,
    RenamePath,
    StrReplace,
    ToolPath,
    ViewPath,
    as_given,
    checked_root,
    place,
    read,
)

LEVELS = 2
UNITS = "BKMG"


class _Entry(Struct):
    size: int = 0
    is_directory: bool = False


def listing(
    p: str, sizes: Iterable[tuple[str, int]], held: Container[str] = frozenset()
) -> str | None:
    """Return the listing of the directory *p*, or None if it is empty.

    *sizes* are the relative paths below it, each with its size in bytes. They are consumed one by
    one, and only shown entries are stored. Hidden names and all below them are not listed, but
    count in the sizes. Paths in *held* are marked.
    """
    total, empty = 0, True
    entries: dict[tuple[str, ...], _Entry] = {}
    for relative, size in sizes:
        total, empty = total + size, False
        segments = relative.split("/", LEVELS)
        for level in range(1, min(len(segments), LEVELS) + 1):
            if segments[level - 1].startswith("."):
                break
            entry = entries.setdefault(tuple(segments[:level]), _Entry())
            entry.size += size
            entry.is_directory = level < len(segments)
    return None if empty else _lines(p, total, entries, held)


def empty_root(p: str) -> str:
    """Return the listing of the empty root *p*."""
    return _lines(p, 0, {}, ())


def _lines(p: str, total: int, entries: dict[tuple[str, ...], _Entry], held: Container[str]) -> str:
    header = (
        f"Here're the files and directories up to {LEVELS} levels deep in {p},"
        " excluding hidden items:"
    )
    base = p.rstrip("/")
    # Sorted by tuples of names, so that a directory's entries follow it directly.
    lines = [
        f"{readable(entries[names].size)}\t{base}/{'/'.join(names)}"
        + ("/" if entries[names].is_directory else " (held)" if "/".join(names) in held else "")
        for names in sorted(entries)
    ]
    return "\n".join([header, f"{readable(total)}\t{base}", *lines])


def readable(size: int) -> str:
    """Format *size* bytes as `0B`, `1.5K`, `100K`, in units of 1,024."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(UNITS) - 1)
    scaled = size / 1024**unit
    return f"{int(scaled)}{UNITS[unit]}" if scaled.is_integer() else f"{scaled:.1f}{UNITS[unit]}"


# Lines are separated by LF only; CR is ordinary text.

LINES_MAX = 999_999
NUMBER_WIDTH = 6
CONTEXT = 2
"""Lines shown before and after the first changed one."""


class Edited(Struct, frozen=True, kw_only=True):
    """A new content, and the message for the model."""

    content: str
    says: str


def shown(p: str, content: str, view_range: Sequence[object] | None) -> str:
    """Return *content* with line numbers, or the lines of *view_range* (first, last).

    A first line below 1 means 1; a last one past the end or -1 means the end. Raise ToolRefused if
    no line remains.
    """
    lines = content.split("\n")
    if len(lines) > LINES_MAX:
        raise refusals.too_many_lines(p)
    first, last = 1, len(lines)
    if view_range is not None:
        first, last = _within(view_range, len(lines))
    return f"Here's the content of {p} with line numbers:\n{_numbered(lines, first, last)}"


def _within(view_range: Sequence[object], count: int) -> tuple[int, int]:
    match view_range:
        case [int(start), int(end)] if not (isinstance(start, bool) or isinstance(end, bool)):
            first, last = max(start, 1), count if end == -1 else min(end, count)
        case _:
            raise refusals.no_such_lines(view_range, count)
    if first > last:
        raise refusals.no_such_lines(view_range, count)
    return first, last


def _numbered(lines: Sequence[str], first: int, last: int) -> str:
    return "\n".join(
        f"{number:>{NUMBER_WIDTH}}\t{line}"
        for number, line in enumerate(lines[first - 1 : last], start=first)
    )


def replaced(p: str, content: str, old: str, new: str) -> Edited:
    """Return *content* with its only occurrence of *old* replaced by *new*.

    Raise ToolRefused unless there is exactly one. Overlapping occurrences count separately, as they
    are ambiguous too.
    """
    if not old:
        raise refusals.empty_old_str()
    found = _occurrences(content, old)
    if not found:
        raise refusals.absent_old_str(p, old)
    lines = [content.count("\n", 0, at) + 1 for at in found]
    if len(found) > 1:
        raise refusals.ambiguous_old_str(old, lines)
    edited = content[: found[0]] + new + content[found[0] + len(old) :]
    snippet = _numbered(edited.split("\n"), max(lines[0] - CONTEXT, 1), lines[0] + CONTEXT)
    return Edited(
        content=edited,
        says="The memory file has been edited. Here is the snippet showing the change"
        f" (with line numbers):\n{snippet}",
    )


def _occurrences(content: str, old: str) -> list[int]:
    found: list[int] = []
    at = content.find(old)
    while at >= 0:
        found.append(at)
        at = content.find(old, at + 1)
    return found


def inserted(p: str, content: str, line: int, text: str) -> Edited:
    """Return *content* with *text* inserted after line *line*, ending in a newline."""
    lines = content.removesuffix("\n").split("\n") if content else []
    if not 0 <= line <= len(lines):
        raise refusals.no_such_line(line, len(lines))
    lines.insert(line, text.rstrip("\n"))
    edited = "\n".join(lines)
    return Edited(
        content=edited if edited.endswith("\n") else f"{edited}\n",
        says=f"The file {p} has been edited.",
    )


def fitting(p: str, content: str) -> str:
    """Return *content* if it is within a memory's size limit; else raise ToolRefused."""
    size = len(content.encode())
    if size > CONTENT_BYTES_MAX:
        raise refusals.too_large(p, size)
    return content


TRIES = 5
"""Tries of one edit command while other clients change the file."""

PAGE_LIMIT = 100


class StoreFiles:
    """A store as files and directories below a root.

    Each command returns its message for the model, or raises ToolRefused with one.
    """

    def __init__(self, stored: "memories.Memories", store_id: str, prefix: str) -> None:
        self._memories, self._store_id, self._prefix = stored, store_id, prefix

    def view(self, place: ToolPath, view_range: list[object] | None) -> str:
        """Return a file with line numbers, or a directory two levels deep."""
        memory = self._file(place)
        if memory is not None:
            _refuse_held(memory, place)
            return shown(place.given, _content(memory), view_range)
        held = set[str]()
        found = listing(place.given, self._sizes_below(place, held), held)
        if found is None and not place.is_root:
            raise refusals.nothing_to_open(place.given)
        return found or empty_root(place.given)

    def create(self, place: ToolPath, text: str) -> str:
        """Create a new file."""
        if place.is_root:
            raise refusals.taken(place.given)
        fitting(place.given, text)
        try:
            with _writing():
                self._memories.create(self._store_id, path=place.path, content=text)
        except PathTaken as error:
            raise self._blocked(error, place, refusals.taken(place.given)) from error
        return f"File created successfully at: {place.given}"

    def edit(self, place: ToolPath, change: Callable[[str], Edited]) -> str:
        """Apply *change* to the current content of a file, with retries on conflicts."""
        for _ in range(TRIES):
            memory = self._file(place)
            if memory is None:
                there = self._is_directory(place)
                raise (refusals.a_directory if there else refusals.nothing_to_open)(place.given)
            _refuse_held(memory, place)
            edited = change(_content(memory))
            if self._kept(memory, fitting(place.given, edited.content), place):
                return edited.says
        raise refusals.contended(place.given)

    def _kept(self, memory: Memory, content: str, place: ToolPath) -> bool:
        try:
            with _writing():
                # Also if nothing changes: the store checks permissions, and creates no version
                # for equal content.
                self._memories.update(
                    memory.id,
                    memory_store_id=self._store_id,
                    content=content,
                    precondition={
                        "type": "content_sha256",
                        "content_sha256": memory.content_sha256,
                    },
                )
        except PreconditionFailed:
            return False
        except NotFound as error:
            raise _unless_store(error, refusals.nothing_to_open(place.given)) from error
        return True

    def delete(self, place: ToolPath) -> str:
        """Delete a file, or a directory with everything below it."""
        if place.is_root:
            raise refusals.the_root("delete")
        absent = refusals.nothing_there(place.given)
        try:
            with _writing():
                deleted = self._memories.delete_under(self._store_id, place.path)
        except NotFound as error:
            raise _unless_store(error, absent) from error
        if not deleted:
            raise absent
        return f"Successfully deleted {place.given}"

    def rename(self, old: ToolPath, new: ToolPath) -> str:
        """Move a file, or a directory with everything below it, to a free path."""
        if old.is_root:
            raise refusals.the_root("rename")
        absent, blocked = refusals.nothing_there(old.given), refusals.destination_taken(new.given)
        if old.path == new.path or old.holds(new) or new.holds(old):
            # To the store, a memory does not conflict with itself.
            if self._exists(new):
                raise blocked
            raise refusals.into_itself(old.given) if self._exists(old) else absent
        try:
            with _writing():
                self._memories.rename(self._store_id, old.path, new.path)
        except PathTaken as error:
            raise self._blocked(error, new, blocked) from error
        except InvalidInput as error:
            # The new path itself is valid, so a path below it would be invalid.
            raise refusals.illegal(new.given, error.reason) from error
        except NotFound as error:
            taken = self._exists(new)
            raise _unless_store(error, blocked if taken else absent) from error
        return f"Successfully renamed {old.given} to {new.given}"

    def clear(self, root: ToolPath) -> str:
        """Delete everything below the *root*, in one transaction."""
        above = root.below.rstrip("/")
        # If a memory has the root's own path, nothing is below it: that memory is not deleted.
        if not above or self._memories.at(self._store_id, above) is None:
            with _writing():
                self._memories.delete_under(self._store_id, root.below)
        return "All memory cleared"

    def _file(self, place: ToolPath) -> Memory | None:
        return None if place.is_root else self._memories.at(self._store_id, place.path)

    def _is_directory(self, place: ToolPath) -> bool:
        if place.is_root:
            return True
        first = self._memories.list(self._store_id, path_prefix=place.below, limit=1)
        return bool(first.data)

    def _exists(self, place: ToolPath) -> bool:
        return self._is_directory(place) or self._file(place) is not None

    def _sizes_below(self, place: ToolPath, held: set[str]) -> Iterator[tuple[str, int]]:
        """Yield path and size of the files below *place*; add held paths to *held*."""
        cursor: str | None = None
        while True:
            page = self._memories.list(
                self._store_id, path_prefix=place.below, limit=PAGE_LIMIT, page=cursor
            )
            for found in page.data:
                if isinstance(found, Memory):
                    path, size = found.path.removeprefix(place.below), found.content_size_bytes
                    if found.held is not None:
                        held.add(path)
                    yield path, size
            cursor = page.next_page
            if cursor is None:
                return

    def _blocked(self, error: PathTaken, place: ToolPath, taken: ToolRefused) -> ToolRefused:
        blocker = error.conflicting_path
        if blocker == place.path or blocker.startswith(place.below):
            return taken
        return refusals.below_a_file(place.given, as_given(blocker, self._prefix))


_WHY_HELD: Final[dict[str, str]] = {
    "instruction": "it comes from {tier} and reads as an order to a machine"
}
_SOURCES: Final = {"outside": "outside", "imported": "an import"}


def _refuse_held(memory: Memory, place: ToolPath) -> None:
    if memory.held is not None:
        source = _SOURCES.get(memory.tier, memory.tier)
        raise refusals.held(place.given, _WHY_HELD[memory.held].format(tier=source))


def _content(memory: Memory) -> str:
    return memory.content or ""


def _unless_store(error: NotFound, refusal: ToolRefused) -> NotFound | ToolRefused:
    # A model cannot fix a missing store.
    return error if error.kind == "memory store" else refusal


@contextmanager
def _writing() -> Generator[None]:
    try:
        yield
    except StoreArchived as error:
        raise refusals.archived() from error
    except StoreFull as error:
        raise refusals.full(error.cap) from error
    except NotPermitted as error:
        raise refusals.read_only() from error


READ_ONLY_PARAMETERS = ("path", "view_range")


class FindStore(Protocol):
    """Finds a store that may not exist yet."""

    def __call__(self, *, create: bool = False) -> str | None:
        """Return the store's id, of a new store with *create*; None if there is none."""
        ...


def files(
    hf: "library.Holdfast",
    store_id: str | FindStore,
    *,
    prefix: str = "/",
    read_only: bool = False,
) -> list[Tool]:
    """Return the tool `memory` on the paths below *prefix* in a store.

    *store_id* is an id, or finds it; a store that does not exist is empty until a file is created.
    A model sees them as the directory `/memories`. Results are text. A call raises ToolRefused,
    with a text for the model, for an error of the model. Raise InvalidInput if *prefix* does not
    start and end with a slash.
    """
    checked_root(prefix)
    words = wording("files_read_only" if read_only else "files")
    commands = ("view",) if read_only else tuple(COMMANDS)
    return [
        Tool(
            id="files.memory",
            name="memory",
            description=words.description,
            parameters=_schema(words.parameters, commands),
            work=partial(run, hf, store_id, prefix, read_only=read_only),
            commands=tuple(COMMANDS),
        )
    ]


def run(
    hf: "library.Holdfast",
    store: str | FindStore,
    prefix: str,
    command: object,
    *,
    read_only: bool = False,
) -> str:
    """Return the result of *command*, the arguments as the model wrote them.

    Raise ToolRefused for an error of the model. Other errors are raised unchanged: Unavailable, or
    NotFound for a store that does not exist.
    """
    params = read(command)
    paths = [params.old_path, params.new_path] if isinstance(params, RenamePath) else [params.path]
    first, *others = (place(path, prefix) for path in paths)
    if read_only and not isinstance(params, ViewPath):
        raise refusals.read_only()
    store_id = store if isinstance(store, str) else store(create=isinstance(params, Create))
    if store_id is None:
        return _in_no_store(params, first)
    stored = hf.for_tier("assistant").memory_stores.memories
    return _done(StoreFiles(stored, store_id, prefix), params, first, others)


def _done(files: StoreFiles, params: Command, first: ToolPath, others: Sequence[ToolPath]) -> str:
    match params:
        case ViewPath():
            return files.view(first, params.view_range)
        case Create():
            return files.create(first, params.file_text)
        case StrReplace():
            p, old, new = params.path, params.old_str, params.new_str
            return files.edit(first, lambda content: replaced(p, content, old, new))
        case Insert():
            p, line, text = params.path, params.insert_line, params.insert_text
            return files.edit(first, lambda content: inserted(p, content, line, text))
        case Delete():
            return files.delete(first)
        case RenamePath():
            return files.rename(first, others[0])


def _in_no_store(params: Command, place: ToolPath) -> str:
    """Return the result of a command on a store that does not exist: it is empty."""
    match params:
        case ViewPath():
            if place.is_root:
                return empty_root(place.given)
            raise refusals.nothing_to_open(place.given)
        case Delete() | RenamePath():
            if place.is_root:
                raise refusals.the_root("delete" if isinstance(params, Delete) else "rename")
            raise refusals.nothing_there(place.given)
        case _:
            raise refusals.nothing_to_open(place.given)


def clear(hf: "library.Holdfast", store_id: str, prefix: str, *, read_only: bool = False) -> str:
    """Delete everything below *prefix* in one transaction; return a message."""
    if read_only:
        raise refusals.read_only()
    return StoreFiles(hf.memory_stores.memories, store_id, prefix).clear(place(ROOT, prefix))


def _schema(words: dict[str, str], commands: tuple[str, ...]) -> Schema:
    kinds = {"command": {"type": "string", "enum": [*commands]}, **SCHEMAS}
    return {
        "type": "object",
        "properties": {
            name: {**kinds[name], "description": words[name]} for name in kinds if name in words
        },
        "required": ["command"],
        "additionalProperties": False,
    }
