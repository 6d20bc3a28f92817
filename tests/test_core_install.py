"""The first five minutes: the core alone, without any extra, remembers and recalls."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SHOWN = """
import holdfast

ltm = holdfast.open().longterm("ada", enabled=True)
ltm.remember("Ada prefers tabs over spaces", kind="preference")
print([found.text for found in ltm.recall("tabs or spaces in Ada's code?")])
print(ltm.status().mode, ltm.status().reason)
"""


def core() -> set[str]:
    """Return the distributions that an install without extras brings."""
    found: set[str] = set()
    waiting = ["holdfast"]
    while waiting:
        name = waiting.pop()
        for line in distribution(name).requires or ():
            needed = re.split(r"[^\w.-]", line, maxsplit=1)[0]
            if "extra ==" not in line and needed not in found:
                found.add(needed)
                waiting.append(needed)
    return found


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Give a folder that holds the core's distributions and holdfast, and nothing else."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "holdfast").symlink_to(ROOT / "holdfast")
    for name in core():
        of = distribution(name)
        for top in {file.parts[0] for file in of.files or () if file.parts[0] != ".."}:
            (site / top).symlink_to(str(of.locate_file(top)))
    return site


def run(code: str, site: Path, home: Path) -> str:
    """Run *code* with nothing installed but what is in *site*, and without a key or a proxy."""
    ran = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", code],
        env={"PYTHONPATH": str(site), "HOME": str(home), "PATH": os.environ["PATH"]},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_it_is_a_handful_of_distributions() -> None:
    assert core() >= {"apsw", "msgspec"}
    assert len(core()) < 10


def test_no_extra_can_be_imported_there(site: Path, tmp_path: Path) -> None:
    extras = ("httpx", "typer", "starlette", "numpy", "psycopg", "pydantic_ai")

    shown = run(
        f"import importlib.util as u; print([n for n in {extras!r} if u.find_spec(n)])",
        site,
        tmp_path,
    )

    assert shown == "[]\n"


def test_four_lines_remember_and_recall(site: Path, tmp_path: Path) -> None:
    first, second = (run(SHOWN, site, tmp_path) for _ in range(2))

    assert first == second == "['Ada prefers tabs over spaces']\nlexical None\n"
