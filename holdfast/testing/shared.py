"""Databases and servers shared by tests, with a separate workspace for each test."""

import os
from itertools import count
from typing import NamedTuple

from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

_numbers = count()


class Shared(NamedTuple):
    """A handle shared by many tests, and its clock."""

    hf: Holdfast
    clock: FrozenClock


class Server(NamedTuple):
    """A server shared by many tests, with its handle and clock."""

    url: str
    hf: Holdfast
    clock: FrozenClock


def new_workspace() -> str:
    """Return a workspace that no other test of this run uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"
