"""What can happen to a network, and what can go wrong with it, happens in some test."""

import re
from functools import cache
from pathlib import Path

import pytest

from holdfast.ground import errors
from holdfast.memories.run.records.event import LIVE
from holdfast.runtime.networks.network import FACTS

ROOT = Path(__file__).parents[3]
RAISED = (
    errors.AgentNameTaken,
    errors.ChecksumMismatch,
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


@pytest.mark.parametrize("type", [*FACTS, *sorted(LIVE)])
def test_every_event_is_told_in_some_test(type: str) -> None:
    assert f'"{type}"' in all_tests()


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
def test_every_error_is_raised_in_some_test(error: type[errors.HoldfastError]) -> None:
    assert re.search(rf"(raises|refus\w+|bad)\([^\n]*\b{error.__name__}\b", all_tests())
