"""The adapters of the `memory` tool, beside the oldest and the newest release of the SDK."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from wire.serving import environment

ROOT = Path(__file__).parents[2]
PROBE = ROOT / "tests" / "doors" / "adapters" / "adapter_probe.py"


def probed(python: str | Path) -> dict[str, Any]:
    """Return what a whole conversation through each adapter came to, by *python*'s SDK."""
    run = subprocess.run(
        [python, "-W", "error", PROBE],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_conversation_goes_with_the_oldest_sdk_as_with_the_newest(oldest: Path) -> None:
    before, now = probed(oldest), probed(sys.executable)

    assert (before.pop("sdk"), now.pop("sdk")[:2]) == ("0.97.0", "2.")
    assert before == now
    for way in ("plain", "awaited", "hopping"):
        assert before[way]["results"][1][0].startswith("File created successfully")
