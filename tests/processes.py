"""Functions in processes that are forked from one that has imported what runs need."""

import multiprocessing
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from signal import SIGKILL

import pytest

TESTS = Path(__file__).parent
SECONDS = 120
"""How long a process may take."""
IMPORTED = [
    "holdfast.doors.cli.main",
    "holdfast.engines.postgres",
    "holdfast.runtime.plans.dbos",
    "holdfast.runtime.runs.worker",
    "holdfast.testing.contracts.engine",
    "contracts.worker",
    "runtime.lives",
]


@cache
def context() -> ForkServerContext:
    """Return the context whose processes are forked from one server.

    The first call starts the server, which imports what all of its processes need.
    """
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        # It imports before it is given the paths of this process.
        patch.setenv("PYTHONPATH", str(TESTS))
        forkserver.ensure_running()
    return found


def begun(target: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """Let *target* work on *arguments* in a process of its own."""
    process = context().Process(target=target, args=arguments)
    process.start()
    return process


def completed(target: Callable[..., object], *arguments: object) -> None:
    """Let *target* come to its end in a process of its own."""
    process = begun(target, *arguments)
    process.join(SECONDS)
    assert process.exitcode == 0


def killed(target: Callable[..., object], *arguments: object) -> None:
    """Let *target* work in a process of its own, until that kills itself."""
    process = begun(target, *arguments)
    process.join(SECONDS)
    assert process.exitcode == -SIGKILL
