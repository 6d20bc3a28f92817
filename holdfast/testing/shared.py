"""What many tests share: a database or a server, each test in a workspace of its own."""

import os
from itertools import count
from typing import NamedTuple

from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

_numbers = count()


class Shared(NamedTuple):
    """A handle that many tests act through, and the clock it goes by."""

    hf: Holdfast
    clock: FrozenClock


class Server(NamedTuple):
    """A server that many tests ask, the handle it serves, and the clock it goes by."""

    url: str
    hf: Holdfast
    clock: FrozenClock


def new_workspace() -> str:
    """Return a workspace that no other test of this run uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"
