"""Tests that need npm packages, where npm's registry cannot be reached."""

from pathlib import Path

import pytest
from doors.mcp.node_packages import installed

CLOSED = "http://127.0.0.1:1"
"""An address at which nothing listens."""


@pytest.fixture(autouse=True)
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_WAIVE", raising=False)
    monkeypatch.setenv("npm_config_registry", CLOSED)
    monkeypatch.setenv("npm_config_cache", "/dev/null/none")


def test_they_fail_with_one_sentence_that_names_the_waiver(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        installed("some-package", tmp_path, "some-program")

    message = str(failed.value)
    assert message.startswith("npm did not install some-package, which this test needs (npm error")
    assert message.endswith("or waive such tests: HOLDFAST_WAIVE=npm")
    assert "\n" not in message


@pytest.mark.parametrize("names", ["npm", "fuse,npm", "fuse npm"])
def test_the_waiver_ends_them_before_npm_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setenv("HOLDFAST_WAIVE", names)

    with pytest.raises(pytest.skip.Exception, match=r"^waived by HOLDFAST_WAIVE=npm$"):
        installed("some-package", tmp_path, "some-program")
