"""Runs every benchmark, keeps what was found, and renders the page and its plots."""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import argparse
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import render
from machine import here
from measure import Report

HERE = Path(__file__).parent
BENCHES = (
    *("embedded", "stores", "durable", "longterm", "state", "run_memory", "growth", "postgres"),
    *("runtime", "runs", "mount", "http", "console", "mcp", "startup", "adapters", "peers"),
)
SHARES = ("poisoning",)
"""Benchmarks of shares instead of ratios: the page has no section of them, `docs/trust.md` has."""
VENV = HERE.parent / ".venv"
APART = {
    "adapters": VENV / "hosts" / "bin" / "python",
    "peers": VENV / "peers" / "bin" / "python",
}
"""The interpreters that have the frameworks of the adapters, and the peers."""


def main() -> int:
    """Return 0, or 1 when a figure is below half its goal or too good to be true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small data, no page")
    given = parser.parse_args()
    options = ["--quick"] if given.quick else ["--stages"]
    failed = False
    reports: list[Report] = []
    with TemporaryDirectory() as folder:
        for name in BENCHES:
            found = Path(folder) / f"{name}.json"
            python = str(APART.get(name, sys.executable))
            command = (python, str(HERE / f"{name}.py"), *options, "--json", str(found))
            failed = bool(subprocess.run(command, check=False).returncode) or failed
            reports.append(msgspec.json.decode(found.read_bytes(), type=Report))
    for name in SHARES:
        ran = subprocess.run((sys.executable, str(HERE / f"{name}.py")), check=False)
        failed = bool(ran.returncode) or failed
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    name = f"{datetime.now(UTC):%Y-%m-%d}-{here().host}.json"
    results.joinpath(name).write_bytes(msgspec.json.format(msgspec.json.encode(reports), indent=1))
    if not given.quick:
        render.write(reports)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
