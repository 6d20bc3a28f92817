"""Invalidate the kernel's caches through notices."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import count

from holdfast.doors.mount.fuse.kernel import Attributes

logger = logging.getLogger(__name__)

THREADS = 4
"""A notice waits while a request changes its directory; notices of other directories do not."""
PAGES = 10_000
"""Nodes with recorded content; over this limit all are dropped, which costs a read each."""
ROOT = 1
"""The kernel's node id of the directory that is mounted."""

Notice = Callable[[], object]


def after(path: str, old: str, new: str) -> str:
    """Return *path* as it is after *old* was renamed to *new*."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class ChangeCounter:
    """Change counter of names and attributes: call it after each change."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.last = 0
        """The number of the last change, which only grows."""

    def __call__(self) -> None:
        """Record that something may have changed."""
        self.last = next(self._numbers)


class Directories:
    """The kernel's node id of each directory in which it has looked up a name.

    libfuse's path interface hides node ids, but a name can only be dropped by its directory's.
    A stale id does no harm: the kernel knows no such name there.
    """

    def __init__(self) -> None:
        self._nodes = {"/": ROOT}
        self._mutex = threading.Lock()

    def learn(self, directory: str, node: int) -> None:
        """Record that *directory* is *node*."""
        self._nodes[directory or "/"] = node

    def node(self, directory: str) -> int | None:
        """Return the node of *directory*, None if the kernel looked up no name in it."""
        return self._nodes.get(directory)

    def moved(self, old: str, new: str) -> None:
        """Move the node ids of *old*, and of all below it, to *new*."""
        with self._mutex:
            for path in [*self._nodes]:
                if (now := after(path, old, new)) != path:
                    self._nodes[now] = self._nodes.pop(path)

    def removed(self, directory: str) -> None:
        """Forget *directory*."""
        self._nodes.pop(directory, None)


class CachedPages:
    """The content (inode, mtime, size) that the kernel's pages of each node are from."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, int]] = {}

    def are_of(self, node: int, attributes: Attributes) -> bool:
        """Return whether the pages of *node* are current, and record them as current."""
        content = attributes.inode, attributes.mtime_ns, attributes.size
        if self._known.get(node) == content:
            return True
        if len(self._known) >= PAGES:
            self._known.clear()
        self._known[node] = content
        return False


class KernelInvalidator:
    """Send notices to the kernel from separate threads, in order for each directory.

    Inside a handler a notice would wait for a lock of the kernel that the request itself holds.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Notice]] = {}
        self._free: deque[str] = deque()
        """The directories with notices that no thread is sending."""
        self._change = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def put(self, directory: str, notice: Notice) -> None:
        """Queue *notice*, which is about *directory* or an entry in it."""
        with self._change:
            if self._closed:
                return
            if directory in self._waiting:
                self._waiting[directory].append(notice)
                return
            self._waiting[directory] = deque((notice,))
            self._free.append(directory)
            if self._idle < len(self._free) and len(self._threads) < THREADS:
                name = f"holdfast-notices-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait at most *seconds* until the queue is empty; return whether it is."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting, timeout=seconds)

    def close(self, seconds: float) -> bool:
        """Stop sending; return whether all threads ended, within *seconds* each."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        """Send queued notices until closed."""
        while directory := self._taken():
            while notice := self._next(directory):
                try:
                    notice()
                except Exception:
                    logger.exception("a notice to the kernel failed")

    def _taken(self) -> str | None:
        """Wait for a directory with notices and take it; return None once closed."""
        with self._change:
            self._idle += 1
            self._change.wait_for(lambda: self._free or self._closed)
            self._idle -= 1
            return None if self._closed else self._free.popleft()

    def _next(self, directory: str) -> Notice | None:
        """Return the next notice of *directory*; release it and return None if none."""
        with self._change:
            waiting = self._waiting[directory]
            if waiting and not self._closed:
                return waiting.popleft()
            del self._waiting[directory]
            self._change.notify_all()
            return None


class KernelCaches:
    """The `kernel.Kernel` of a FUSE mount: invalidate caches through notices.

    *drop_content* of a path returns False if libfuse does not know the path; *drop_name* takes
    a directory's node and a name in it.
    """

    def __init__(
        self,
        step_aside: Callable[[], None],
        drop_content: Callable[[bytes], bool],
        drop_name: Callable[[int, bytes], object],
        *,
        notices: KernelInvalidator,
        directories: Directories,
        touched: ChangeCounter,
    ) -> None:
        self.step_aside = step_aside
        self._drop_content, self._drop_name = drop_content, drop_name
        self._notices, self._directories, self._touched = notices, directories, touched

    def forget_content(self, path: str) -> None:
        """Invalidate the kernel's data and attributes of *path*."""
        self._touched()
        directory, _, name = path.rpartition("/")
        place = directory or "/"
        self._notices.put(place, lambda: self._send_content(path, place, name))

    def forget_name(self, directory: str, name: str) -> None:
        """Invalidate the kernel's entry *name* in *directory*."""
        self._touched()
        self._notices.put(directory, lambda: self._send_name(directory, name))

    def _send_content(self, path: str, directory: str, name: str) -> None:
        """Invalidate by path, or by name if libfuse may not know the path yet."""
        if not self._drop_content(os.fsencode(path)):
            self._send_name(directory, name)

    def _send_name(self, directory: str, name: str) -> None:
        """Invalidate the name, if the kernel ever looked up a name in *directory*."""
        node = self._directories.node(directory)
        if node is not None and name:
            self._drop_name(node, os.fsencode(name))
