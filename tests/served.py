"""`serve` as a process of its own, on a free port of this machine.

It is forked, but one that has several workers is an interpreter of its own.
"""

import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from fork_server import ForkedProcess, forked_code

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""What spares a client of such servers to read the certificates of this machine."""
SERVE = """
import sys
from functools import partial
from holdfast.doors.http.server import serve
target, host, port, workers, mcp = sys.argv[1:]
options = {}
if mcp:
    from holdfast.doors.mcp.http import HttpHosts
    options["subapp"] = partial(HttpHosts, workers=int(workers))
raise SystemExit(
    serve(target, host=host, port=int(port), workers=int(workers), access_log=False, **options)
)
"""


class Served:
    """A server process, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process, self.line = process, line
        found = re.search(r"http://\S+(?=,)", line)
        assert found, line
        self.url = found[0]

    @property
    def port(self) -> int:
        """The port where it listens."""
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """Kill the process, and wait until it is gone."""
        self.process.kill()
        self.process.wait(60)

    def tell(self, sig: signal.Signals) -> None:
        self.process.send_signal(sig)

    def code(self) -> int:
        return self.process.wait(60)


@contextmanager
def served(
    target: Path | str,
    host: str = "127.0.0.1",
    workers: int = 1,
    *,
    mcp: bool = False,
    port: int = 0,
) -> Generator[Served]:
    options = [str(target), host, str(port), str(workers), "mcp" if mcp else ""]
    if workers == 1:
        process = ForkedProcess[str](
            forked_code(SERVE, *options), stderr=subprocess.PIPE, text=True
        )
    else:
        command = [sys.executable, "-c", SERVE, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stderr is not None
            yield Served(process, process.stderr.readline())
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
