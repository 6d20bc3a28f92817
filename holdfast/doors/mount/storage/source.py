"""One mounted store, accessed through a Holdfast handle, with retries and a cache.

A SQLite file, PostgreSQL and a server work alike. Only Holdfast's errors are raised. A temporary
failure is retried until the deadline; reading twice is harmless, and so is writing twice with one
edit id.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar

from msgspec.structs import replace

from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.ground.errors import Corrupt, TooNew, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, Snapshot, Store

# One cache serves all stores of a mount: equal contents are cached once.

ENTRY_BYTES = 256
"""Bytes that one content costs beyond its own: its hash, and its entry in the cache."""


class Contents:
    """LRU cache of contents by hash, of at most *limit* bytes.

    A content larger than that is not cached.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """The bytes in the cache, at most *limit*."""
        return self._size

    def get(self, sha256: str) -> bytes | None:
        """Return the content whose hash is *sha256*, or None."""
        with self._lock:
            content = self._cached.get(sha256)
            if content is not None:
                self._cached.move_to_end(sha256)
            return content

    def put(self, sha256: str, content: bytes) -> None:
        """Cache *content* with the hash *sha256*; evict the least recently used."""
        cost = len(content) + ENTRY_BYTES
        if cost > self._limit:
            return
        with self._lock:
            if sha256 in self._cached:
                self._cached.move_to_end(sha256)
                return
            self._cached[sha256] = content
            self._size += cost
            while self._size > self._limit:
                _, oldest = self._cached.popitem(last=False)
                self._size -= len(oldest) + ENTRY_BYTES


T = TypeVar("T")

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds between tries; the last value repeats."""

HEALING = frozenset({"busy", "overloaded", "lost", "locked", "io"})
"""Temporary reasons, retried while a program waits; a full disk fails at once."""

SNAPSHOT_SECONDS = 30.0
"""Time limit of a snapshot in seconds: no program waits for it, and a large one is slow."""

PAGE = 20
"""Contents read ahead in one request: the limit of a list in the full view."""

NEAR_SECONDS, FAR_SECONDS = 1.0, 10.0
"""Seconds to wait for changes of a database, and of a server, where each poll is a request.

A server that hangs is detected one deadline after that.
"""

READERS = 64
"""Directories tracked for read-ahead at once."""


class StoreSource:
    """One store of a mount. Thread-safe.

    `id`, `name` and `workspace` are the store's; `actor` is the author of its writes; `contents` is
    the cache.
    """

    longest_wait = NEAR_SECONDS
    """Seconds that `changes` should wait."""

    def __init__(
        self, hf: Holdfast, store: Store, *, deadline: Deadline, contents: Contents
    ) -> None:
        self.id, self.name = store.id, store.name
        self._memories = hf.memory_stores.memories
        self._deadline, self.contents = deadline, contents
        self._walks: OrderedDict[str, _Walk] = OrderedDict()
        self._lock = Lock()
        if hf.opened is not None and hf.opened.target.startswith(("http://", "https://")):
            self.longest_wait = FAR_SECONDS
        self.workspace, self.actor = deadline.call(lambda: (hf.workspace, hf.actor))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of all heads, in the basic view, within 30 seconds.

        For background threads.
        """
        return self._retried(lambda: self._memories.snapshot(self.id), each=SNAPSHOT_SECONDS)

    def changes(self, after: int, wait: float) -> ChangesPage:
        """Return the heads changed after *after*, waiting *wait* seconds for the first.

        There is no retry. Raise CursorExpired, and Unavailable if there is no response within the
        deadline after that.
        """
        return self._deadline.call(
            lambda: self._memories.changes(self.id, after, wait=wait),
            seconds=wait + self._deadline.seconds,
        )

    def content(self, memory: Memory, seconds: float | None = None) -> Memory:
        """Return *memory* with its content, from the cache by its hash, else the store.

        The store may return a newer head, even at another path; NotFound if it was deleted. It
        takes at most *seconds*, the deadline's if None.
        """
        known = self.contents.get(memory.content_sha256)
        if known is not None:
            return replace(memory, content=known.decode())
        found = self._retried(
            lambda: self._memories.retrieve(memory.id, memory_store_id=self.id, view="full"),
            within=seconds,
        )
        self._keep(found)
        return found

    def ahead(self, memory: Memory) -> None:
        """Record that *memory* is about to be read; read ahead in its directory.

        To be called at every open for reading, before the content is read; it takes a microsecond
        or two. After two cache misses in a row at the start of a directory, pages of 20 are
        fetched in the background in the order of paths, one page ahead of the reader, for as long
        as it moves forward.
        """
        directory = memory.path[: memory.path.rindex("/") + 1]
        with self._lock:
            walk = self._walks.get(directory)
            if walk is None or memory.path <= walk.at:
                walk = self._walks[directory] = _Walk()
                if len(self._walks) > READERS:
                    self._walks.popitem(last=False)
            self._walks.move_to_end(directory)
            missing = walk.opens < _SURE and self.contents.get(memory.content_sha256) is None
            fetch = walk.goes_on(memory.path, missing=missing)
        if fetch and not self._deadline.start(partial(self._fetch, directory, walk)):
            walk.fetching = False

    def apply(
        self, edits: Sequence[Edit], edit_id: str, seconds: float | None = None
    ) -> list[Applied]:
        """Apply *edits* in one transaction, all or none, and return their results.

        It takes at most *seconds*, the deadline's if None.

        The same *edit_id* again returns the first result and changes nothing. After Unavailable
        with `written` None the edits are in doubt: they may have been applied, or be applied
        later, and only the same edits with the same id resolve that. Until then no other edit of
        these memories may be sent: it could be applied before them, and their appended text would
        be added twice.
        """
        return self._retried(
            partial(self._memories.apply, self.id, edits, edit_id=edit_id),
            within=seconds,
            unsure=True,
        )

    def _retried(
        self,
        work: Callable[[], T],
        *,
        each: float | None = None,
        within: float | None = None,
        unsure: bool = False,
    ) -> T:
        """Return *work*(), with retries after temporary failures until the deadline.

        *each*: time limit of one try in seconds. *within*: seconds that remain of the deadline.
        *unsure*: if one try may have been applied, the last error's `written` is None.
        """
        over = time.monotonic() + (self._deadline.seconds if within is None else within)
        tries, unknown = 0, False
        while True:
            try:
                return self._deadline.call(work, seconds=each or over - time.monotonic())
            except Unavailable as error:
                unknown = unknown or error.written is None
                error.written = None if unsure and unknown else False
                pause = max(PAUSES[min(tries, len(PAUSES) - 1)], error.retry_after or 0.0)
                if not _heals(error) or time.monotonic() + pause >= over:
                    raise
                time.sleep(pause)
                # A busy machine sleeps for longer; a call without time would hide the error.
                if time.monotonic() >= over:
                    raise
            tries += 1

    def _fetch(self, directory: str, walk: "_Walk") -> None:
        try:
            page = self._memories.list(
                self.id,
                path_prefix=directory,
                depth=1,
                view="full",
                limit=PAGE,
                page=walk.next_page,
            )
            for each in page.data:
                if isinstance(each, Memory):
                    self._keep(each)
            walk.next_page, walk.ended = page.next_page, page.next_page is None
            walk.from_ = page.data[0].path if page.data else ""
        except BaseException:
            walk.ended = True
            raise
        finally:
            walk.fetching = False

    def _keep(self, memory: Memory) -> None:
        if memory.content is not None:
            self.contents.put(memory.content_sha256, memory.content.encode())


_SURE = 2
"""Opens after which a directory counts as read file by file."""


class _Walk:
    """Progress of one reader through a directory, in the order of paths."""

    def __init__(self) -> None:
        self.at = ""
        self.opens = 0
        self.from_ = ""
        """First path of the page last fetched: a reader there needs the next page."""
        self.next_page: str | None = None
        self.fetching = False
        self.ended = False

    def goes_on(self, path: str, *, missing: bool) -> bool:
        """Advance to *path*; return whether the caller should fetch the next page."""
        self.at, self.opens = path, self.opens + 1
        if self.opens <= _SURE and not missing:
            self.ended = True
        if self.opens < _SURE or self.ended or self.fetching or path < self.from_:
            return False
        self.fetching = True
        return True


def _heals(error: Unavailable) -> bool:
    return error.reason in HEALING and not isinstance(error, Corrupt | TooNew)
