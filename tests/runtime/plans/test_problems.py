"""What is wrong with a plan is found before anything runs, all of it at once."""

from itertools import pairwise
from typing import Any

import pytest

from holdfast.runtime import PlanProblem, Step, Task, TaskPlan


def step(id: str, *needs: str, **fields: Any) -> Step:
    told: dict[str, Any] = {"id": id, "instructions": "Do it.", "depends_on": list(needs)}
    return Step(**told | fields)


def task(id: str, *steps: Step, **fields: Any) -> Task:
    told: dict[str, Any] = {"id": id, "title": "A task", "steps": list(steps)}
    return Task(**told | fields)


def plan(*tasks: Task, **fields: Any) -> TaskPlan:
    told: dict[str, Any] = {"title": "A plan", "tasks": list(tasks)}
    return TaskPlan(**told | fields)


def of(*steps: Step) -> TaskPlan:
    """Return a plan of one task with *steps*."""
    return plan(task("t", *steps))


def found(plan: TaskPlan, **given: Any) -> list[tuple[str, str]]:
    return [(problem.where, problem.code) for problem in plan.problems(**given)]


def test_a_good_plan_has_no_problems() -> None:
    good = plan(
        task("a", step("a1"), step("a2", "a1", "topic")),
        task("b", step("b1"), depends_on=["a"]),
        final_task="b",
    )

    assert good.problems(inputs=["topic"], tools=["search"]) == []


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (plan(), ("plan", "no_tasks")),
        (plan(task("a", step("s")), title=" "), ("plan", "blank")),
        (plan(task("a", step("s")), final_task="z"), ("plan.final_task", "final_task")),
        (plan(task("a")), ("plan.tasks[0]", "no_steps")),
        (plan(task("", step("s"))), ("plan.tasks[0]", "blank")),
        (plan(task("a", step("s"), title="\t")), ("plan.tasks[0]", "blank")),
        (plan(task("a b", step("s"))), ("plan.tasks[0]", "id")),
        (plan(task("a" * 101, step("s"))), ("plan.tasks[0]", "id")),
        (plan(task("a", step("s")), task("a", step("u"))), ("plan.tasks[1]", "duplicate")),
        (
            plan(task("a", step("s"), depends_on=["z"])),
            ("plan.tasks[0]", "unknown_dependency"),
        ),
        (plan(task("a", step("s"), depends_on=["a"])), ("plan.tasks[0]", "self")),
    ],
)
def test_a_bad_task_or_plan_is_named(bad: TaskPlan, expected: tuple[str, str]) -> None:
    assert found(bad) == [expected]


PLACE = "plan.tasks[0].steps[0]"


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (step(" "), (PLACE, "blank")),
        (step("a:b"), (PLACE, "id")),
        (step("ä"), (PLACE, "id")),
        (step("s", instructions="\n"), (PLACE, "blank")),
        (step("s", "nothing"), (PLACE, "unknown_dependency")),
        (step("s", "s"), (PLACE, "self")),
        (step("s", output_schema="{"), (f"{PLACE}.output_schema", "schema")),
        (step("s", output_schema="[]"), (f"{PLACE}.output_schema", "schema")),
        (step("s", output_schema={"type": "strin"}), (f"{PLACE}.output_schema", "schema")),
        (step("s", output_schema={"pattern": "("}), (f"{PLACE}.output_schema", "schema")),
        (step("s", output_schema={"$ref": "#/$defs/x"}), (f"{PLACE}.output_schema", "schema")),
        (step("s", output_schema={"$ref": "http://h/x"}), (f"{PLACE}.output_schema", "schema")),
        (step("s", mode="sort"), (PLACE, "mode")),
        (step("s", mode="process"), (PLACE, "mode")),
        (step("s", per_item_instructions="x"), (f"{PLACE}.per_item_instructions", "mode")),
        (step("s", per_item_schema={}), (f"{PLACE}.per_item_schema", "mode")),
        (step("s", on_item_error="stop"), (f"{PLACE}.on_item_error", "value")),
        (step("s", max_items=0), (f"{PLACE}.max_items", "value")),
        (step("s", max_iterations=0), (f"{PLACE}.max_iterations", "value")),
        (step("s", token_budget=0), (f"{PLACE}.token_budget", "value")),
        (step("s", timeout_s=0), (f"{PLACE}.timeout_s", "value")),
        (step("s", timeout_s=float("nan")), (f"{PLACE}.timeout_s", "value")),
        (step("s", retries=-1), (f"{PLACE}.retries", "value")),
    ],
)
def test_a_bad_step_is_named(bad: Step, expected: tuple[str, str]) -> None:
    assert found(of(bad)) == [expected]


def test_a_schema_may_be_text_and_refer_to_itself() -> None:
    text = '{"$ref": "#/$defs/n", "$defs": {"n": {"type": "object"}}}'

    assert of(step("s", output_schema=text)).problems() == []


def test_a_step_id_is_unique_in_the_whole_plan() -> None:
    twice = plan(task("a", step("s")), task("b", step("s")))

    assert found(twice) == [("plan.tasks[1].steps[0]", "duplicate")]


def test_a_step_of_another_task_is_no_dependency() -> None:
    across = plan(task("a", step("s")), task("b", step("u", "s")))

    assert found(across) == [("plan.tasks[1].steps[0]", "unknown_dependency")]


def test_a_step_cannot_be_named_like_an_item_of_another() -> None:
    both = of(step("list"), step("each", "list", mode="process"), step("each.3"))

    assert found(both) == [("plan", "duplicate")]


def test_nothing_may_wait_for_the_finish_step_which_waits_for_all() -> None:
    assert found(of(step("a", "b"), step("b"))) == [(PLACE, "finish")]


def test_a_cycle_is_named_in_order() -> None:
    round_about = of(step("a", "c"), step("b", "a"), step("c", "b"), step("end"))

    (problem,) = round_about.problems()

    assert (problem.where, problem.code) == ("plan.tasks[0].steps", "cycle")
    ring = problem.message.removeprefix("need one another: ").split(" needs ")
    assert ring[0] == ring[-1]
    needs = {"a": "c", "b": "a", "c": "b"}
    assert all(needs[one] == other for one, other in pairwise(ring))


def test_every_cycle_is_found() -> None:
    tasks = [
        task("a", step("s1"), depends_on=["b"]),
        task("b", step("s2"), depends_on=["a"]),
        task("c", step("s3"), depends_on=["d"]),
        task("d", step("s4"), depends_on=["c"]),
    ]

    assert found(plan(*tasks)) == [("plan.tasks", "cycle"), ("plan.tasks", "cycle")]


def test_an_unknown_tool_is_named_when_tools_are_known() -> None:
    wants = of(step("s", tools=["search", "memory_read", "fly"]))

    assert found(wants) == []
    assert found(wants, tools=["search"]) == [(f"{PLACE}.tools", "unknown_tool")]


def test_at_most_a_hundred_tasks_and_five_hundred_steps() -> None:
    tasks = [task(f"t{i}", step(f"s{i}")) for i in range(101)]
    steps = of(*(step(f"s{i}") for i in range(501)))

    assert found(plan(*tasks)) == [("plan", "too_many")]
    assert found(steps) == [("plan", "too_many")]


def test_all_problems_are_told_at_once() -> None:
    bad = plan(
        task("a", step("s", "zz"), step("s", instructions="")),
        task("b", depends_on=["q"]),
        title="",
    )

    assert [problem.code for problem in bad.problems()] == [
        "blank",
        "unknown_dependency",
        "blank",
        "no_steps",
        "unknown_dependency",
        "duplicate",
    ]


def test_a_problem_is_told_with_its_place() -> None:
    assert str(PlanProblem("plan.tasks[0]", "blank", "id is blank")) == "plan.tasks[0]: id is blank"
