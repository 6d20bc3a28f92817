"""Databases and HTTP servers shared by tests, with a workspace for each test."""

import os
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import NamedTuple

import uvicorn

from holdfast.doors.http.app import make_app
from holdfast.doors.http.request import MakeSubApp
from holdfast.ground.clock import Clock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


@contextmanager
def serving(
    hf: Holdfast,
    *,
    clock: Clock,
    strict: bool = False,
    models: Sequence[str] = (),
    make_subapp: MakeSubApp | None = None,
) -> Generator[str]:
    """Serve *hf* over HTTP until the block ends; yield the server's URL.

    Requests may name *models*.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            make_app(hf, strict=strict, clock=clock, models=models, make_subapp=make_subapp),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        # Connections before the thread accepts wait in the socket's queue.
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


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
