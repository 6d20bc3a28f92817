"""The six commands of the tool `memory`, done to the memories below one prefix of one store."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

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
from holdfast.tools import files_arguments as refusals
from holdfast.tools.files_arguments import MemoriesPort, ToolPath, as_given
from holdfast.tools.files_listing import empty_root, listing
from holdfast.tools.files_text import Edited, fitting, shown

TRIES = 5
"""Edits of one command before it gives way to whoever else is writing."""

PAGE_LIMIT = 100


class StoreFiles:
    """A store as a model sees it: files and directories below a root.

    Each command returns what the model is told, or raises ToolRefused with it.
    """

    def __init__(self, memories: MemoriesPort, store_id: str, prefix: str) -> None:
        self._memories, self._store_id, self._prefix = memories, store_id, prefix

    def view(self, place: ToolPath, view_range: list[object] | None) -> str:
        """Return a file with line numbers, or a directory two levels deep."""
        memory = self._file(place)
        if memory is not None:
            return shown(place.given, _content(memory), view_range)
        found = listing(place.given, self._sizes_below(place))
        if found is None and not place.is_root:
            raise refusals.nothing_to_open(place.given)
        return found or empty_root(place.given)

    def create(self, place: ToolPath, text: str) -> str:
        """Make a new file."""
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
        """Give a file the content that *change* makes of it, and of nobody else's newer one."""
        for _ in range(TRIES):
            memory = self._file(place)
            if memory is None:
                there = self._is_directory(place)
                raise (refusals.a_directory if there else refusals.nothing_to_open)(place.given)
            edited = change(_content(memory))
            if self._kept(memory, fitting(place.given, edited.content), place):
                return edited.says
        raise refusals.contended(place.given)

    def _kept(self, memory: Memory, content: str, place: ToolPath) -> bool:
        try:
            with _writing():
                # Also when nothing changes: the store knows who may not write, and makes no
                # version of an equal content.
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
        """Move a file, or a directory with everything below it, to where nothing is."""
        if old.is_root:
            raise refusals.the_root("rename")
        absent, blocked = refusals.nothing_there(old.given), refusals.destination_taken(new.given)
        if old.path == new.path or old.holds(new) or new.holds(old):
            # To the store, a memory is not in its own way.
            if self._exists(new):
                raise blocked
            raise refusals.into_itself(old.given) if self._exists(old) else absent
        try:
            with _writing():
                self._memories.rename(self._store_id, old.path, new.path)
        except PathTaken as error:
            raise self._blocked(error, new, blocked) from error
        except InvalidInput as error:
            # The new path itself is legal, so it is a path further down that would not be.
            raise refusals.illegal(new.given, error.reason) from error
        except NotFound as error:
            taken = self._exists(new)
            raise _unless_store(error, blocked if taken else absent) from error
        return f"Successfully renamed {old.given} to {new.given}"

    def clear(self, root: ToolPath) -> str:
        """Delete everything below the *root*, in one transaction."""
        above = root.below.rstrip("/")
        # Where the root is called as a memory is, nothing can be below it: that one is not ours.
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

    def _sizes_below(self, place: ToolPath) -> Iterator[tuple[str, int]]:
        cursor: str | None = None
        while True:
            page = self._memories.list(
                self._store_id, path_prefix=place.below, limit=PAGE_LIMIT, page=cursor
            )
            for found in page.data:
                if isinstance(found, Memory):
                    yield found.path.removeprefix(place.below), found.content_size_bytes
            cursor = page.next_page
            if cursor is None:
                return

    def _blocked(self, error: PathTaken, place: ToolPath, taken: ToolRefused) -> ToolRefused:
        blocker = error.conflicting_path
        if blocker == place.path or blocker.startswith(place.below):
            return taken
        return refusals.below_a_file(place.given, as_given(blocker, self._prefix))


def _content(memory: Memory) -> str:
    return memory.content or ""


def _unless_store(error: NotFound, refusal: ToolRefused) -> NotFound | ToolRefused:
    # That the store is gone is nothing a model can mend.
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
