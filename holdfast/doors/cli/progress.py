"""A bar on a terminal for work that takes longer than a second."""

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from threading import Timer

AFTER = 1.0
"""Seconds that nobody minds waiting for without a sign of life."""

Told = Callable[[int], None]
"""Called with how many things went so far."""


@contextmanager
def bar(what: str, *, after: float = AFTER) -> Generator[Told]:
    """Show that *what* is under way, on standard error, once *after* seconds have passed.

    Gives a function to be told how many things went so far.
    """
    if not sys.stderr.isatty():
        yield _unheard
        return
    with ExitStack() as drawn:
        pulse = _Pulse(what, drawn)
        timer = Timer(after, pulse.draw)
        timer.daemon = True
        timer.start()
        try:
            yield pulse.tell
        finally:
            timer.cancel()
            timer.join()


class _Pulse:
    def __init__(self, what: str, drawn: ExitStack) -> None:
        self._what, self._drawn = what, drawn
        self._show: Callable[[str], None] | None = None
        self._done = 0

    def draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        progress = self._drawn.enter_context(
            Progress(
                *columns,
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        )
        task = progress.add_task(self._what, total=None)
        self._show = lambda text: progress.update(task, description=text)
        self.tell(self._done)

    def tell(self, done: int) -> None:
        self._done = done
        if self._show and done:
            self._show(f"{self._what}: {done:,}")


def _unheard(_: int) -> None:
    """Nobody looks."""
