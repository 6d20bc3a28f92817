"""`TaskPlan`, `Task` and `Step`, and the checks of a plan."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any, Final, Literal, get_args

from msgspec import UNSET, Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_schema import BadSchema
from holdfast.ground.validation import listed
from holdfast.memories.run.records.question import checked_who
from holdfast.runtime.agent import AnyModel, name_of
from holdfast.runtime.events import StepError
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.schema import OutputSchema, schema_of
from holdfast.runtime.plans.wire import NAMES, PlanProblem, read, written


def cycles(needs: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield the cycles of *needs*, each as `a, b, a` for: a needs b needs a.

    Needs that are no key of *needs*, and needs of oneself, are ignored.
    """
    left = {
        each: [need for need in dict.fromkeys(wanted) if need in needs and need != each]
        for each, wanted in needs.items()
    }
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            found: list[str] = error.args[1][::-1]
            yield found
            # One need less, and the next search finds what else there is.
            left[found[0]].remove(found[1])
        else:
            return


# The author writes the fields. The progress of a step or task is set by executors, is no part of
# its JSON, and does not count when two are compared.

State = Literal["pending", "running", "waiting", "completed", "failed", "blocked", "cancelled"]
"""State of a step or a task; the last four are final."""

Mode = Literal["discover", "process", "aggregate", "ask"]
"""How a step uses a list: find it, work on each of its items, or combine them.

A step with mode `ask` is done by a person: its instructions are the question.
"""


@dataclass(kw_only=True)
class Progress:
    """State of a step or a task, set by its executor; instants in ms since 1970."""

    state: State = field(default="pending", init=False, compare=False)
    error: StepError | None = field(default=None, init=False, compare=False)
    blocked_by: list[str] = field(default_factory=list[str], init=False, compare=False)
    started_at: int | None = field(default=None, init=False, compare=False)
    ended_at: int | None = field(default=None, init=False, compare=False)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, [value] if isinstance(value, str) and name in NAMES else value)

    @property
    def completed(self) -> bool:
        """Whether it completed."""
        return self.state == "completed"

    @property
    def failed(self) -> bool:
        """Whether it ran and failed."""
        return self.state == "failed"

    @property
    def settled(self) -> bool:
        """Whether its state is final."""
        return self.state not in ("pending", "running", "waiting")

    @property
    def waiting(self) -> bool:
        """Whether it waits for a person."""
        return self.state == "waiting"

    def reset(self) -> None:
        """Make it pending again."""
        self.state, self.error, self.blocked_by = "pending", None, []
        self.started_at = self.ended_at = None

    def begin(self, at: int) -> None:
        """Mark it as running since *at*, unless it is already."""
        if self.state != "running":
            self.state, self.started_at = "running", at

    def end(self, state: State, at: int, error: StepError | None = None) -> None:
        """Mark it as ended at *at* in *state*."""
        self.state, self.error, self.ended_at = state, error, at


@dataclass(kw_only=True)
class Step(Progress):
    """One piece of work for one agent, with one result.

    *output_schema* is a JSON Schema, or a type that pydantic has a schema for. *agent* and *model*
    go before those of the task, which go before those of the executor. In JSON they are names.
    With mode `ask` no model is requested: *who* may answer, within *timeout* seconds; then
    *default* is the result, and without one the step fails. With *distribute* each item of a step
    with mode `process` is a run of its own, which any worker of its run's definition may take.

    >>> Step(id="find", instructions="List the sources.").state
    'pending'
    """

    id: str
    instructions: str
    depends_on: Sequence[str] = field(default_factory=list[str])
    output_schema: OutputSchema | None = None
    tools: Sequence[str] | None = None
    mode: Mode | None = None
    per_item_instructions: str | None = None
    per_item_schema: OutputSchema | None = None
    max_items: int = 200
    on_item_error: Literal["fail", "skip"] = "fail"
    distribute: bool = False
    max_iterations: int | None = None
    token_budget: int | None = None
    timeout: float | None = None
    retries: int = 0
    agent: Agent | str | None = None
    model: AnyModel | None = None
    default: Any = UNSET
    who: Sequence[str] = field(default_factory=list[str])

    def to_json(self) -> str:
        """Return the author's fields as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "Step":
        """Return the step in *text*; raise InvalidPlan with every unknown key."""
        return read(Step, text, "step")


@dataclass(kw_only=True)
class Task(Progress):
    """Steps with one result: that of the last one, unless another is named."""

    id: str
    title: str
    steps: list[Step]
    description: str | None = None
    depends_on: Sequence[str] = field(default_factory=list[str])
    agent: Agent | str | None = None
    model: AnyModel | None = None

    def to_json(self) -> str:
        """Return the author's fields as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "Task":
        """Return the task in *text*; raise InvalidPlan with every unknown key."""
        return read(Task, text, "task")


TASKS, STEPS = 100, 500
"""Limits of tasks and of steps in one plan."""

ID_LENGTH = 100
OURS: Final = frozenset(
    {
        *("memory_list", "memory_read", "memory_write"),
        *("run_list", "run_read", "run_write", "finish_step", "read_result"),
    }
)
"""Tools that every step has or may get; a step may name them."""

_ALLOWED = re.compile(r"[A-Za-z0-9_.-]*")


class Resources(Struct, frozen=True, kw_only=True):
    """Resources that steps may name: keys of inputs, tools, agents.

    *tools* are those of every step, None if they are not known. *agents* are the agents by name,
    None for one of which nothing but the name is known; without *agents* names are not checked.
    *agent* does the steps that name none.
    """

    inputs: frozenset[str] = frozenset()
    tools: frozenset[str] | None = None
    agents: Mapping[str, Agent | None] | None = None
    agent: Agent | None = None

    def tools_of(self, task: Task, step: Step) -> Collection[str] | None:
        """Return the tools that *step* has; None if they are not known."""
        given = step.agent or task.agent or self.agent
        agent = (self.agents or {}).get(given) if isinstance(given, str) else given
        if self.tools is None or (agent and agent.toolsets):
            return None
        if given is None:
            return self.tools
        return self.tools | set(map(name_of, agent.tools)) if agent else None

    def problem(self, given: Agent | str | None, where: str) -> Iterator[PlanProblem]:
        """Yield the problem of the agent *given*, if it is unknown."""
        if isinstance(given, str) and self.agents is not None and given not in self.agents:
            there = ", ".join(self.agents) or "none"
            message = f"there is no agent {given[:60]!r}; there are: {there}"
            yield PlanProblem(f"{where}.agent", "agent", message)


def problems_of(
    title: str, tasks: Sequence[Task], final_task: str | None, resources: Resources
) -> list[PlanProblem]:
    """Return all problems of the plan of *tasks*."""
    found, ids = list(_of_plan(title, tasks, final_task)), {each.id for each in tasks}
    for number, task in enumerate(tasks):
        where = f"plan.tasks[{number}]"
        found += _of_task(task, where)
        found += _needed_tasks(task, ids, where)
        found += problems_of_steps(task, where, resources)
    found += _repeated("task", [(f"plan.tasks[{i}]", task.id) for i, task in enumerate(tasks)])
    found += _repeated("step", list(_places(tasks)))
    found += _item_ids(tasks)
    found += _cycles("plan.tasks", {task.id: task.depends_on for task in tasks})
    return found


def problems_of_task(
    task: Task, resources: Resources, *, final_step_id: str | None = None
) -> list[PlanProblem]:
    """Return all problems of *task* run alone, without its needs of other tasks."""
    found = [*_of_task(task, "task")]
    found += problems_of_steps(task, "task", resources, final_step_id=final_step_id)
    found += _repeated("step", [(f"task.steps[{i}]", each.id) for i, each in enumerate(task.steps)])
    found += _item_ids([task])
    if len(task.steps) > STEPS:
        found.append(PlanProblem("task", "too_many", f"has {len(task.steps)} steps, over {STEPS}"))
    return found


def problems_of_steps(
    task: Task, where: str, resources: Resources, *, final_step_id: str | None = None
) -> Iterator[PlanProblem]:
    """Yield the problems of the steps of *task*, alone and together."""
    ids = {step.id for step in task.steps}
    yield from resources.problem(task.agent, where)
    for number, step in enumerate(task.steps):
        place = f"{where}.steps[{number}]"
        yield from _of_step(step, place)
        yield from _needs(step, ids | resources.inputs, place)
        yield from resources.problem(step.agent, place)
        yield from _unknown_tools(step, resources.tools_of(task, step), place)
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
        message = f"the id {id[:60]!r} may only hold letters, digits, '_', '.' and '-'"
        yield PlanProblem(where, "id", message)
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
            yield PlanProblem(f"{where}.{name}", error.code, str(error))
    yield from _modes(step, where)
    yield from _values(step, where)


def _modes(step: Step, where: str) -> Iterator[PlanProblem]:
    if step.mode is not None and step.mode not in get_args(Mode):
        message = f"mode {step.mode!r} is none of {', '.join(get_args(Mode))}"
        yield PlanProblem(where, "mode", message)
    if step.mode == "process" and not step.depends_on:
        message = "a process step needs a dependency to take its items from"
        yield PlanProblem(where, "mode", message)
    if step.mode != "ask" and (step.default is not UNSET or step.who):
        name = "who" if step.default is UNSET else "default"
        yield PlanProblem(f"{where}.{name}", "mode", "is only for a step with mode ask")
    try:
        checked_who(step.who)
    except InvalidInput as error:
        yield PlanProblem(f"{where}.who", "who", error.reason)
    if step.mode != "process":
        for name in ("per_item_instructions", "per_item_schema", "distribute"):
            if getattr(step, name) not in (None, False):
                message = "is only for a step with mode process"
                yield PlanProblem(f"{where}.{name}", "mode", message)
    if step.on_item_error not in ("fail", "skip"):
        message = f"{step.on_item_error!r} is neither fail nor skip"
        yield PlanProblem(f"{where}.on_item_error", "value", message)


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
    if step.timeout is not None and not step.timeout > 0:
        yield PlanProblem(f"{where}.timeout", "value", "must be more than 0")


def _needs(step: Step, known: Collection[str], where: str) -> Iterator[PlanProblem]:
    for each in dict.fromkeys(step.depends_on):
        if each == step.id:
            yield PlanProblem(where, "self", "depends on itself")
        elif each not in known:
            message = f"depends on {each[:60]!r}, neither a step of its task nor an input"
            yield PlanProblem(where, "unknown_dependency", message)


def _needed_tasks(task: Task, known: Collection[str], where: str) -> Iterator[PlanProblem]:
    for each in dict.fromkeys(task.depends_on):
        if each == task.id:
            yield PlanProblem(where, "self", "depends on itself")
        elif each not in known:
            message = f"depends on {each[:60]!r}, which is no task"
            yield PlanProblem(where, "unknown_dependency", message)


def _unknown_tools(step: Step, tools: Collection[str] | None, where: str) -> Iterator[PlanProblem]:
    if tools is None:
        return
    for each in step.tools or ():
        if each not in tools and each not in OURS:
            there = ", ".join(sorted(tools)) or "none"
            message = f"there is no tool {each[:60]!r}; there are: {there}"
            yield PlanProblem(f"{where}.tools", "unknown_tool", message)


def _finish(task: Task, where: str, final_step_id: str | None) -> Iterator[PlanProblem]:
    """Yield steps that need the finish step, which itself waits for all others."""
    if not task.steps:
        return
    ids = [step.id for step in task.steps]
    if final_step_id is not None and final_step_id not in ids:
        yield PlanProblem(where, "final_step", f"no step has the id {final_step_id!r}")
        return
    finish = final_step_id or ids[-1]
    for number, step in enumerate(task.steps):
        if finish in step.depends_on and step.id != finish:
            message = f"needs {finish!r}, the finish step, which waits for all other steps"
            yield PlanProblem(f"{where}.steps[{number}]", "finish", message)


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
    """Yield step ids equal to an item's of a process step: both would write one key."""
    processes = {step.id for task in tasks for step in task.steps if step.mode == "process"}
    for step in chain.from_iterable(task.steps for task in tasks):
        stem, _, number = step.id.rpartition(".")
        if stem in processes and number.isdecimal():
            message = f"the step id {step.id!r} is that of an item of the process step {stem!r}"
            yield PlanProblem("plan", "duplicate", message)


def _cycles(where: str, needs: Mapping[str, Sequence[str]]) -> Iterator[PlanProblem]:
    for cycle in cycles(needs):
        yield PlanProblem(where, "cycle", f"need one another: {' needs '.join(cycle)}")


@dataclass(kw_only=True)
class TaskPlan:
    """Tasks with their dependencies; `final_task` is the last one unless named.

    >>> plan = TaskPlan(title="Greet", tasks=[Task(id="hi", title="Say hi", steps=[])])
    >>> [str(problem) for problem in plan.problems()]
    ['plan.tasks[0]: has no steps']
    """

    title: str
    tasks: list[Task]
    final_task: str | None = None

    @property
    def final(self) -> Task:
        """The task with the result of the plan."""
        return self.task(self.final_task) if self.final_task else self.tasks[-1]

    @property
    def steps(self) -> list[Step]:
        """The steps of all tasks, in order."""
        return [step for task in self.tasks for step in task.steps]

    def task(self, id: str) -> Task:
        """Return the task with this id; raise KeyError for an unknown one."""
        for task in self.tasks:
            if task.id == id:
                return task
        raise KeyError(id)

    def problems(
        self,
        inputs: Iterable[str] = (),
        tools: Collection[str] | None = None,
        agents: Iterable[Agent | str] | None = None,
    ) -> list[PlanProblem]:
        """Return all problems that prevent a run.

        *inputs* are the keys of the run's inputs, *tools* the names of its tools, *agents* its
        agents or their names. Without *tools* or *agents* those named by steps are not checked.
        """
        named = {
            each if isinstance(each, str) else each.name: each for each in listed(agents or ())
        }
        resources = Resources(
            inputs=frozenset(listed(inputs)),
            tools=None if tools is None else frozenset(listed(tools)),
            agents=None
            if agents is None
            else {name: None if isinstance(each, str) else each for name, each in named.items()},
        )
        return self.problems_with(resources)

    def problems_with(self, resources: Resources) -> list[PlanProblem]:
        """Return all problems that prevent a run with *resources*."""
        return problems_of(self.title, self.tasks, self.final_task, resources)

    def to_json(self) -> str:
        """Return the author's fields as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "TaskPlan":
        """Return the plan in *text*; raise InvalidPlan with every unknown key."""
        return read(TaskPlan, text, "plan")


def with_schema(plan: TaskPlan, schema: OutputSchema | None) -> TaskPlan:
    """Return *plan* with *schema* for its result, the finish step of its final task."""
    if schema is None:
        return plan
    final = plan.final
    finish = replace(final.steps[-1], output_schema=schema)
    changed = replace(final, steps=[*final.steps[:-1], finish])
    return replace(plan, tasks=[changed if task is final else task for task in plan.tasks])
