"""HTTP server for tests, on a free loopback port, in a thread."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from threading import Thread

import uvicorn

from holdfast.doors.http.app import make_app
from holdfast.ground.clock import Clock
from holdfast.library.holdfast import Holdfast


@contextmanager
def serving(hf: Holdfast, *, clock: Clock, strict: bool = False) -> Generator[str]:
    """Serve *hf* over HTTP until the block ends; yield the server's URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            make_app(hf, strict=strict, clock=clock), log_config=None, timeout_graceful_shutdown=5
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
