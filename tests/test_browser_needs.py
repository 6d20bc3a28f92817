"""What becomes of tests that open a browser, on a machine without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "waivers", "-p", "browser_needs")
MARKED = """
import pytest

@pytest.mark.browser
def test_one(): pass

def test_other(): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of a test that is marked and one that is not."""
    (tmp_path / "test_marked.py").write_text(MARKED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    return tmp_path


def run(folder: Path, waived: str) -> tuple[int, str]:
    """Run the tests of *folder* where no program is found."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        [*PYTEST, f"--basetemp={folder / 'tmp'}", str(folder)],
        env=environment | {"PYTHONPATH": str(TESTS), "PATH": str(folder), "HOLDFAST_WAIVE": waived},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("waived", ["", "fuse"])
def test_they_fail_and_say_what_to_install(folder: Path, waived: str) -> None:
    code, says = run(folder, waived)

    assert code == 1
    assert "1 passed, 1 error" in says
    assert "Chromium is not installed. Debian, Ubuntu: apt install chromium." in says


def test_waived_ones_are_counted_and_not_called_skipped(folder: Path) -> None:
    code, says = run(folder, "browser")

    assert code == 0
    assert "1 passed, 1 waived" in says
    assert "1 tests that need browser were not run: HOLDFAST_WAIVE=browser" in says
