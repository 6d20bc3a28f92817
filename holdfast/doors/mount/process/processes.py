"""The processes of mounts, watched from outside until they are gone."""

import os
import select
from collections.abc import Generator
from contextlib import contextmanager


class Watched:
    """One process, told by its number and by nothing that takes the number later."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def gone_within(self, seconds: float) -> bool:
        """Wait until the process is gone, for at most *seconds*; tell whether it is."""
        if self._file is None:
            return True
        return bool(select.select([self._file], [], [], max(0.0, seconds))[0])


@contextmanager
def watched(pid: int | None) -> Generator[Watched]:
    """Watch the process *pid*; None, and one that is gone already, is taken as gone."""
    try:
        file = None if pid is None else os.pidfd_open(pid)
    except ProcessLookupError:
        file = None
    try:
        yield Watched(file)
    finally:
        if file is not None:
            os.close(file)
