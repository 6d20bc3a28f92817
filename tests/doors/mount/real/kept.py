"""Where a test's stores are kept, seen from beside the mount; and servers to reach it through."""

import select
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from doors.mount.real.mounting import SECONDS, Reaper, end, environment
from fork_server import ForkedHoldfast

import holdfast
from holdfast.library.holdfast import Holdfast


class Kept(NamedTuple):
    """Where stores are kept, and a handle on them that is not the mount's."""

    db: str
    hf: Holdfast

    def store(self, name: str = "Notes") -> str:
        """Make a store, and return its id."""
        return self.hf.memory_stores.create(name=name).id

    def session(self, *read_write: str, read_only: tuple[str, ...] = ()) -> str:
        """Make a session that attaches stores, and return its id."""
        access = {
            **dict.fromkeys(read_write, "read_write"),
            **dict.fromkeys(read_only, "read_only"),
        }
        attached = [
            {"type": "memory_store", "memory_store_id": each, "access": access[each]}
            for each in access
        ]
        return self.hf.sessions.create(
            agent="agent_1", environment_id="env_1", resources=attached
        ).id


@contextmanager
def opened(db: Path | str) -> Generator[Kept]:
    """Open *db* for a while."""
    with holdfast.open(db) as hf:
        yield Kept(str(db), hf)


class Server:
    """`holdfast serve` on one port, through all its lives."""

    def __init__(self, db: str, reaper: Reaper, log: Path) -> None:
        self.db, self._reaper, self._log = db, reaper, log
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.process = self._started()

    def start(self) -> None:
        """Start it again, in place of the one that was."""
        self.end()
        self.process = self._started()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self.process.kill()
        self.process.wait(SECONDS)

    def hang(self) -> None:
        """Let it neither answer nor end, until `go_on`."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, whatever state it is in."""
        self.go_on()
        end(self.process)
        self._reaper.say(f"leave {self.process.pid}")

    def _started(self) -> ForkedHoldfast:
        line = ["serve", f"--db={self.db}", f"--port={self._port}", "--no-mcp", "--no-console"]
        with self._log.open("ab") as log:
            out = log.fileno()
            process = ForkedHoldfast(
                *line, "--no-access-log", env=environment(None), out=out, err=out
            )
        self._reaper.say(f"watch {process.pid} -")
        pause = select.poll()
        while process.poll() is None:
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", self._port)) == 0:
                    return process
            pause.poll(20)
        raise AssertionError(self._log.read_text())


@contextmanager
def serving(db: str, reaper: Reaper, log: Path) -> Generator[Server]:
    """Serve *db* on a free port of this machine."""
    server = Server(db, reaper, log)
    try:
        yield server
    finally:
        server.end()
