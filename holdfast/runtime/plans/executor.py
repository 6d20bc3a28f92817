"""`TaskExecutor` and `ParallelTaskExecutor`, and their report."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.ground.errors import (
    InvalidPlan,
    NotFound,
    TaskFailed,
)
from holdfast.ground.errors import PlanFailed as Failed
from holdfast.ground.json_values import JSON, hashed
from holdfast.ground.validation import listed
from holdfast.memories.run import keys
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset, named
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, StepError, parts_ready
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent, indexed
from holdfast.runtime.plans.item_runs import runs_of_items
from holdfast.runtime.plans.plan import Resources, State, Task, TaskPlan, problems_of_task
from holdfast.runtime.plans.schedule import Blocked, supply, taken, walk
from holdfast.runtime.plans.wire import model_name, plain
from holdfast.runtime.plans.work import ItemWork, TaskWork
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.version_writer import OnMismatch, checked_mismatch
from holdfast.runtime.steps.executor import StepExecutor
from holdfast.runtime.tools import offered


class TaskExecutor:
    """Executes *task*; raises its problems as InvalidPlan before anything runs.

    The result is that of *final_step_id*, else of the last step, which waits for all others. At
    most *max_steps* steps are begun. Steps and the task may name those of *agents*. Every completed
    step is saved at *checkpoint*, and a run of the same `run_id` goes on from it. Afterwards
    `result`, and `output` as an instance of the type of its schema, or `error` is set.
    """

    def __init__(
        self,
        *,
        task: Task,
        context: Context,
        model: AnyModel | None = None,
        agent: Agent | None = None,
        tools: Sequence[AnyTool] = (),
        toolsets: Sequence[AnyToolset] = (),
        inputs: Mapping[str, JSON] | None = None,
        system_prompt: str | None = None,
        upstream_memory_keys: Sequence[str] = (),
        final_step_id: str | None = None,
        agents: Sequence[Agent] = (),
        max_steps: int = 50,
        max_iterations: int = 10,
        step_token_budget: int = 120_000,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
        on_event: OnEvent | None = None,
    ) -> None:
        self._observer = observer_of(on_event)
        self.checkpoints, self.on_mismatch = checkpoint, checked_mismatch(on_mismatch)
        self.name, self.title = "task", task.title
        self.context, self.task, self._inputs = context, task, taken(inputs)
        self.input_keys = tuple(map(keys.input, self._inputs))
        known = _resources(self._inputs, agents, agent, tools, toolsets)
        if problems := problems_of_task(task, known, final_step_id=final_step_id):
            raise InvalidPlan(problems)
        first = StepExecutor(
            task=task,
            step=task.steps[0],
            context=context,
            model=model,
            agent=agent,
            agents=agents,
            tools=tools,
            toolsets=toolsets,
            system_prompt=system_prompt,
            max_iterations=max_iterations,
            token_budget=step_token_budget,
        )
        self._first = first
        self._item: ItemWork | None = None
        self._work = TaskWork(
            task,
            first,
            upstream=listed(upstream_memory_keys),
            finish=final_step_id or task.steps[-1].id,
            max_steps=max_steps,
        )

    @property
    def result(self) -> JSON:
        """The task's result; None unless it is complete."""
        return self._work.result

    @property
    def output(self) -> Any:
        """The task's result, of the type of its schema; None unless it is complete."""
        return self._work.output

    @property
    def error(self) -> StepError | None:
        """The error of the task; None unless it failed."""
        return self.task.error

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; yield its events as they happen."""
        return executor.events(self, self._observer)

    def stream(self) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer)

    async def run(self) -> Any:
        """Execute it and return its `output`; raise TaskFailed or RunCancelled."""
        await executor.run(self, self._observer)
        return self.output

    def run_sync(self) -> Any:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self, self._observer)
        return self.output

    @property
    def parts(self) -> list[str]:
        """The keys of the entries of the task and its steps."""
        return parts_of([self.task])

    async def perform(self) -> None:
        """Do the work and emit its events."""
        self._work.reset()
        if self.context.root.items is not None:
            self._item = _item_of(self.context, [self._work])
        if self._item is not None:
            return await self._item.perform()
        supply(self.context, self._inputs)
        if self.task.id in self.context.versions.restored.tasks:
            return await self._work.restore()
        return await self._work.perform()

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        return hashes_of(TaskPlan(title=self.title, tasks=[self.task]), self._inputs, self._first)

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        if self._item is not None:
            return self._item.ending()
        error, completed = self.error, self._work.ids("completed")
        if self.task.waiting:
            return ExecutionOutcome(state="waiting", completed=completed)
        if error is None:
            return ExecutionOutcome(state="completed", result=self.result, completed=completed)
        failure = TaskFailed(
            self.task.id,
            error.message,
            failed=self._work.ids("failed"),
            blocked=self._work.ids("blocked"),
        )
        return ExecutionOutcome(
            state="failed",
            reason=error.reason,
            detail=error.message,
            failure=failure,
            completed=completed,
            blocked=self._work.ids("blocked"),
        )


def _resources(
    inputs: Iterable[str],
    agents: Sequence[Agent],
    agent: Agent | None,
    tools: Sequence[AnyTool],
    toolsets: Sequence[AnyToolset],
) -> Resources:
    """Return the resources of a run.

    Raise ToolNameTaken or AgentNameTaken for one name twice.
    """
    named(tools, agent.tools if agent else ())
    return Resources(
        inputs=frozenset(inputs),
        tools=None if toolsets else frozenset(named(tools)),
        agents=indexed([*agents, *([agent] if agent else [])]),
        agent=agent,
    )


def _item_of(context: Context, works: Iterable[TaskWork]) -> ItemWork | None:
    """Return the work of *context*'s run if that does an item; else None."""
    runs = runs_of_items(context)
    return None if runs is None or runs.item is None else ItemWork(works, runs.item)


def parts_of(tasks: Sequence[Task]) -> list[str]:
    """Return the keys of the entries of *tasks* and their steps."""
    steps = [keys.step(step.id) for task in tasks for step in task.steps]
    return [*(keys.task(task.id) for task in tasks), *steps]


def hashes_of(plan: TaskPlan, inputs: Mapping[str, JSON], first: StepExecutor) -> dict[str, str]:
    """Return the hash of each part of a run by its name."""
    agent = first.agent
    model = (agent.model if agent else None) or first.model or first.context.model
    given = [each.agent for task in plan.tasks for each in (task, *task.steps)]
    agents = {each.name: each for each in (*first.agents, *given) if isinstance(each, Agent)}
    parts: dict[str, Any] = {
        "plan.title": plan.title,
        "plan.final_task": plan.final_task,
        **{f"plan.tasks[{number}]": plain(task) for number, task in enumerate(plan.tasks)},
        "inputs": inputs,
        "model": None if model is None else model_name(model),
        "system_prompt": first.system_prompt,
        "agent": _agent(agent),
        "agents": [_equipped(each) for each in agents.values()],
        "tools": _tools([*first.tools, *(agent.tools if agent else ())]),
        "toolsets": _toolsets([*first.toolsets, *(agent.toolsets if agent else ())]),
    }
    return {name: hashed(part) for name, part in parts.items()}


def _agent(agent: Agent | None) -> list[str] | None:
    """Return the agent's name and instructions; of a function, its name."""
    if agent is None:
        return None
    said = agent.instructions
    words = said if isinstance(said, str) else getattr(said, "__qualname__", type(said).__name__)
    return [agent.name, words]


def _equipped(agent: Agent) -> list[Any]:
    """Return the agent with its model and tools."""
    model = None if agent.model is None else model_name(agent.model)
    return [_agent(agent), model, _tools(agent.tools), _toolsets(agent.toolsets)]


def _tools(tools: Sequence[AnyTool]) -> list[list[Any]]:
    return [[tool.name, tool.function_schema.json_schema] for tool in offered(tools)]


def _toolsets(toolsets: Sequence[AnyToolset]) -> list[list[str | None]]:
    """Return the known facts of toolsets before connecting; their tools are not known."""
    return [[type(each).__name__, each.id] for each in toolsets]


class TaskReport(Struct, frozen=True, kw_only=True):
    """The outcome of one task; restored steps count no usage."""

    id: str
    title: str
    state: State
    cause: str | None
    failing_steps: tuple[str, ...]
    blocked_by: tuple[str, ...]
    iterations: int
    tokens: int
    seconds: float


class Report(Struct, frozen=True, kw_only=True):
    """The outcome of a plan.

    `checkpoint_failed` is the reason of the last failed checkpoint.
    """

    title: str
    run_id: str
    tasks: tuple[TaskReport, ...]
    checkpoint_failed: str | None = None

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        lines = [f"{self.title} ({self.run_id})", *map(_line, self.tasks)]
        if self.checkpoint_failed:
            lines.append(f"not checkpointed: {self.checkpoint_failed}")
        return "\n".join(lines)


def reported(task: Task, *, iterations: int, tokens: int) -> TaskReport:
    """Return the outcome of *task*, with its requests and tokens."""
    began, ended = task.started_at, task.ended_at
    seconds = 0.0 if began is None or ended is None else (ended - began) / 1000
    return TaskReport(
        id=task.id,
        title=task.title,
        state=task.state,
        cause=_cause(task.error, task.blocked_by),
        failing_steps=tuple(step.id for step in task.steps if step.failed),
        blocked_by=tuple(task.blocked_by),
        iterations=iterations,
        tokens=tokens,
        seconds=seconds,
    )


def _cause(error: StepError | None, blocked_by: list[str]) -> str | None:
    if error is not None:
        return error.message
    return f"needs {', '.join(blocked_by)}" if blocked_by else None


def _line(task: TaskReport) -> str:
    cause = f": {task.cause}" if task.cause else ""
    cost = f"{task.iterations} requests, {task.tokens:,} tokens, {task.seconds:.1f} s"
    return f"  {task.id}  {task.state}{cause}  ({cost})"


SPARE = 5
"""Default number of steps that a task may begin beyond those it has."""


class ParallelTaskExecutor:
    """Executes *plan*; raises its problems as InvalidPlan before anything runs.

    With *checkpoint* every completed step is saved there, and a run of the same `run_id` resumes
    from it. If that run was begun with other parts, CheckpointMismatch names them, unless
    *on_mismatch* is "restart". *max_concurrency* narrows that of the context. Steps and tasks may
    name those of *agents*.
    """

    def __init__(
        self,
        *,
        plan: TaskPlan,
        context: Context,
        model: AnyModel | None = None,
        agent: Agent | None = None,
        tools: Sequence[AnyTool] = (),
        toolsets: Sequence[AnyToolset] = (),
        inputs: Mapping[str, JSON] | None = None,
        system_prompt: str | None = None,
        agents: Sequence[Agent] = (),
        max_iterations: int = 10,
        max_steps: int | None = None,
        max_concurrency: int | None = None,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
        on_event: OnEvent | None = None,
    ) -> None:
        self._observer = observer_of(on_event)
        within = context if max_concurrency is None else context.narrowed(max_concurrency)
        self.name, self.title = "plan", plan.title
        self.context, self.plan, self._inputs = context, plan, taken(inputs)
        self.input_keys = tuple(map(keys.input, self._inputs))
        known = _resources(self._inputs, agents, agent, tools, toolsets)
        if problems := plan.problems_with(known):
            raise InvalidPlan(problems)
        first = StepExecutor(
            task=plan.tasks[0],
            step=plan.tasks[0].steps[0],
            context=within,
            model=model,
            agent=agent,
            agents=agents,
            tools=tools,
            toolsets=toolsets,
            system_prompt=system_prompt,
            max_iterations=max_iterations,
        )
        self._first = first
        self.checkpoints, self.on_mismatch = checkpoint, checked_mismatch(on_mismatch)
        self._works: dict[str, TaskWork] = {}
        self._item: ItemWork | None = None
        for task in plan.tasks:
            self._works[task.id] = TaskWork(
                task,
                first,
                upstream=[keys.task(each) for each in task.depends_on],
                finish=task.steps[-1].id,
                max_steps=max_steps or len(task.steps) + SPARE,
            )

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; yield its events as they happen."""
        return executor.events(self, self._observer)

    def stream(self) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer)

    async def run(self) -> Any:
        """Execute it and return its `output`; raise PlanFailed or RunCancelled."""
        await executor.run(self, self._observer)
        return self.output

    def run_sync(self) -> Any:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self, self._observer)
        return self.output

    @property
    def output(self) -> Any:
        """The final result, of the type of its schema; None unless it is complete."""
        return self._works[self.plan.final.id].output

    @property
    def parts(self) -> list[str]:
        """The keys of the entries of its tasks and steps."""
        return parts_of(self.plan.tasks)

    async def perform(self) -> None:
        """Do the work and emit its events."""
        for work in self._works.values():
            work.reset()
        try:
            await self._perform()
        except asyncio.CancelledError:
            for work in self._works.values():
                work.cancel()
            raise

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        if self._item is not None:
            return self._item.ending()
        completed = tuple([task.id for task in self.plan.tasks if task.completed])
        failed = {task.id: task.error for task in self.plan.tasks if task.failed}
        if any(task.waiting for task in self.plan.tasks):
            return ExecutionOutcome(state="waiting", completed=completed)
        if not failed:
            result = self._works[self.plan.final.id].result
            return ExecutionOutcome(state="completed", result=result, completed=completed)
        cause = "; ".join(
            f"task {id}: {error.message if error else ''}" for id, error in failed.items()
        )
        failure = Failed(
            cause, failed=tuple(failed), blocked=self.blocked_task_ids(), report=self.report()
        )
        return ExecutionOutcome(
            state="failed",
            reason="steps",
            detail=cause,
            failure=failure,
            completed=completed,
            blocked=tuple(self.blocked_task_ids()),
        )

    def get_final_result(self) -> JSON:
        """Return the result of the final task; None unless it is complete."""
        return self.get_task_result(self.plan.final.id)

    def get_task_result(self, id: str) -> JSON:
        """Return the result of the task *id*; None unless it is complete.

        Raise NotFound for an unknown id.
        """
        if id not in self._works:
            raise NotFound("task", id, next="Pass the id of a task of this plan.")
        return self._works[id].result

    def get_all_results(self, scope: Literal["run", "plan"] = "run") -> dict[str, JSON]:
        """Return the results of tasks by id, without failed ones.

        *scope* is the whole run, or this plan.
        """
        found = self.context.memory.list(kind="task_result")
        results = {keys.split(entry.key)[1]: entry.value for entry in found if not entry.failed}
        if scope == "run":
            return results
        return {id: value for id, value in results.items() if id in self._works}

    def failed_task_ids(self) -> list[str]:
        """Return the failed tasks, in the order of the plan."""
        return [task.id for task in self.plan.tasks if task.failed]

    def blocked_task_ids(self) -> list[str]:
        """Return the tasks blocked by failures of others, in the order of the plan."""
        return [task.id for task in self.plan.tasks if task.state == "blocked"]

    def report(self) -> Report:
        """Return the outcome of each task."""
        return Report(
            title=self.plan.title,
            run_id=self.context.run_id,
            tasks=tuple(
                reported(work.task, iterations=work.spent.iterations, tokens=work.spent.tokens)
                for work in self._works.values()
            ),
            checkpoint_failed=self.context.versions.failed,
        )

    async def _perform(self) -> None:
        if self.context.root.items is not None:
            self._item = _item_of(self.context, self._works.values())
        if self._item is not None:
            return await self._item.perform()
        supply(self.context, self._inputs)
        await self._warn()
        needs = {task.id: task.depends_on for task in self.plan.tasks}
        await self.context.emit(parts_ready("task", needs))
        return await walk(needs, perform=self._one, blocked=self._blocked)

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        return hashes_of(self.plan, self._inputs, self._first)

    async def _warn(self) -> None:
        """Warn of results of this plan that were in memory before it began."""
        known = self.context.versions.restored.keys
        for key in parts_of(self.plan.tasks):
            if key in self.context.versions.before - known:
                warning = f"{key} was in memory before the plan began."
                await self.context.tell(LogUpdate(severity="warning", content=warning))

    async def _one(self, id: str) -> bool | None:
        work = self._works[id]
        if id in self.context.versions.restored.tasks:
            await work.restore()
            return True
        await work.perform()
        return None if work.task.waiting else work.task.completed

    async def _blocked(self, blocked: Blocked) -> None:
        cause = f"needs {', '.join(blocked.by)}, which failed"
        await self._works[blocked.id].block(blocked.by, cause)
