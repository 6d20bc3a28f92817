"""`holdfast mcp` as a process, and messages as lines of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fork_server import ForkedProcess, forked
from mcp import StdioServerParameters

COMMAND = [sys.executable, "-m", "holdfast.doors.cli.main", "mcp"]
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a user whose files are in *home*."""
    kept = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
    return {**kept, "HOME": str(home), "LOGNAME": "ada", "USER": "ada", **more}


def parameters(home: Path, *arguments: str, **more: str) -> StdioServerParameters:
    """Return what the official client starts."""
    command, *rest = forked("mcp", *arguments)
    return StdioServerParameters(command=command, args=rest, env=environment(home, **more))


class HostProcess:
    """A server process, and the messages that its host exchanges with it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self.line = process.stderr.readline().decode().strip()
        self._number = 0

    def write(self, *pieces: bytes) -> None:
        """Write bytes to standard input."""
        for piece in pieces:
            self._stdin.write(piece)
            self._stdin.flush()

    def send(self, message: object) -> None:
        """Send one message."""
        self.write(json.dumps(message).encode() + b"\n")

    def begin(self, method: str, params: object = None) -> int:
        """Send a request and return its id."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method}
        self.send(request if params is None else {**request, "params": params})
        return self._number

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        return json.loads(self.receive_line())

    def receive_line(self) -> bytes:
        """Return the bytes of the next message."""
        line = self._stdout.readline()
        assert line, "the server has ended"
        return line

    def answer(self, id: int) -> dict[str, Any]:
        """Return the response to the request *id*; others before it are dropped."""
        while (message := self.receive()).get("id") != id:
            pass
        return message

    def request(self, method: str, params: object = None) -> dict[str, Any]:
        """Return the response to a request."""
        return self.answer(self.begin(method, params))

    def shake_hands(self) -> None:
        """Open the connection as the handshake era does."""
        assert "result" in self.request("initialize", INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def begin_call(self, name: str, **arguments: object) -> int:
        """Call a tool and return the id of the request."""
        return self.begin("tools/call", {"name": name, "arguments": arguments})

    def call(self, name: str, **arguments: object) -> dict[str, Any]:
        """Return the result of a tool."""
        return self.answer(self.begin_call(name, **arguments))["result"]

    def end(self) -> int:
        """Close standard input, and return the exit code."""
        self._stdin.close()
        return self.process.wait(60)


@contextmanager
def started(
    home: Path,
    arguments: Iterable[str] = (),
    *,
    shaken: bool = True,
    command: Sequence[str] | None = None,
    **more: str,
) -> Generator[HostProcess]:
    """Start `holdfast mcp` by *command*, or forked, with a handshake if *shaken*."""
    pipe, env = subprocess.PIPE, environment(home, **more)
    line = forked("mcp", *arguments) if command is None else [*command, *arguments]
    with ForkedProcess[bytes](line, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
        try:
            host = HostProcess(process)
            if shaken:
                host.shake_hands()
            yield host
        finally:
            process.kill()
