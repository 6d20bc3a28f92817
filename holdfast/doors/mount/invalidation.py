"""What the kernel must forget: which node each directory is, and the threads that tell it."""

import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

THREADS = 4
"""A notice waits while a request in its directory is under way; others go past it."""


class Directories:
    """The kernel's node id of each directory in which it has asked for a name.

    libfuse's path interface hides node ids, but a name can only be dropped by its directory's.
    A node that is gone does no harm: the kernel answers that it knows no such name.
    """

    def __init__(self, root: int = 1) -> None:
        self._nodes = {"": root}
        self._mutex = threading.Lock()

    def learn(self, directory: str, node: int) -> None:
        """Remember that *directory* ("" for the root) is *node*."""
        self._nodes[directory] = node

    def node(self, directory: str) -> int | None:
        """Return the node of *directory*, or None if the kernel never asked for a name in it."""
        return self._nodes.get(directory)

    def moved(self, old: str, new: str) -> None:
        """Carry what is known of *old*, and of all below it, over to *new*."""
        below = f"{old}/"
        with self._mutex:
            for path in [*self._nodes]:
                if path == old or path.startswith(below):
                    self._nodes[new + path[len(old) :]] = self._nodes.pop(path)

    def removed(self, directory: str) -> None:
        """Forget *directory*."""
        self._nodes.pop(directory, None)


class Notices:
    """Sends notices from threads of their own, which hold no lock.

    Inside a handler a notice would wait for a lock of the kernel that the request itself holds.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._change = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._under_way = 0
        self._closed = False

    def put(self, notice: Callable[[], None]) -> None:
        """Send *notice* soon."""
        with self._change:
            if self._closed:
                return
            self._waiting.append(notice)
            if self._idle >= len(self._waiting) or len(self._threads) >= THREADS:
                self._change.notify_all()
                return
            thread = threading.Thread(
                target=self._send, name=f"holdfast-notices-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def settle(self, seconds: float) -> bool:
        """Wait at most *seconds* until what was put has been sent; return whether it has."""
        with self._change:
            return self._change.wait_for(
                lambda: not self._waiting and not self._under_way, timeout=seconds
            )

    def close(self, seconds: float) -> bool:
        """Send nothing more; return whether every thread ended within *seconds*."""
        with self._change:
            self._closed = True
            self._waiting.clear()
            self._change.notify_all()
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self) -> None:
        """Send what comes until closed."""
        while notice := self._next():
            try:
                notice()
            except Exception:
                logger.exception("a notice to the kernel failed")
            finally:
                with self._change:
                    self._under_way -= 1
                    self._change.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """Wait for a notice; return None once closed."""
        with self._change:
            self._idle += 1
            self._change.wait_for(lambda: self._waiting or self._closed)
            self._idle -= 1
            if self._closed:
                return None
            self._under_way += 1
            return self._waiting.popleft()
