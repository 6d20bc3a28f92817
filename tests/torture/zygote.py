"""A process that has imported the package, and lives that are forked from it and killed.

    python -m torture.zygote SOCKET

A fork takes milliseconds where an interpreter takes a quarter of a second, so that thousands of
lives are affordable. The process has no thread and no open database when it forks.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import holdfast

TESTS = Path(__file__).parent.parent


class Life(NamedTuple):
    """What a writer said until it was killed, by whole lines, and how it ended."""

    said: list[Any]
    status: int
    """The number of the signal that ended it, negative, or its exit code."""


class Zygote:
    """The process that lives are forked from; a context manager."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "torture.zygote", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=TESTS, pass_fds=[theirs.fileno()])
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
        self._process.wait(60)

    def life(
        self,
        module: str,
        *arguments: str,
        lines: int,
        seconds: float = 0.0,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Life:
        """Run the `main` of *module*, and kill it once it has said *lines* lines.

        Before the kill *meanwhile* is called, and then *seconds* pass. A life that ends by itself
        has a status other than that of SIGKILL.
        """
        read, write = os.pipe()
        with os.fdopen(read, "rb") as said:
            request = json.dumps([module, *arguments]).encode()
            socket.send_fds(self._socket, [request], [write])
            os.close(write)
            found = list[bytes]()
            try:
                found += [said.readline() for _ in range(lines)]
                meanwhile()
            finally:
                self._socket.send(str(seconds).encode())
                found += said.readlines()
                status = int(self._socket.recv(16))
        return Life([json.loads(line) for line in found if line.endswith(b"\n")], status)


def serve(channel: socket.socket) -> Sequence[str] | None:
    """Fork a life for each request; return its arguments in the life, and None at the end."""
    while True:
        request, handles, _, _ = socket.recv_fds(channel, 65_536, 1)
        if not request:
            return None
        arguments: list[str] = json.loads(request)
        import_module(arguments[0])
        child = os.fork()
        if child == 0:
            os.dup2(handles[0], 1)
            os.close(handles[0])
            channel.close()
            return arguments
        os.close(handles[0])
        seconds = float(channel.recv(64) or 0)
        handle = os.pidfd_open(child)
        select.select([handle], [], [], seconds)
        os.close(handle)
        os.kill(child, signal.SIGKILL)
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def end_of_a_thread(failed: threading.ExceptHookArgs) -> None:
    """End the process of a thread that failed: its life has another status than a killed one."""
    traceback.print_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
    os._exit(1)


def main() -> None:
    """Serve requests, and be each life that was forked."""
    with holdfast.open(":memory:") as hf:
        store = hf.memory_stores.create(name="loads what a first write loads")
        hf.memory_stores.memories.create(store.id, path="/a", content="b")
        hf.durable("agent").set("key", "value", category="note")
        ltm = hf.longterm("user", enabled=True)
        assert ltm is not None
        ltm.remember("It is imported before the fork")
    assert threading.active_count() == 1
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        threading.excepthook = end_of_a_thread
        sys.argv = list(arguments)
        import_module(arguments[0]).main()


if __name__ == "__main__":
    main()
