"""Runs every benchmark, keeps what was found, and renders the page and its plots."""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import argparse
import os
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

WRITES = ("embedded", "durable", "longterm", "postgres", "http", "peers")
"""Benchmarks of which the writes are run with an earlier state of the code too, if one is given."""


def main() -> int:
    """Return 0, or 1 when a figure is below half its goal or too good to be true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small data, no page")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="measure writes of that state as well"
    )
    given = parser.parse_args()
    options = ["--quick"] if given.quick else ["--stages"]
    failed = False
    reports: list[Report] = []
    with TemporaryDirectory() as folder:
        for name in BENCHES:
            found = Path(folder) / f"{name}.json"
            failed = _ran(name, options, found) or failed
            report = msgspec.json.decode(found.read_bytes(), type=Report)
            if given.before and name in WRITES:
                _ran(name, [*options, "--writes"], found, package=given.before)
                earlier = msgspec.json.decode(found.read_bytes(), type=Report)
                report.before = {row.title: row.said() for row in earlier.rows}
            reports.append(report)
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


def _ran(name: str, options: list[str], found: Path, package: Path = HERE.parent) -> bool:
    """Run a benchmark with the package of the checkout *package*; return whether it failed."""
    python = str(APART.get(name, sys.executable))
    command = (python, str(HERE / f"{name}.py"), *options, "--json", str(found))
    # Before the package that is installed, which is that of one checkout.
    env = os.environ | {"PYTHONPATH": str(package.resolve())}
    return bool(subprocess.run(command, check=False, env=env, cwd=package).returncode)


if __name__ == "__main__":
    sys.exit(main())
