"""What keeps a plan from being run. All of it is found, before anything is."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, get_args

from holdfast.runtime.plans.cycles import cycles
from holdfast.runtime.plans.problem import PlanProblem
from holdfast.runtime.plans.schemas import BadSchema, schema_of
from holdfast.runtime.plans.shapes import Mode, Step, Task

TASKS, STEPS = 100, 500
"""The most tasks and steps of one plan."""

ID_LENGTH = 100
OURS: Final = frozenset(
    {
        *("memory_list", "memory_read", "memory_write"),
        *("run_list", "run_read", "run_write", "finish_step", "read_result"),
    }
)
"""Tools that every step has or may get: naming one among a step's tools is no mistake."""

_ALLOWED = re.compile(r"[A-Za-z0-9_.-]*")


def problems_of(
    title: str,
    tasks: Sequence[Task],
    final_task: str | None,
    *,
    inputs: Iterable[str] = (),
    tools: Collection[str] | None = None,
) -> list[PlanProblem]:
    """Return all that is wrong with the plan of *tasks*."""
    given = frozenset(inputs)
    found, ids = list(_of_plan(title, tasks, final_task)), {each.id for each in tasks}
    for number, task in enumerate(tasks):
        where = f"plan.tasks[{number}]"
        found += _of_task(task, where)
        found += _needed_tasks(task, ids, where)
        found += problems_of_steps(task, where, inputs=given, tools=tools)
    found += _repeated("task", [(f"plan.tasks[{i}]", task.id) for i, task in enumerate(tasks)])
    found += _repeated("step", list(_places(tasks)))
    found += _item_ids(tasks)
    found += _cycles("plan.tasks", {task.id: task.depends_on for task in tasks})
    return found


def problems_of_task(
    task: Task,
    *,
    inputs: Iterable[str] = (),
    tools: Collection[str] | None = None,
    final_step_id: str | None = None,
) -> list[PlanProblem]:
    """Return all that is wrong with *task* run alone; what it says of other tasks is not read."""
    found = [*_of_task(task, "task")]
    found += problems_of_steps(
        task, "task", inputs=frozenset(inputs), tools=tools, final_step_id=final_step_id
    )
    found += _repeated("step", [(f"task.steps[{i}]", each.id) for i, each in enumerate(task.steps)])
    found += _item_ids([task])
    if len(task.steps) > STEPS:
        found.append(PlanProblem("task", "too_many", f"has {len(task.steps)} steps, over {STEPS}"))
    return found


def problems_of_steps(
    task: Task,
    where: str,
    *,
    inputs: frozenset[str],
    tools: Collection[str] | None = None,
    final_step_id: str | None = None,
) -> Iterator[PlanProblem]:
    """Find what is wrong with the steps of *task*, each by itself and together."""
    ids = {step.id for step in task.steps}
    for number, step in enumerate(task.steps):
        place = f"{where}.steps[{number}]"
        yield from _of_step(step, place)
        yield from _needs(step, ids | inputs, place)
        yield from _unknown_tools(step, tools, place)
    yield from _finish(task, where, final_step_id)
    needs = {step.id: [each for each in step.depends_on if each in ids] for step in task.steps}
    yield from _cycles(f"{where}.steps", needs)


def _of_plan(title: str, tasks: Sequence[Task], final_task: str | None) -> Iterator[PlanProblem]:
    if not title.strip():
        yield PlanProblem("plan", "blank", "title is blank")
    if not tasks:
        yield PlanProblem("plan", "no_tasks", "has no tasks")
    if len(tasks) > TASKS:
        yield PlanProblem("plan", "too_many", f"has {len(tasks)} tasks, over {TASKS}")
    if (steps := sum(len(task.steps) for task in tasks)) > STEPS:
        yield PlanProblem("plan", "too_many", f"has {steps} steps, over {STEPS}")
    if final_task is not None and final_task not in {task.id for task in tasks}:
        yield PlanProblem("plan.final_task", "final_task", f"no task has the id {final_task!r}")


def _of_task(task: Task, where: str) -> Iterator[PlanProblem]:
    yield from _of_id(task.id, where)
    if not task.title.strip():
        yield PlanProblem(where, "blank", "title is blank")
    if not task.steps:
        yield PlanProblem(where, "no_steps", "has no steps")


def _of_id(id: str, where: str) -> Iterator[PlanProblem]:
    if not id.strip():
        yield PlanProblem(where, "blank", "id is blank")
    elif not _ALLOWED.fullmatch(id):
        told = f"the id {id[:60]!r} may only hold letters, digits, '_', '.' and '-'"
        yield PlanProblem(where, "id", told)
    elif len(id) > ID_LENGTH:
        yield PlanProblem(where, "id", f"the id has {len(id)} characters, over {ID_LENGTH}")


def _of_step(step: Step, where: str) -> Iterator[PlanProblem]:
    yield from _of_id(step.id, where)
    if not step.instructions.strip():
        yield PlanProblem(where, "blank", "instructions are blank")
    schemas = {"output_schema": step.output_schema, "per_item_schema": step.per_item_schema}
    for name, schema in schemas.items():
        try:
            schema_of(schema)
        except BadSchema as error:
            yield PlanProblem(f"{where}.{name}", "schema", str(error))
    yield from _modes(step, where)
    yield from _values(step, where)


def _modes(step: Step, where: str) -> Iterator[PlanProblem]:
    if step.mode is not None and step.mode not in get_args(Mode):
        told = f"mode {step.mode!r} is none of {', '.join(get_args(Mode))}"
        yield PlanProblem(where, "mode", told)
    if step.mode == "process" and not step.depends_on:
        told = "a process step needs a dependency to take its items from"
        yield PlanProblem(where, "mode", told)
    if step.mode != "process":
        for name in ("per_item_instructions", "per_item_schema"):
            if getattr(step, name) is not None:
                told = "is only for a step with mode process"
                yield PlanProblem(f"{where}.{name}", "mode", told)
    if step.on_item_error not in ("fail", "skip"):
        told = f"{step.on_item_error!r} is neither fail nor skip"
        yield PlanProblem(f"{where}.on_item_error", "value", told)


def _values(step: Step, where: str) -> Iterator[PlanProblem]:
    least: dict[str, tuple[float | None, float]] = {
        "max_items": (step.max_items, 1),
        "max_iterations": (step.max_iterations, 1),
        "token_budget": (step.token_budget, 1),
        "retries": (step.retries, 0),
    }
    for name, (value, bound) in least.items():
        if value is not None and value < bound:
            yield PlanProblem(f"{where}.{name}", "value", f"must be at least {bound:g}")
    if step.timeout_s is not None and not step.timeout_s > 0:
        yield PlanProblem(f"{where}.timeout_s", "value", "must be more than 0")


def _needs(step: Step, known: Collection[str], where: str) -> Iterator[PlanProblem]:
    for each in dict.fromkeys(step.depends_on):
        if each == step.id:
            yield PlanProblem(where, "self", "depends on itself")
        elif each not in known:
            told = f"depends on {each[:60]!r}, neither a step of its task nor an input"
            yield PlanProblem(where, "unknown_dependency", told)


def _needed_tasks(task: Task, known: Collection[str], where: str) -> Iterator[PlanProblem]:
    for each in dict.fromkeys(task.depends_on):
        if each == task.id:
            yield PlanProblem(where, "self", "depends on itself")
        elif each not in known:
            told = f"depends on {each[:60]!r}, which is no task"
            yield PlanProblem(where, "unknown_dependency", told)


def _unknown_tools(step: Step, tools: Collection[str] | None, where: str) -> Iterator[PlanProblem]:
    if tools is None:
        return
    for each in step.tools or ():
        if each not in tools and each not in OURS:
            there = ", ".join(sorted(tools)) or "none"
            told = f"there is no tool {each[:60]!r}; there are: {there}"
            yield PlanProblem(f"{where}.tools", "unknown_tool", told)


def _finish(task: Task, where: str, final_step_id: str | None) -> Iterator[PlanProblem]:
    """Find steps that wait for the finish step, which itself waits for all others."""
    if not task.steps:
        return
    ids = [step.id for step in task.steps]
    if final_step_id is not None and final_step_id not in ids:
        yield PlanProblem(where, "final_step", f"no step has the id {final_step_id!r}")
        return
    finish = final_step_id or ids[-1]
    for number, step in enumerate(task.steps):
        if finish in step.depends_on and step.id != finish:
            told = f"needs {finish!r}, the finish step, which waits for all other steps"
            yield PlanProblem(f"{where}.steps[{number}]", "finish", told)


def _places(tasks: Sequence[Task]) -> Iterator[tuple[str, str]]:
    for i, task in enumerate(tasks):
        for j, step in enumerate(task.steps):
            yield f"plan.tasks[{i}].steps[{j}]", step.id


def _repeated(what: str, places: Sequence[tuple[str, str]]) -> Iterator[PlanProblem]:
    first: dict[str, str] = {}
    for where, id in places:
        if id in first:
            yield PlanProblem(where, "duplicate", f"the {what} id {id!r} is that of {first[id]}")
        first.setdefault(id, where)


def _item_ids(tasks: Sequence[Task]) -> Iterator[PlanProblem]:
    """Find steps named like an item of a process step: both would write one key."""
    processes = {step.id for task in tasks for step in task.steps if step.mode == "process"}
    for step in chain.from_iterable(task.steps for task in tasks):
        stem, _, number = step.id.rpartition(".")
        if stem in processes and number.isdecimal():
            told = f"the step id {step.id!r} is that of an item of the process step {stem!r}"
            yield PlanProblem("plan", "duplicate", told)


def _cycles(where: str, needs: Mapping[str, Sequence[str]]) -> Iterator[PlanProblem]:
    for cycle in cycles(needs):
        yield PlanProblem(where, "cycle", f"need one another: {' needs '.join(cycle)}")
