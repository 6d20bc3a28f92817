"""Tests that HOLDFAST_WAIVE waives by name: not run, and counted at the end of the run."""

import os
from collections import Counter
from typing import Any, NoReturn

import pytest

WAIVE = "HOLDFAST_WAIVE"
WAIVED = "waived"
_REASON = f"Skipped: {WAIVED} by {WAIVE}="


def is_waived(name: str) -> bool:
    """Return whether the environment waives the tests of *name*."""
    return name in os.environ.get(WAIVE, "").replace(",", " ").split()


def waive(name: str) -> NoReturn:
    """End the test that runs, as one of *name* that is waived."""
    pytest.skip(f"{WAIVED} by {WAIVE}={name}")


def _name(report: object) -> str | None:
    """Return the name by which the test of *report* was waived, or None."""
    reason: Any = getattr(report, "longrepr", None)
    if getattr(report, "outcome", "") != "skipped" or not reason:
        return None
    text = str(reason[-1])
    return text.removeprefix(_REASON) if text.startswith(_REASON) else None


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str] | None:
    return (WAIVED, "w", "WAIVED") if _name(report) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted = Counter(_name(report) for report in terminalreporter.stats.get(WAIVED, []))
    if counted:
        terminalreporter.section(WAIVED)
    for name, count in counted.items():
        terminalreporter.line(f"{count} tests that need {name} were not run: {WAIVE}={name}")
