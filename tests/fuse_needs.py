"""Tests marked `fuse` fail where this machine cannot mount, and say what it lacks.

HOLDFAST_WAIVE=fuse waives them.
"""

import pytest
from waivers import WAIVE, is_waived, waive

from holdfast.doors.mount.process.system import HERE, needs

MARKER = "fuse"

MACHINE = HERE


def lacking() -> str:
    """Return what this machine lacks to mount, a line each; "" for nothing."""
    # Nobody but the tests' own user looks into their mounts.
    wanted = [need for need in needs(MACHINE) if need.name != "allow other"]
    return "\n".join(f"{need.name}: {need}" for need in wanted if not need.met)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARKER) is None:
        return
    if is_waived(MARKER):
        waive(MARKER)
    if lacks := lacking():
        message = f"This test mounts, which this machine cannot:\n{lacks}\nWaive: {WAIVE}={MARKER}"
        pytest.fail(message, pytrace=False)
