"""What can happen to a network, and what can go wrong with it, happens in some test."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from holdfast.ground import errors
from holdfast.memories.run.records.event import ENDS, LIVE, REASONS

ROOT = Path(__file__).parents[3]
RAISED = (
    errors.AgentNameTaken,
    errors.ChecksumMismatch,
    errors.HistoryGone,
    errors.InvalidInput,
    errors.LimitExceeded,
    errors.NoAgentEnabled,
    errors.NoModel,
    errors.NoRouter,
    errors.NotFound,
    errors.NotRunnable,
    errors.PreconditionFailed,
    errors.ResultDiffers,
    errors.RunFailed,
    errors.ToolNameTaken,
    errors.UnknownFormat,
)


@cache
def all_tests() -> str:
    """Return all that tests of networks, calls, states and histories say."""
    folders = (
        "tests/runtime",
        "tests/memories/state",
        "tests/memories/threads",
        "holdfast/testing",
    )
    files = [each for folder in folders for each in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(each.read_text() for each in files if each != Path(__file__))


TOLD = (
    "run.started",
    "router.decided",
    "agent.started",
    "agent.finished",
    "agent.skipped",
    "model.requested",
    "model.responded",
    "tool.called",
    "tool.returned",
    "value.changed",
    "value.read",
    "history.omitted",
    "mcp.unavailable",
    *ENDS,
)
"""The events of networks and agents."""


@pytest.mark.parametrize("type", sorted({*TOLD, *LIVE}))
def test_every_event_is_told_in_some_test(type: str) -> None:
    assert f'"{type}"' in all_tests()


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
def test_every_error_is_raised_in_some_test(error: type[errors.HoldfastError]) -> None:
    assert re.search(rf"(raises|refus\w+|bad)\([^\n]*\b{error.__name__}\b", all_tests())


ENDING = ("RunEnd", "Stopped", "StepError", "_end", "_fail")
"""What an end is made of: its first argument is the reason."""


def reasons_given() -> Iterator[tuple[str, str]]:
    """Yield each reason that the runtime gives, with the place."""
    for path in sorted((ROOT / "holdfast" / "runtime").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            given: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                given = node.args[:1] if name in ENDING else []
            elif isinstance(node, ast.AsyncFunctionDef) and node.name == "may_request":
                returns = [each for each in ast.walk(node) if isinstance(each, ast.Return)]
                given = [each.value for each in returns if each.value]
            for each in given:
                for text in texts_in(each):
                    yield f"{path.relative_to(ROOT)}:{each.lineno}", text


def texts_in(given: ast.AST) -> Iterator[str]:
    """Yield each text that *given* may be, but for the arguments of calls."""
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        yield given.value
    parts = () if isinstance(given, ast.Call | ast.Compare) else ast.iter_child_nodes(given)
    for each in parts:
        yield from texts_in(each)


def test_each_reason_that_ends_a_run_or_a_part_is_in_the_one_table() -> None:
    given = list(reasons_given())

    assert len(given) > 20
    assert [each for each in given if each[1] not in REASONS] == []


def test_a_reason_decides_the_status_of_the_end() -> None:
    completed = {each for each, status in REASONS.items() if status == "completed"}

    assert completed == {"done", "no_agent", "stopped", "hook_stop"}
    assert REASONS["cancelled"] == "cancelled"
    assert {REASONS["max_turns"], REASONS["max_iterations"], REASONS["internal"]} == {"failed"}


def test_the_page_on_runs_has_every_reason_with_its_status() -> None:
    page = (ROOT / "docs" / "runs.md").read_text().split("## Reasons", 1)[1]
    rows = re.findall(r"^\| ((?:`\w+` ?)+)\| (\w+) \|", page, re.MULTILINE)

    told = {reason: status for names, status in rows for reason in re.findall(r"\w+", names)}

    assert told == REASONS


def test_the_page_on_networks_has_the_reasons_of_completed_runs_first() -> None:
    page = (ROOT / "docs" / "networks.md").read_text().split("## How a run ends", 1)[1]
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+)\|", page.split("```", 1)[0], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"\w+", row) if name != "stop_reason"]

    completed = ["done", "stopped", "no_agent"]
    assert names[: len(completed)] == completed
    assert [name for name in names if REASONS[name] == "completed"] == completed
    assert {"taken_over", "cancelled"} <= {*names}
