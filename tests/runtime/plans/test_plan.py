"""A plan: its JSON, its problems, its schedule, and the items of its steps."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidPlan
from holdfast.runtime import PlanProblem, Step, Task, TaskPlan
from holdfast.runtime.events import StepError
from holdfast.runtime.plans.schedule import Schedule
from holdfast.runtime.plans.work import NotAList, item_step, items_of, told
from holdfast.tools.base import JSON


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
        (step("s", output_schema={"pattern": "("}), (f"{PLACE}.output_schema", "pattern")),
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
        (step("s", timeout=0), (f"{PLACE}.timeout", "value")),
        (step("s", timeout=float("nan")), (f"{PLACE}.timeout", "value")),
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
    timeout=st.none() | st.floats(0.5, 99),
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


def test_plan_json_may_use_the_former_name_of_the_timeout() -> None:
    schema = {"type": "object", "properties": {"timeout_s": {"type": "number"}}}
    text = msgspec.json.encode(
        {
            "title": "p",
            "tasks": [
                {
                    "id": "t",
                    "title": "T",
                    "steps": [
                        {"id": "s", "instructions": "i", "timeout_s": 2, "output_schema": schema}
                    ],
                }
            ],
        }
    ).decode()

    (one,) = TaskPlan.from_json(text).steps

    assert (one.timeout, one.output_schema) == (2, schema)
    assert '"timeout":2' in one.to_json()
    both = '{"id": "s", "instructions": "i", "timeout_s": 2, "timeout": 3}'
    with pytest.raises(InvalidPlan, match="timeout_s"):
        Step.from_json(both)


def test_one_text_is_a_list_of_one_name_in_python_and_json() -> None:
    made = plan(
        task("a", Step(id="one", instructions="i", depends_on="topic", tools="search")),
        task("b", step("two"), depends_on="a"),
    )
    text = """{"title": "A plan", "tasks": [
        {"id": "a", "title": "A task", "steps": [
            {"id": "one", "instructions": "i", "depends_on": "topic", "tools": "search"}]},
        {"id": "b", "title": "A task", "depends_on": "a", "steps": [
            {"id": "two", "instructions": "Do it."}]}]}"""

    assert made.problems(inputs=["topic"], tools=["search"]) == []
    assert TaskPlan.from_json(text) == made
    made.tasks[0].steps[0].depends_on = "other"
    assert made.tasks[0].steps[0].depends_on == ["other"]


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


DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draw names, each of which needs some of those before it."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 12)))]
    shuffled = draw(st.permutations(names))
    return {
        name: draw(st.lists(st.sampled_from(shuffled[:i]), unique=True)) if i else []
        for i, name in enumerate(shuffled)
    }


def above(graph: dict[str, list[str]], name: str) -> set[str]:
    """Return all that *name* needs, directly or not."""
    direct = set(graph[name])
    return direct.union(*(above(graph, each) for each in direct))


def test_one_starts_as_soon_as_all_it_needs_is_done() -> None:
    schedule = Schedule(DIAMOND)

    assert schedule.first() == ("a",)
    assert schedule.completed("a").ready == ("b", "c")
    assert schedule.completed("c").ready == ()
    assert schedule.completed("b").ready == ("d",)


def test_what_is_blocked_is_told_when_all_it_needs_is_settled() -> None:
    schedule = Schedule(DIAMOND)
    schedule.completed("a")

    assert schedule.failed("c").blocked == ()
    (blocked,) = schedule.completed("b").blocked

    assert (blocked.id, blocked.by) == ("d", ("c",))


def test_failures_are_named_in_the_order_of_the_plan() -> None:
    schedule = Schedule(DIAMOND)
    schedule.completed("a")
    schedule.failed("c")

    (blocked,) = schedule.failed("b").blocked

    assert blocked.by == ("b", "c")


@given(graph=graphs(), data=st.data())
def test_each_is_settled_once_and_none_starts_above_a_failure(
    graph: dict[str, list[str]], data: st.DataObject
) -> None:
    schedule = Schedule(graph)
    failing = set(data.draw(st.lists(st.sampled_from(list(graph)))))
    ready, done, failed = list(schedule.first()), set[str](), set[str]()
    blocked: dict[str, tuple[str, ...]] = {}
    while ready:
        one = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
        assert set(graph[one]) <= done
        (failed if one in failing else done).add(one)
        change = (schedule.failed if one in failing else schedule.completed)(one)
        ready += change.ready
        blocked |= {each.id: each.by for each in change.blocked}

    assert sorted([*done, *failed, *blocked]) == sorted(graph)
    for name, by in blocked.items():
        assert set(by) == above(graph, name) & failed
        assert by


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ([1, 2], [1, 2]),
        ([], []),
        (None, []),
        ({"sources": ["a"], "note": "x"}, ["a"]),
        ({"sources": []}, []),
    ],
)
def test_items_come_from_a_list_or_the_only_list_of_an_object(
    value: JSON, items: list[JSON]
) -> None:
    assert items_of(value) == items


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("abc", "text"),
        (3, "a number"),
        (True, "a boolean"),
        ({}, "an object with no lists"),
        ({"a": [], "b": []}, "an object with 2 lists (a, b)"),
    ],
)
def test_anything_else_is_no_list_and_named(value: JSON, said: str) -> None:
    with pytest.raises(NotAList) as caught:
        items_of(value)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("template", "item", "text"),
    [
        ("Read {url}.", {"url": "h/x", "n": 1}, "Read h/x."),
        ("Read {n} {on} {tags}.", {"n": 1, "on": None, "tags": ["a"]}, 'Read 1 null ["a"].'),
        ("{index}: {item}", {"a": 1}, '4: {"a":1}'),
        ("Say {item}.", "hello", "Say hello."),
        ("{a}", {"a": "{b}", "b": "no"}, "{b}"),
        ("{a} {unknown} {{}} {", {"a": 1}, "1 {unknown} {{}} {"),
        ('Give {"a": {n}}.', {"n": 2}, 'Give {"a": 2}.'),
        ("Summarize.", {"a": 1}, 'Summarize.\n\n{"a":1}'),
        ("Summarize.", "text", 'Summarize.\n\n"text"'),
        ("As {colour}", {"a": 1}, 'As {colour}\n\n{"a":1}'),
    ],
)
def test_a_template_is_filled_in_one_pass(template: str, item: JSON, text: str) -> None:
    assert told(template, item, 4) == text


def test_an_item_step_is_a_plain_step_of_its_own() -> None:
    process = Step(
        id="each",
        instructions="All of it.",
        depends_on=["list"],
        mode="process",
        per_item_instructions="Read {item}.",
        per_item_schema={"type": "string"},
        retries=2,
    )
    process.begin(1)

    one = item_step(process, "x", 7)

    assert (one.id, one.instructions, one.mode) == ("each.7", "Read x.", None)
    assert (one.output_schema, one.retries, one.state) == ({"type": "string"}, 2, "pending")


def test_without_words_of_their_own_items_have_the_steps() -> None:
    process = Step(id="e", instructions="Do {item}.", output_schema="{}", mode="process")

    one = item_step(process, 1, 0)

    assert (one.instructions, one.output_schema) == ("Do 1.", "{}")


def test_a_plan_that_is_nested_too_deeply_is_refused_before_it_is_decoded() -> None:
    deep = "[" * 300 + "]" * 300

    with pytest.raises(InvalidPlan) as refused:
        TaskPlan.from_json(f'{{"title": "T", "tasks": {deep}}}')

    assert "is nested over 200 deep" in str(refused.value)
