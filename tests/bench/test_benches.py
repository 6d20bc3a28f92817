"""Every benchmark runs to its end and prints what it measured.

`make test` runs two of them, and with HOLDFAST_BENCHES=all (in `make torture`) all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
VENV = BENCH.parent / ".venv"
APART = {"adapters": "hosts", "peers": "peers"}
"""The environments that have the frameworks of the adapters, and the peers."""

QUICK = ["run_memory", "state"]
BENCHES = [
    *QUICK,
    "stores",
    "durable",
    "growth",
    "postgres",
    "longterm",
    "embedded",
    "runtime",
    "runs",
    pytest.param("mount", marks=pytest.mark.fuse),
    "http",
    pytest.param("console", marks=pytest.mark.browser),
    "mcp",
    "startup",
    "adapters",
    "peers",
]
SHARES = ["poisoning"]
"""Benchmarks of shares instead of ratios, which have no section of the page."""
ALL = os.environ.get("HOLDFAST_BENCHES") == "all"


def quick(name: str, kept: Path) -> "subprocess.CompletedProcess[str]":
    apart = VENV / APART[name] / "bin" / "python" if name in APART else sys.executable
    return subprocess.run(
        [str(apart), str(BENCH / f"{name}.py"), "--quick", "--rounds=1", "--json", str(kept)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("name", [*BENCHES, *SHARES] if ALL else QUICK)
def test_a_quick_run_prints_its_table_and_keeps_its_results(name: str, tmp_path: Path) -> None:
    ran = quick(name, tmp_path / "kept.json")

    assert ran.stderr == ""
    report: dict[str, Any] = json.loads((tmp_path / "kept.json").read_text())
    assert report["rows"]
    for row in report["rows"]:
        assert f"{row['what']} / {row['of']}: " in ran.stdout


def test_each_benchmark_is_run_tested_and_has_a_section_of_the_page() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
import run, render
print(*sorted(run.BENCHES), "|", *sorted(render._TITLES), "|", *sorted(run.SHARES))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    ran, titled, shares = shown.strip().split(" | ")
    tested = sorted(str(getattr(each, "values", [each])[0]) for each in BENCHES)
    assert ran.split() == titled.split() == tested
    assert shares.split() == SHARES


def test_a_page_is_rendered_from_kept_results(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
from pathlib import Path
import machine, render
from measure import Report, Row
render.DOCS = Path({str(tmp_path)!r})
row = Row(what="a <get>", of="raw", sense="at least", goal=0.5, rounds=[0.2, 0.3])
never = Row(what="b", of="rounds", sense="at most", goal=0, rounds=[0.0])
load = machine.Load(a_core=1.5)
render.write([Report(name="embedded", question="How fast?", quick=True, rounds=2, rows=[row, never],
    machine=machine.here(), load_before=load, load_after=load, curve={{"1": 5.0, "2": 9.0}},
    curves={{"get, µs": {{"10": 5.0, "100": 5.0}}}})])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    page = (tmp_path / "benchmarks.md").read_text()
    assert "a <get>: 0.25, where the goal is at least 0.5" in page
    assert "Others were at work" in page
    assert "| get, µs | 5 | 5 | 0.00 |" in page
    assert "a &lt;get&gt;" in (tmp_path / "plots" / "embedded.svg").read_text()
