"""Five operations pass through no more modules, functions and frames than the ceilings say."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FLOWS = Path(__file__).with_name("flows.py")

CEILINGS = {
    # Modules, functions, depth. They only fall, towards the targets beside them. The last rose
    # twice: when its runs got an owner, events for each part, and schemas with limits; and when
    # parts began to keep their messages, to wait for people and to store versions. Creates and
    # saves rose when writes of a kin became batches, and versions got the tier of their writer.
    # Their depth rose when the write of a lone caller began to run on the caller's own stack.
    "library create": (22, 95, 17),  # 16, 80, 10
    "HTTP create": (31, 146, 12),  # 25, 115, 11
    "recall": (21, 85, 9),  # 20, 90, 9
    "save on the mount": (34, 164, 22),  # 30, 150, 14
    "plan of one step": (37, 259, 13),  # 26, 180, 12
}
MOUNTED = "save on the mount"


@cache
def counts(*names: str) -> dict[str, list[int]]:
    """Return modules, functions and depth of each flow, counted by one command."""
    command = [sys.executable, str(FLOWS), *names]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(zip(names, map(json.loads, ran.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.fuse] if each == MOUNTED else []) for each in CEILINGS],
)
def test_an_operation_passes_through_no_more_than_its_ceilings(name: str) -> None:
    together = [name] if name == MOUNTED else [each for each in CEILINGS if each != MOUNTED]

    found = counts(*together)[name]

    above = [count for count, most in zip(found, CEILINGS[name], strict=True) if count > most]
    assert not above, f"modules, functions, depth: {found}, at most {CEILINGS[name]}"
