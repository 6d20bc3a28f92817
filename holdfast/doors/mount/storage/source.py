"""One store through any handle.

The store is reached through a Holdfast handle, so that a SQLite file, PostgreSQL and a server are
alike. Only Holdfast's errors come out. What may heal in a moment is asked again until the deadline
is over; reading twice is harmless, and so is writing twice with one edit id.
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

# One cache serves all stores of a mount: equal contents are kept once, whoever has them.

ENTRY_BYTES = 256
"""What one content costs beyond its own bytes: its hash, and its place in the cache."""


class Contents:
    """At most *limit* bytes, of the contents that were used last; one too large is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def size_bytes(self) -> int:
        """How much is kept, of at most *limit*."""
        return self._size

    def get(self, sha256: str) -> bytes | None:
        """Return the content whose hash is *sha256*, or None."""
        with self._lock:
            content = self._kept.get(sha256)
            if content is not None:
                self._kept.move_to_end(sha256)
            return content

    def put(self, sha256: str, content: bytes) -> None:
        """Keep *content*, whose hash is *sha256*, in place of what was used longest ago."""
        if _cost(content) > self._limit:
            return
        with self._lock:
            if sha256 in self._kept:
                self._kept.move_to_end(sha256)
                return
            self._kept[sha256] = content
            self._size += _cost(content)
            while self._size > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self._size -= _cost(oldest)


def _cost(content: bytes) -> int:
    return len(content) + ENTRY_BYTES


T = TypeVar("T")

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds between one try and the next; the last again and again."""

HEALING = frozenset({"busy", "overloaded", "lost", "locked", "io"})
"""Reasons that may pass while a program waits; a full disk is told at once."""

SNAPSHOT_SECONDS = 30.0
"""What a snapshot may take: no program waits for one, and a large store's is long."""

PAGE = 20
"""Contents brought ahead at once: what the full view of a list holds at most."""

NEAR_SECONDS, FAR_SECONDS = 1.0, 10.0
"""How long to wait for changes of a database, and of a server, where each question is a request.

A server that hangs is noticed a deadline's time after that.
"""

READERS = 64
"""Directories that may be read file by file at once."""


class StoreSource:
    """One store of a mount. Threads share it.

    `id`, `name` and `workspace` are the store's, `actor` is who writes.
    """

    longest_wait = NEAR_SECONDS
    """Seconds that `changes` is best asked to wait."""

    def __init__(
        self, hf: Holdfast, store: Store, *, deadline: Deadline, contents: Contents
    ) -> None:
        self.id, self.name = store.id, store.name
        self._memories = hf.memory_stores.memories
        self._deadline, self._contents = deadline, contents
        self._walks: OrderedDict[str, _Walk] = OrderedDict()
        self._lock = Lock()
        if hf.opened is not None and hf.opened.target.startswith(("http://", "https://")):
            self.longest_wait = FAR_SECONDS
        self.workspace, self.actor = deadline.call(lambda: (hf.workspace, hf.actor))

    def snapshot(self) -> Snapshot:
        """Return all heads of one moment, in the basic view; for a thread that nobody waits for."""
        return self._patiently(lambda: self._memories.snapshot(self.id), each=SNAPSHOT_SECONDS)

    def changes(self, after: int, wait: float) -> ChangesPage:
        """Return the heads changed after *after*, waiting *wait* seconds for the first.

        It is asked once. Raises CursorExpired, and Unavailable when there is no answer a
        deadline's time after that.
        """
        return self._deadline.call(
            lambda: self._memories.changes(self.id, after, wait=wait),
            seconds=wait + self._deadline.seconds,
        )

    def cached(self, sha256: str) -> bytes | None:
        """Return the content whose hash is *sha256* if it is in memory; never waits."""
        return self._contents.get(sha256)

    def content(self, memory: Memory, seconds: float | None = None) -> Memory:
        """Return *memory* with its content, from the cache by its hash, else as it is now.

        That may be a newer head, even at another path; NotFound if it is gone. It takes at most
        *seconds*, the deadline's if None.
        """
        known = self._contents.get(memory.content_sha256)
        if known is not None:
            return replace(memory, content=known.decode())
        found = self._patiently(
            lambda: self._memories.retrieve(memory.id, memory_store_id=self.id, view="full"),
            within=seconds,
        )
        self._keep(found)
        return found

    def keep(self, sha256: str, content: bytes) -> None:
        """Keep *content*, whose hash is *sha256*, in memory: who writes a file reads it next."""
        self._contents.put(sha256, content)

    def ahead(self, memory: Memory) -> None:
        """Note that *memory* is about to be read; bring what may be read next into the cache.

        To be called at every open for reading, before the content is asked for; it takes a
        microsecond or two. Once two contents in a row were missing at the beginning of a
        directory, pages of 20 are fetched in the background in the order of paths, one page
        before the reader, for as long as it goes forward.
        """
        directory = memory.path[: memory.path.rindex("/") + 1]
        with self._lock:
            walk = self._walks.get(directory)
            if walk is None or memory.path <= walk.at:
                walk = self._walks[directory] = _Walk()
                if len(self._walks) > READERS:
                    self._walks.popitem(last=False)
            self._walks.move_to_end(directory)
            missing = walk.opens < _SURE and self._contents.get(memory.content_sha256) is None
            fetch = walk.goes_on(memory.path, missing=missing)
        if fetch and not self._deadline.start(partial(self._fetch, directory, walk)):
            walk.fetching = False

    def apply(
        self, edits: Sequence[Edit], edit_id: str, seconds: float | None = None
    ) -> list[Applied]:
        """Return what each of *edits* came to, all in one transaction or none.

        It takes at most *seconds*, the deadline's if None.

        The same *edit_id* again returns the first answer and changes nothing. After Unavailable
        whose `written` is None they may have been done, or be done later: only the same edits
        with the same id tell. Until those are answered, no other edit of these memories may be
        sent: it could be done before them, and what they append would be there twice.
        """
        return self._patiently(
            lambda: self._memories.apply(self.id, edits, edit_id=edit_id),
            within=seconds,
            unsure=True,
        )

    def _patiently(
        self,
        work: Callable[[], T],
        *,
        each: float | None = None,
        within: float | None = None,
        unsure: bool = False,
    ) -> T:
        """Return *work*(), asked until the deadline is over, each time for at most *each* seconds.

        *within*: seconds that are left of the deadline.

        *unsure*: once it may have been done, the last error's `written` is None.
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
            tries += 1
            time.sleep(pause)

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
            self._contents.put(memory.content_sha256, memory.content.encode())


_SURE = 2
"""Opens after which it is clear whether a directory is read file by file."""


class _Walk:
    """One reader's way through a directory, in the order of paths."""

    def __init__(self) -> None:
        self.at = ""
        self.opens = 0
        self.from_ = ""
        """Where the page last fetched begins: a reader who is there needs the next."""
        self.next_page: str | None = None
        self.fetching = False
        self.ended = False

    def goes_on(self, path: str, *, missing: bool) -> bool:
        """Go on to *path*; tell whether the next page is to be fetched now, by who asks."""
        self.at, self.opens = path, self.opens + 1
        if self.opens <= _SURE and not missing:
            self.ended = True
        if self.opens < _SURE or self.ended or self.fetching or path < self.from_:
            return False
        self.fetching = True
        return True


def _heals(error: Unavailable) -> bool:
    return error.reason in HEALING and not isinstance(error, Corrupt | TooNew)
