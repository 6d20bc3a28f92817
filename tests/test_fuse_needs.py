"""What becomes of tests that mount, on a machine that cannot and on one that can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "waivers", "-p", "fuse_needs")
MARKED = """
import pytest

@pytest.mark.fuse
def test_one(): pass

@pytest.mark.fuse
def test_two(): pass

def test_other(): pass
"""
WITHOUT_FUSE = """
from pathlib import Path

import fuse_needs

from holdfast.doors.mount.process.system import Machine

fuse_needs.MACHINE = Machine(device=Path("/dev/none"), load=lambda name: open(name))
"""


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    """Runs two tests that are marked and one that is not, on a machine without FUSE."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "test_marked.py").write_text(MARKED)
        (folder / "conftest.py").write_text(WITHOUT_FUSE)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = fuse\n")

    def __call__(self, *options: str, waive: str | None = None) -> tuple[int, str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment.pop("HOLDFAST_WAIVE", None)
        ran = subprocess.run(
            [*PYTEST, f"--basetemp={self._folder / 'tmp'}", *options, str(self._folder)],
            env=environment
            | {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            | ({} if waive is None else {"HOLDFAST_WAIVE": waive}),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return ran.returncode, ran.stdout


def test_they_fail_and_say_what_the_machine_lacks(run: Run) -> None:
    code, says = run()

    assert code == 1
    assert "1 passed, 2 errors" in says
    assert "libfuse3 is not installed. Debian, Ubuntu: apt install libfuse3-3 fuse3." in says
    assert "/dev/none is missing. In a container: --device /dev/fuse --cap-add SYS_ADMIN." in says


@pytest.mark.parametrize(
    "options", [(), ("-p", "xdist.plugin", "-n", "2")], ids=["alone", "spread over processes"]
)
def test_waived_ones_are_counted_and_not_called_skipped(run: Run, options: tuple[str, ...]) -> None:
    code, says = run(*options, waive="fuse")

    assert code == 0
    assert "1 passed, 2 waived" in says
    assert "2 tests that need fuse were not run: HOLDFAST_WAIVE=fuse" in says
    assert "skipped" not in says


def test_another_waiver_is_none_of_theirs(run: Run) -> None:
    assert run(waive="network")[0] == 1
