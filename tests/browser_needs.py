"""Tests marked `browser` fail where this machine has no Chromium, and say how to have it.

HOLDFAST_WAIVE=browser waives them.
"""

import shutil
from typing import Final

import pytest
from waivers import WAIVE, is_waived, waive

MARKER: Final = "browser"
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of the system's Chromium; None if there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARKER) is None:
        return
    if is_waived(MARKER):
        waive(MARKER)
    if chromium() is None:
        message = (
            "This test opens a browser, and Chromium is not installed."
            f" Debian, Ubuntu: apt install chromium.\nWaive: {WAIVE}={MARKER}"
        )
        pytest.fail(message, pytrace=False)
