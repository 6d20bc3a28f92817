"""Records of runs, broken behind the library's back, and what verify says of it."""

import pytest
from library.upkeep.meddling import Ask, checks

from holdfast.library.holdfast import Holdfast


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("update runs set entries = entries + 1", {("counters", "runs")}),
        ("update runs set bytes = 0", {("counters", "runs")}),
        ("update runs set seq = 0", {("counters", "runs")}),
        ("delete from run_entries where key = 'task:t'", {("counters", "runs")}),
        ("delete from runs", {("owners", "run_entries"), ("owners", "run_events")}),
    ],
)
def test_a_record_that_does_not_fit_its_rows_is_found(
    hf: Holdfast, ask: Ask, statement: str, found: set[tuple[str, str]]
) -> None:
    ask(statement)

    assert checks(hf, quick=True) >= found
