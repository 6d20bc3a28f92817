"""Tests marked `fuse` fail where this machine cannot mount, and say what it lacks.

HOLDFAST_WAIVE=fuse waives them by name: they are not run, and counted at the end of the run.
"""

import os

import pytest

from holdfast.doors.mount.process.system import HERE, needs

MARKER = "fuse"
WAIVE = "HOLDFAST_WAIVE"
WAIVED = "waived"

MACHINE = HERE


def is_waived() -> bool:
    return MARKER in os.environ.get(WAIVE, "").replace(",", " ").split()


def lacking() -> str:
    """Return what this machine lacks to mount, a line each; "" for nothing."""
    # Nobody but the tests' own user looks into their mounts.
    wanted = [need for need in needs(MACHINE) if need.name != "allow other"]
    return "\n".join(f"{need.name}: {need}" for need in wanted if not need.met)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARKER) is None:
        return
    if is_waived():
        item.user_properties.append((WAIVED, MARKER))
        pytest.skip(f"{WAIVED} by {WAIVE}={MARKER}")
    if lacks := lacking():
        message = f"This test mounts, which this machine cannot:\n{lacks}\nWaive: {WAIVE}={MARKER}"
        pytest.fail(message, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    waived = (WAIVED, MARKER) in map(tuple, getattr(report, "user_properties", []))
    return (WAIVED, "w", "WAIVED") if waived and report.outcome == "skipped" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    count = len(terminalreporter.stats.get(WAIVED, []))
    if count:
        terminalreporter.section(WAIVED)
        terminalreporter.line(f"{count} tests marked {MARKER} were not run: {WAIVE}={MARKER}")
