"""A word to steps that are at work, or will be: kept in order, said before the next request."""

from collections.abc import Callable, Iterable
from threading import RLock
from typing import Literal

from pydantic_ai.exceptions import UserError

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.text import encoded

Deliver = Callable[[str], None]
"""Puts a text before the next request; UserError when there will be none."""


class Steering:
    """The steps of a run that can be spoken to. Any thread may call."""

    def __init__(self) -> None:
        self._steps: dict[str, Inbox] = {}
        self._lock = RLock()

    def expect(self, steps: Iterable[str]) -> None:
        """Let what is said to *steps* wait until they start."""
        with self._lock:
            for step in steps:
                self._steps.setdefault(step, Inbox(step, self._lock))

    def started(self, step: str) -> "Inbox":
        """Return what is said to *step*, which runs from now on."""
        with self._lock:
            known = self._steps.get(step)
            if known is None or known.state == "ended":
                self._steps[step] = known = Inbox(step, self._lock)
            known.state = "running"
            return known

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Say *text* to *step*, or to all that run; return which; NotFound if it has ended."""
        if not encoded("text", text).strip():
            raise InvalidInput("text", "must not be blank")
        with self._lock:
            if step is None:
                running = [each for each in self._steps.values() if each.state == "running"]
                return [each.step for each in running if each.take(text)]
            inbox = self._steps.get(step)
            if inbox is None or not inbox.take(text):
                raise NotFound("step", step)
            return [step]


class Inbox:
    """What was said to one step, all of it: a second try hears it again."""

    def __init__(self, step: str, lock: RLock) -> None:
        self.step = step
        self.state: Literal["expected", "running", "ended"] = "expected"
        self._said: list[str] = []
        self._deliver: Deliver | None = None
        self._lock = lock

    def take(self, text: str) -> bool:
        """Keep *text* and hand it on; False when the step has ended."""
        if self.state == "ended":
            return False
        if self._deliver is not None:
            try:
                self._deliver(text)
            except UserError:
                return False
        self._said.append(text)
        return True

    def deliver_to(self, deliver: Deliver) -> None:
        """Hand everything said so far to *deliver*, and what is said from now on."""
        with self._lock:
            self._deliver = deliver
            for text in self._said:
                deliver(text)

    def wait(self) -> None:
        """Let what is said wait until there is somebody to hand it to."""
        with self._lock:
            self._deliver = None

    def end(self) -> None:
        """Take nothing more."""
        with self._lock:
            self.state, self._deliver = "ended", None
