"""`holdfast serve` in a process of its own: forked, or as a person starts it."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fork_server import ForkedProcess, forked
from served import TLS


def command() -> Path:
    """Return where the command `holdfast` is installed.

    An environment of another SDK has none of its own: it lies inside the one that does.
    """
    prefix = Path(sys.prefix)
    places = [each / "bin" / "holdfast" for each in (prefix, *prefix.parents)]
    found = next((each for each in places if each.exists()), None)
    assert found is not None, "No `holdfast` beside this Python; `make test` installs it."
    return found


def environment() -> dict[str, str]:
    """Return the process's environment, without what would change a server or a client."""
    foreign = ("HOLDFAST_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


class Served(NamedTuple):
    """A server that runs, and the database it serves."""

    url: str
    db: Path
    forks: bool

    def run(self, *line: str) -> Any:
        """Run the command *line* straight on the database, and return what it answers."""
        asked = started(*line, "--db", self.db, "--json", forks=self.forks)
        ran = subprocess.run(asked, env=environment(), check=True, capture_output=True)
        return json.loads(ran.stdout)

    def asked(self, key: str = "any") -> Counter[tuple[str, str, int]]:
        """Return how many requests were answered so far, by route, method and status."""
        counted: Counter[tuple[str, str, int]] = Counter()
        url, headers = f"{self.url}/metrics", {"x-api-key": key}
        metrics = httpx.get(url, headers=headers, timeout=60, verify=TLS)
        for line in metrics.raise_for_status().text.splitlines():
            name, _, value = line.partition("} ")
            kind, _, labels = name.partition("{")
            if kind == "holdfast_http_requests_total":
                told = dict(each.split("=", 1) for each in labels.replace('"', "").split(","))
                counted[told["route"], told["method"], int(told["status"])] = int(float(value))
        return counted


def started(*line: str | Path, forks: bool) -> Sequence[str | Path]:
    """Return what starts the command *line*: a fork, or the command that is installed."""
    return forked(*line) if forks else [command(), *line]


@contextmanager
def serving(db: Path, *options: str, forks: bool = True) -> Generator[Served]:
    """Serve *db* on a free port of this machine, and see it end well when the block does."""
    fixed = ("--port", "0", "--no-access-log")
    line = started("serve", "--db", db, *fixed, *options, forks=forks)
    with ForkedProcess[str](line, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        says = process.stderr.readline()
        assert "listens on " in says, says + process.stderr.read()
        try:
            yield Served(says.split("listens on ")[1].split(",")[0], db, forks)
        finally:
            process.send_signal(signal.SIGTERM)
            _, after = process.communicate(timeout=60)
    assert (process.returncode, after) == (0, "")
