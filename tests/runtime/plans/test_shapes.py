"""A plan as JSON, both ways: what its author wrote, and nothing that is not known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidPlan
from holdfast.runtime import Step, Task, TaskPlan
from holdfast.runtime.events import StepError
from holdfast.runtime.plans.plan import PlanProblem

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.lists(TEXT, max_size=3)
SCHEMAS = st.none() | TEXT | st.dictionaries(TEXT, TEXT, max_size=2)
STEPS = st.builds(
    Step,
    id=TEXT,
    instructions=TEXT,
    depends_on=NAMES,
    output_schema=SCHEMAS,
    tools=st.none() | NAMES,
    mode=st.sampled_from([None, "discover", "process", "aggregate"]),
    per_item_instructions=st.none() | TEXT,
    per_item_schema=SCHEMAS,
    max_items=st.integers(1, 999),
    on_item_error=st.sampled_from(["fail", "skip"]),
    max_iterations=st.none() | st.integers(1, 99),
    timeout_s=st.none() | st.floats(0.5, 99),
    retries=st.integers(0, 9),
)
TASKS = st.builds(
    Task,
    id=TEXT,
    title=TEXT,
    steps=st.lists(STEPS, max_size=3),
    description=st.none() | TEXT,
    depends_on=NAMES,
)
PLANS = st.builds(
    TaskPlan, title=TEXT, tasks=st.lists(TASKS, max_size=3), final_task=st.none() | TEXT
)


@given(plan=PLANS)
def test_a_plan_comes_back_from_its_json_as_it_was(plan: TaskPlan) -> None:
    assert TaskPlan.from_json(plan.to_json()) == plan


def test_what_happened_to_a_step_is_not_part_of_its_json() -> None:
    step = Step(id="s", instructions="Do it.")
    before = step.to_json()

    step.begin(1)
    step.end("failed", 2, StepError("timeout", "took too long"))

    assert step.to_json() == before
    assert Step.from_json(before) == step
    assert Step.from_json(before).state == "pending"


def test_what_a_plan_leaves_out_has_its_default() -> None:
    task = Task.from_json('{"id": "t", "title": "T", "steps": [{"id": "s", "instructions": "i"}]}')

    assert task == Task(id="t", title="T", steps=[Step(id="s", instructions="i")])


def problems(text: str) -> list[Any]:
    with pytest.raises(InvalidPlan) as caught:
        TaskPlan.from_json(text)
    return [
        (problem.where, problem.code)
        for problem in caught.value.problems
        if isinstance(problem, PlanProblem)
    ]


def test_every_unknown_key_is_refused_with_its_place() -> None:
    text = """{"title": "p", "size": 1, "tasks": [{"id": "t", "title": "T", "when": 2,
        "steps": [{"id": "s", "instructions": "i", "colour": "red", "state": "completed"}]}]}"""

    assert problems(text) == [
        ("plan.size", "unknown_key"),
        ("plan.tasks[0].when", "unknown_key"),
        ("plan.tasks[0].steps[0].colour", "unknown_key"),
        ("plan.tasks[0].steps[0].state", "unknown_key"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", ("plan", "json")),
        ("[" * 100_000, ("plan", "json")),
        ("[]", ("plan", "type")),
        ('{"title": "p"}', ("plan", "type")),
        ('{"title": 7, "tasks": []}', ("plan.title", "type")),
        (
            '{"title": "p", "tasks": [{"id": "t", "title": "T", "steps": [{"id": 3}]}]}',
            ("plan.tasks[0].steps[0].id", "type"),
        ),
    ],
)
def test_what_is_missing_or_misshapen_is_told_with_its_place(
    text: str, expected: tuple[str, str]
) -> None:
    assert problems(text) == [expected]
