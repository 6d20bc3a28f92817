"""A bar on a terminal for work that takes longer than a second."""

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from threading import Timer

AFTER = 1.0
"""Seconds that nobody minds waiting for without a sign of life."""


@contextmanager
def bar(what: str, *, after: float = AFTER) -> Generator[None]:
    """Show that *what* is under way, on standard error, once *after* seconds have passed."""
    if not sys.stderr.isatty():
        yield
        return
    with ExitStack() as drawn:
        timer = Timer(after, _draw, (what, drawn))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _draw(what: str, drawn: ExitStack) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = drawn.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    progress.add_task(what, total=None)
