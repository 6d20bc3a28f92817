"""A model makes a plan: what it is told, what it is answered, and how that ends."""

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from holdfast.errors import InvalidInput, NoModel, PlanningFailed
from holdfast.runtime import Approval, Context, Step, Task, TaskPlan, TaskPlanner
from holdfast.runtime.events import ExecutionEvent, PlanningUpdate, TaskUpdate
from holdfast.testing.scripted import ScriptedModel, call


def steps(*ids: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": id, "instructions": "Do it.", **fields} for id in ids]


RESEARCH = call("add_task", id="research", title="Research", steps=steps("find"))
FINISH = call("finish_plan")


def planner(*turns: Any, **given: Any) -> TaskPlanner:
    model = ScriptedModel(list(turns))
    told: dict[str, Any] = {"objective": "Compare the two.", "context": Context(), "model": model}
    return TaskPlanner(**told | given)


async def events(planner: TaskPlanner) -> list[ExecutionEvent]:
    return [event async for event in planner.execute()]


def answers(planner: TaskPlanner) -> list[Any]:
    """Return what each call was answered, in order."""
    return [
        part.content
        for message in planner.messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def phases(events: Sequence[ExecutionEvent]) -> list[tuple[str, str]]:
    return [(each.phase, each.status) for each in events if isinstance(each, PlanningUpdate)]


pytestmark = pytest.mark.anyio


async def test_a_plan_is_made_task_by_task() -> None:
    write = call(
        "add_task", id="write", title="Write", depends_on=["research"], steps=steps("draft")
    )
    planning = planner([RESEARCH, write], call("finish_plan", title="Compare"))

    plan = await planning.run()

    assert plan == planning.plan
    assert plan == TaskPlan(
        title="Compare",
        tasks=[
            Task(id="research", title="Research", steps=[Step(id="find", instructions="Do it.")]),
            Task(
                id="write",
                title="Write",
                steps=[Step(id="draft", instructions="Do it.")],
                depends_on=["research"],
            ),
        ],
    )
    assert answers(planning) == [
        {"status": "task_added", "task_id": "research", "tasks_so_far": 1},
        {"status": "task_added", "task_id": "write", "tasks_so_far": 2},
        {"status": "plan_finished", "tasks": 2},
    ]


async def test_its_making_is_told_in_phases() -> None:
    told = await events(planner(RESEARCH, FINISH))

    assert phases(told) == [
        ("initialization", "success"),
        ("generation", "running"),
        ("validation", "running"),
        ("validation", "success"),
        ("complete", "success"),
    ]
    planned = [each for each in told if isinstance(each, TaskUpdate)]
    assert [(each.event, each.task_id) for each in planned] == [("task_planned", "research")]
    assert [each.type for each in (told[0], told[-1])] == ["run_update", "run_update"]


async def test_all_that_is_wrong_with_a_task_is_answered_at_once() -> None:
    bad = call(
        "add_task",
        id="bad one",
        title="",
        depends_on=["later"],
        steps=[*steps("s", depends_on=["nothing"]), *steps("s", tools=["fly"], mode="process")],
    )
    planning = planner(bad, RESEARCH, FINISH)

    await planning.run()

    refused = answers(planning)[0]
    assert refused["status"] == "validation_failed"
    told = "\n".join(refused["errors"])
    for expected in (
        "task: the id 'bad one' may only",
        "task: title is blank",
        "task: depends on 'later'",
        "task.steps[0]: depends on 'nothing'",
        "task.steps[1].tools: there is no tool 'fly'",
        "task.steps[1]: a process step needs a dependency",
        "task.steps[1]: the step id 's' is that of task.steps[0]",
    ):
        assert expected in told


async def test_unknown_fields_are_refused_and_null_is_nothing() -> None:
    planning = planner(
        call("add_task", id="a", title="A", steps=steps("s", retries=3), colour="red"),
        call(
            "add_task",
            id="a",
            title="A",
            description=None,
            steps=steps("s", depends_on=None, tools=None, output_schema=None),
        ),
        FINISH,
    )

    plan = await planning.run()

    told = "\n".join(answers(planning)[0]["errors"])
    assert "task.colour" in told
    assert "task.steps[0].retries" in told
    assert plan.tasks[0].steps[0] == Step(id="s", instructions="Do it.")


async def test_a_missing_id_is_made_from_the_title() -> None:
    planning = planner(
        call("add_task", title="Find the sources!", steps=steps("a")),
        call("add_task", title="Find the sources?", steps=steps("b")),
        call("add_task", title="調べる", steps=steps("c")),
        FINISH,
    )

    plan = await planning.run()

    assert [task.id for task in plan.tasks] == ["find_the_sources", "find_the_sources_2", "task"]


async def test_a_task_others_need_is_not_removed() -> None:
    write = call("add_task", id="w", title="W", depends_on=["research"], steps=steps("d"))
    planning = planner(
        [RESEARCH, write],
        [call("remove_task", id="research"), call("remove_task", id="x")],
        call("remove_task", id="w"),
        FINISH,
    )

    plan = await planning.run()

    needed, unknown, removed = answers(planning)[2:5]
    assert needed["status"] == unknown["status"] == "validation_failed"
    assert "w need it" in needed["errors"][0]
    assert "research, w" in unknown["errors"][0]
    assert removed == {"status": "task_removed", "tasks_so_far": 1}
    assert [task.id for task in plan.tasks] == ["research"]


async def test_an_empty_plan_is_not_finished() -> None:
    planning = planner(FINISH, RESEARCH, call("finish_plan", final_task="x"), FINISH)

    await planning.run()

    first, _, unknown, last = answers(planning)
    assert first == {"status": "validation_failed", "errors": ["plan: has no tasks"]}
    assert "no task has the id 'x'" in unknown["errors"][0]
    assert last["status"] == "plan_finished"


async def test_an_answer_without_a_call_is_reminded() -> None:
    model = ScriptedModel(["I will plan.", RESEARCH, FINISH])

    await planner(model=model).run()

    assert "Call add_task" in model.asked[1].text


async def test_calls_after_the_finish_and_unknown_ones_are_answered() -> None:
    other = call("add_task", id="more", title="More", steps=steps("m"))
    planning = planner([call("search"), RESEARCH], [FINISH, other])

    plan = await planning.run()

    unknown, _, _, late = answers(planning)
    assert "there are add_task, remove_task and finish_plan" in unknown["errors"][0]
    assert late["status"] == "not_run"
    assert len(plan.tasks) == 1


async def test_an_id_that_keeps_failing_is_closed() -> None:
    bad = call("add_task", id="b", title="B", steps=[])
    good = call("add_task", id="b", title="B", steps=steps("s"))
    planning = planner(bad, bad, good, RESEARCH, FINISH, max_failures=2)

    plan = await planning.run()

    told = [answer["errors"][-1] for answer in answers(planning)[:3]]
    assert "closed" not in told[0]
    assert all("closed: take another approach, under another id" in each for each in told[1:])
    assert [task.id for task in plan.tasks] == ["research"]


async def test_too_many_failures_end_the_planning() -> None:
    bad = [call("add_task", id=f"b{number}", title="B", steps=[]) for number in range(4)]
    planning = planner(RESEARCH, *bad, max_failures=1)

    with pytest.raises(PlanningFailed) as caught:
        await planning.run()

    assert next(str(each) for each in caught.value.problems) == "task: has no steps"
    assert caught.value.tasks == ("research",)
    assert planning.plan is None


async def test_a_closed_id_is_reported_with_the_problem_that_closed_it() -> None:
    bad = call("add_task", id="b", title="B", steps=[])
    good = call("add_task", id="b", title="B", steps=steps("s"))
    planning = planner(bad, good, good, good, max_failures=1)

    with pytest.raises(PlanningFailed) as caught:
        await planning.run()

    assert [str(each).partition(" '")[0] for each in caught.value.problems] == [
        "task: has no steps",
        "task: the id",
    ]
    assert [len(answer["errors"]) for answer in answers(planning)] == [2, 1, 1, 1]
    assert "has no steps" in caught.value.message


async def test_too_many_calls_end_the_planning() -> None:
    with pytest.raises(PlanningFailed, match="no plan after 3 calls"):
        await planner(*["hm"] * 3, max_iterations=3).run()


async def test_five_replies_in_a_row_without_a_call_are_the_most() -> None:
    planning = planner(*["hm"] * 4, RESEARCH, *["hm"] * 9)

    with pytest.raises(PlanningFailed, match="5 replies in a row called no tool"):
        await planning.run()
    assert planning.context.usage.requests == 10


async def test_a_failed_planning_is_told_and_not_raised_by_execute() -> None:
    planning = planner("hm", max_iterations=1)

    told = await events(planning)

    assert phases(told)[-1] == ("complete", "failed")
    assert isinstance(planning.error, PlanningFailed)


async def test_there_are_at_most_max_tasks() -> None:
    more = call("add_task", id="more", title="More", steps=steps("m"))
    planning = planner(RESEARCH, more, FINISH, max_tasks=1)

    await planning.run()

    assert "at most 1 tasks" in answers(planning)[1]["errors"][0]


async def test_the_result_has_the_schema_that_is_asked() -> None:
    schema = {"type": "object", "properties": {"best": {"type": "string"}}}
    last = call("add_task", id="z", title="Z", steps=steps("a", "b"))
    planning = planner([RESEARCH, last], FINISH, output_schema=schema)

    plan = await planning.run()

    assert [step.output_schema for step in plan.steps] == [None, None, schema]


async def test_a_shaped_result_cannot_come_from_a_process_step() -> None:
    listed = [*steps("list"), *steps("each", depends_on=["list"], mode="process")]
    planning = planner(
        call("add_task", id="t", title="T", steps=listed),
        FINISH,
        call("remove_task", id="t"),
        RESEARCH,
        FINISH,
        output_schema={"type": "object"},
    )

    await planning.run()

    assert "must not be a process step" in answers(planning)[1]["errors"][0]


def search(query: str) -> str:
    """Search the {objective} of all."""
    return query


async def test_what_is_inserted_into_the_prompt_is_not_filled_in_again() -> None:
    model = ScriptedModel([RESEARCH, FINISH])

    await planner(
        model=model,
        objective="Say {tools} and {inputs}.",
        tools=[search],
        inputs={"topic": "SECRET"},
        system_prompt="  You are terse.  ",
    ).run()

    told = model.asked[0].instructions
    assert told.startswith("You are terse.\n\nYou plan the work")
    assert told.endswith("## Objective\n\nSay {tools} and {inputs}.")
    assert "- `search`: Search the {objective} of all." in told
    assert "- `topic`" in told
    assert "SECRET" not in model.asked[0].text
    assert model.asked[0].offered == ["add_task", "remove_task", "finish_plan"]


async def test_a_plan_that_is_not_approved_is_made_again() -> None:
    seen: list[TaskPlan] = []

    async def approve(plan: TaskPlan) -> Approval:
        seen.append(plan)
        return Approval(len(seen) == 2, "Name the sources.")

    model = ScriptedModel([RESEARCH, FINISH, FINISH])
    planning = planner(model=model, approve=approve)

    told = await events(planning)

    assert len(seen) == 2
    assert planning.plan == seen[1]
    assert "Name the sources." in model.asked[2].text
    assert ("revision", "running") in phases(told)


async def test_a_plan_is_made_again_three_times_and_no_more() -> None:
    def approve(_: TaskPlan) -> Approval:
        return Approval(ok=False, feedback="No.")

    planning = planner(RESEARCH, *[FINISH] * 4, approve=approve)

    with pytest.raises(PlanningFailed, match="3 revisions"):
        await planning.run()


async def test_a_model_that_fails_is_said_to_have() -> None:
    with pytest.raises(PlanningFailed, match="the model failed"):
        await planner(RuntimeError("boom")).run()


async def test_a_planner_may_be_run_again_from_the_start() -> None:
    planning = planner(RESEARCH, FINISH, RESEARCH, FINISH)
    first = await planning.run()

    assert await planning.run() == first


async def test_its_requests_are_traced_below_the_run() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    await planner(RESEARCH, FINISH, context=Context(tracer_provider=provider)).run()

    spans = {span.name: span for span in exporter.get_finished_spans()}
    parent, run = spans["chat scripted"].parent, spans["holdfast.run"].context
    assert parent is not None
    assert run is not None
    assert parent.span_id == run.span_id


def test_what_cannot_be_planned_is_refused_at_once() -> None:
    with pytest.raises(NoModel):
        TaskPlanner(objective="x", context=Context())
    with pytest.raises(InvalidInput, match="objective"):
        planner(objective="  ")
    with pytest.raises(InvalidInput, match="output_schema"):
        planner(output_schema="{")
