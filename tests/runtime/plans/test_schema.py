"""Schemas of results: types, limits, patterns, and checks that take long."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel
from runtime.plans.workers import Workers, plan, step, task
from stepping import Stepping
from typing_extensions import TypedDict

from holdfast.errors import InvalidInput
from holdfast.runtime import (
    AgentStepNode,
    Context,
    Edge,
    FunctionNode,
    MemoryCheckpoints,
    MultiModeAgent,
    ParallelTaskExecutor,
    Step,
    TaskExecutor,
    TaskPlan,
    TaskPlanner,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.events import StepResult
from holdfast.runtime.plans.schema import LATE, ResultSchema
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


class Harbour(BaseModel):
    """A pydantic model."""

    name: str
    ships: int = 0


@dataclass
class Ship:
    """A dataclass."""

    name: str
    crew: list[str]


class Tide(TypedDict):
    """A typed dictionary."""

    at: str
    metres: float


class Bare:
    """A class that pydantic knows nothing of."""


KIEL = {"name": "Kiel", "ships": 3}


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


def codes(output_schema: Any, **fields: Any) -> list[str]:
    one = Step(id="s", instructions="i", output_schema=output_schema, **fields)
    return [problem.code for problem in plan(task("t", one)).problems()]


@pytest.mark.parametrize(
    ("given", "result", "instance"),
    [
        (Harbour, KIEL, Harbour(name="Kiel", ships=3)),
        (Ship, {"name": "Aurora", "crew": ["Bo"]}, Ship("Aurora", ["Bo"])),
        (Tide, {"at": "06:00", "metres": 1.5}, {"at": "06:00", "metres": 1.5}),
        (list[Harbour], [KIEL], [Harbour(name="Kiel", ships=3)]),
        (int | None, None, None),
        ({"type": "object"}, KIEL, KIEL),
        ('{"type": "object"}', KIEL, KIEL),
    ],
)
async def test_a_step_gives_an_instance_of_its_type_and_keeps_json(
    given: Any, result: Any, instance: Any
) -> None:
    stepping = Stepping([call("finish_step", result=result)], step={"output_schema": given})

    assert await stepping.executor.run() == instance

    assert stepping.executor.output == instance
    assert stepping.executor.result == result
    assert stepping.executor.context.memory.get_value("step:count") == result
    assert "## Output Schema" in stepping.model.asked[0].instructions


async def test_what_a_type_refuses_beside_its_schema_is_answered() -> None:
    turns = [call("finish_step", result=3), call("finish_step", result=4)]
    stepping = Stepping(turns, step={"output_schema": Annotated[int, AfterValidator(even)]})

    assert await stepping.executor.run() == 4
    assert "must be even; came integer 3" in stepping.model.asked[1].text


@pytest.mark.parametrize("given", [5, object(), print, even, Bare, Bare()])
def test_what_has_no_schema_is_a_problem(given: Any) -> None:
    assert codes(given) == ["schema"]


async def test_plans_hold_json_and_give_instances(workers: Workers) -> None:
    workers.gives = {"list": ["x", "y"], "e0": KIEL, "e1": KIEL, "end": KIEL}
    each = step("each", "list", mode="process", per_item_instructions="Work on e{index}.")
    each.per_item_schema = Harbour
    made = plan(
        task("a", step("list", output_schema=list[str]), each),
        task("b", step("end", output_schema=Harbour), depends_on=["a"]),
    )
    kept = MemoryCheckpoints()

    def run(plan: TaskPlan) -> ParallelTaskExecutor:
        context = workers.context(run_id="run_1")
        return ParallelTaskExecutor(plan=plan, context=context, checkpoint=kept)

    first, again = run(made), run(made)
    assert await first.run() == first.output == Harbour(name="Kiel", ships=3)
    assert await again.run() == Harbour(name="Kiel", ships=3)
    assert first.get_all_results()["b"] == KIEL
    alone = TaskExecutor(task=made.tasks[0], context=workers.context())
    assert [each["result"] for each in await alone.run()] == [Harbour(name="Kiel", ships=3)] * 2
    result: Any = alone.result
    assert result[0]["result"] == KIEL
    read = TaskPlan.from_json(made.to_json())
    assert read.steps[2].output_schema == Harbour.model_json_schema()


@pytest.fixture
def workers() -> Workers:
    return Workers()


async def test_events_of_typed_steps_carry_json() -> None:
    stepping = Stepping([call("finish_step", result=KIEL)], step={"output_schema": Harbour})

    results = [e async for e in stepping.executor.execute() if isinstance(e, StepResult)]

    assert [each.result for each in results] == [KIEL]


async def test_a_planner_plans_for_a_type() -> None:
    turns = [
        call("add_task", id="a", title="A", steps=[{"id": "s", "instructions": "Look."}]),
        call("finish_plan"),
    ]
    planner = TaskPlanner(
        objective="Look.", context=Context(), model=ScriptedModel(turns), output_schema=Harbour
    )

    made = await planner.run()

    model = ScriptedModel([call("finish_step", result=KIEL)])
    run = ParallelTaskExecutor(plan=made, context=Context(model=model))
    assert await run.run() == Harbour(name="Kiel", ships=3)
    with pytest.raises(InvalidInput, match="output_schema"):
        TaskPlanner(objective="Look.", context=Context(), model=ScriptedModel([]), output_schema=5)


def name_of(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
    del context
    return {"name": inputs["h"].name}


async def test_a_node_passes_instances_on_as_json() -> None:
    nodes = [
        AgentStepNode("a", "Look.", output_schema=Harbour),
        AgentStepNode("b", "Count.", output_schema=int),
        FunctionNode("c", name_of),
    ]
    edges = [Edge("a", "output", "b", "harbour"), Edge("a", "output", "c", "h")]
    turns = [call("finish_step", result=KIEL), call("finish_step", result=3)]
    runner = WorkflowRunner(Workflow(nodes, edges), Context(model=ScriptedModel(turns)))

    outputs = await runner.run()

    assert outputs["a"] == {"output": Harbour(name="Kiel", ships=3), "result": KIEL}
    assert runner.context.memory.get_value("input:b.harbour") == KIEL
    assert outputs["c"] == {"name": "Kiel"}


@pytest.mark.parametrize("mode", ["loop", "plan"])
async def test_an_agent_of_modes_gives_an_instance(mode: Any) -> None:
    agent = MultiModeAgent(
        name="counter", objective="Count.", mode=mode, task=task("t"), output_schema=Harbour
    )
    context = Context(model=ScriptedModel([call("finish_step", result=KIEL)]))

    assert await agent.run(context) == agent.output == Harbour(name="Kiel", ships=3)
    assert agent.get_results() == KIEL


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?=x)"},
        {"type": "string", "pattern": r"(a)\1"},
        {"type": "string", "pattern": "("},
        {"patternProperties": {"(?!x)": {}}},
        {"properties": {"a": {"items": {"anyOf": [{"pattern": "(?<=x)"}]}}}},
        {"$defs": {"pattern": {"pattern": "(?=x)"}}},
    ],
)
def test_a_pattern_that_cannot_be_compiled_is_a_problem_that_names_it(schema: Any) -> None:
    one = Step(id="s", instructions="i", output_schema=schema)

    (problem,) = plan(task("t", one)).problems()

    assert (problem.where, problem.code) == (
        "plan.tasks[0].steps[0].output_schema",
        "pattern",
    )
    text = msgspec.json.encode(schema).decode()
    assert any(each in problem.message for each in ("(?=x)", "(a)", "'('", "(?!x)", "(?<=x)")), text


def test_a_member_or_a_value_named_like_a_keyword_is_no_pattern() -> None:
    schema = {
        "properties": {"pattern": {"type": "string"}, "patternProperties": {"const": "("}},
        "enum": [{"pattern": "("}],
        "default": {"$ref": "http://elsewhere"},
    }

    assert codes(schema) == []


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


LIMITS: list[tuple[Any, list[str]]] = [
    (nested(64), []),
    (nested(65), ["schema"]),
    (nested(100_000), ["schema"]),
    ({"anyOf": [{}] * 1_998}, []),
    ({"anyOf": [{}] * 1_999}, ["schema"]),
    ({"$ref": "http://elsewhere/x"}, ["schema"]),
    ({"$ref": "other.json"}, ["schema"]),
    ({"$ref": "#/$defs/x"}, ["schema"]),
    ({"$id": "http://h/a", "$defs": {"x": {}}, "$ref": "http://h/a#/$defs/x"}, ["schema"]),
    ({"$defs": {"x": {}}, "items": {"$ref": "#/$defs/x"}}, []),
    ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, ["schema"]),
]


@pytest.mark.parametrize(("schema", "expected"), LIMITS)
def test_a_schema_has_limits_and_refers_to_itself_alone(schema: Any, expected: list[str]) -> None:
    assert codes(schema) == expected


def test_patterns_are_matched_in_linear_time() -> None:
    schema = ResultSchema(
        {
            "properties": {"a": {"pattern": "^(a|a)*$"}},
            "patternProperties": {"^(x|x)*$": {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    bad = {"a": "a" * 5_000 + "b", "x" * 3_000: "no", "x" * 3_000 + "y": 1}

    problems = schema.problems(bad)

    assert len(problems) == 3
    assert schema.problems({"a": "aaa", "xxx": 1}) == []


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([1, True, 0, False, "1", None, [1], [True], {"a": 1}, {"a": True}], True),
        ([1, 1.0], False),
        ([{"a": [1], "b": 2}, {"b": 2, "a": [1]}], False),
    ],
)
def test_unique_items_are_compared_as_json(items: list[Any], fits: bool) -> None:
    assert bool(ResultSchema({"uniqueItems": True}).problems(items)) is not fits


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({"type": "array", "items": {"type": "integer"}}, list(range(30_000))),
        ({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, [1, 2]),
    ],
)
async def test_a_check_past_its_deadline_is_answered_as_too_long(schema: Any, result: Any) -> None:
    late, in_time = ResultSchema(schema, seconds=-1), ResultSchema(schema)

    assert (await late.checked({"result": result})).problems == [LATE]
    found = await in_time.checked({"result": result})
    assert (found.value, found.problems) == (result, [])


async def test_a_small_result_is_checked_without_a_thread() -> None:
    schema = ResultSchema({"type": "array", "items": {"type": "integer"}}, seconds=-1)
    before = asyncio.all_tasks()

    found = await schema.checked({"result": [1, 2]})

    assert (found.problems, asyncio.all_tasks()) == ([], before)
