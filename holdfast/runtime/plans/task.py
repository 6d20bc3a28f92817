"""One task, executed: its steps by what they need, each by an agent of its own."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from holdfast.ground.errors import InvalidPlan, TaskFailed
from holdfast.ground.json_values import JSON
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, StepError
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import Task, problems_of_task
from holdfast.runtime.plans.schedule import PlanContext, supply, taken
from holdfast.runtime.plans.work import TaskWork


class TaskExecutor:
    """Executes *task*; its problems are all raised here, as InvalidPlan, before anything runs.

    The result is that of *final_step_id*, else of the last step, which waits for all others. At
    most *max_steps* steps are begun. Afterwards `result` or `error` tells what came of it.
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
        max_steps: int = 50,
        max_step_iterations: int = 10,
        step_token_budget: int = 120_000,
    ) -> None:
        means = PlanContext(
            context,
            model=model,
            agent=agent,
            tools=tools,
            toolsets=toolsets,
            system_prompt=system_prompt,
            upstream_memory_keys=tuple(upstream_memory_keys),
            max_iterations=max_step_iterations,
            token_budget=step_token_budget,
        )
        self.name, self.title = "task", task.title
        self.context, self.task, self._inputs = context, task, taken(inputs)
        problems = problems_of_task(
            task, inputs=self._inputs, tools=means.tool_names(), final_step_id=final_step_id
        )
        if problems:
            raise InvalidPlan(problems)
        means.check(task)
        finish = final_step_id or task.steps[-1].id
        self._work = TaskWork(task, means, finish=finish, max_steps=max_steps)

    @property
    def result(self) -> JSON:
        """The task's result; None unless it is complete."""
        return self._work.result

    @property
    def error(self) -> StepError | None:
        """Why the task failed; None unless it did."""
        return self.task.error

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; give its events as they happen."""
        return executor.events(self)

    async def run(self) -> JSON:
        """Execute it; return its result, or raise TaskFailed or RunCancelled."""
        return await executor.run(self)

    def run_sync(self) -> JSON:
        """Do as `run` does, without an event loop."""
        return executor.run_sync(self)

    async def perform(self) -> None:
        """Do the work, telling of it."""
        self._work.reset()
        supply(self.context, self._inputs)
        await self._work.perform()

    def ending(self) -> ExecutionOutcome:
        """Return what came of it."""
        error, completed = self.error, self._work.ids("completed")
        if error is None:
            return ExecutionOutcome(state="completed", result=self.result, completed=completed)
        failure = TaskFailed(
            self.task.id,
            error.message,
            failed=self._work.ids("failed"),
            blocked=self._work.ids("blocked"),
        )
        return ExecutionOutcome(
            state="failed", reason=error.message, failure=failure, completed=completed
        )
