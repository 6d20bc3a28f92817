"""Ending a run before its time: said once, from anywhere, heard by all that runs."""

from collections.abc import Callable
from threading import Lock
from weakref import WeakSet


class Cancelling:
    """Whether a run is to end, and why. What belongs to *parent* ends with it, not it with them."""

    def __init__(self, parent: "Cancelling | None" = None) -> None:
        self._reason: str | None = None
        self._hearers: dict[object, Callable[[], None]] = {}
        self._children: WeakSet[Cancelling] = WeakSet()
        self._lock = Lock()
        if parent is not None:
            parent.adopt(self)

    @property
    def reason(self) -> str | None:
        """Why the run is to end; None while it is not."""
        return self._reason

    def cancel(self, reason: str) -> None:
        """Say that the run is to end; only the first reason counts."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            hearers, children = list(self._hearers.values()), list(self._children)
        for hear in hearers:
            hear()
        for child in children:
            child.cancel(reason)

    def heard_by(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Call *hear* when the run is to end, at once if it already is; return what ends that."""
        key = object()
        with self._lock:
            self._hearers[key] = hear
            late = self._reason is not None
        if late:
            hear()

        def off() -> None:
            with self._lock:
                self._hearers.pop(key, None)

        return off

    def adopt(self, child: "Cancelling") -> None:
        """Let *child* end with this, now if this has ended."""
        with self._lock:
            self._children.add(child)
            reason = self._reason
        if reason is not None:
            child.cancel(reason)
