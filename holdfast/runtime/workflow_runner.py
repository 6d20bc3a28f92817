"""A workflow, run: each node once those it needs are done, none after one that failed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    InvalidPlan,
    RunCancelled,
    StepFailed,
    TaskFailed,
)
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool
from holdfast.runtime.agent_step import AgentStepExecutor, AgentStepNode
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, StepError, TaskMoment, TaskUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.plans.schedule import Blocked
from holdfast.runtime.plans.shapes import State
from holdfast.runtime.plans.walking import walk
from holdfast.runtime.workflow import Edge, Values, Workflow

TITLE: Final = 80
"""Characters of the names of nodes that a workflow is called by."""

log = logging.getLogger(__name__)


class WorkflowRunner:
    """Runs *workflow* in *context*; its problems are all raised here, as InvalidPlan.

    *tools* are what nodes of agents may name, *model* is asked by those that have none. Afterwards
    `outputs` holds what each completed node gave, `states` and `errors` what became of the others.
    """

    def __init__(
        self,
        workflow: Workflow,
        context: Context,
        *,
        tools: Sequence[AnyTool] = (),
        model: AnyModel | None = None,
    ) -> None:
        if problems := workflow.problems():
            raise InvalidPlan(problems)
        self.workflow, self.context, self.name = workflow, context, "workflow"
        self.title = ", ".join(node.id for node in workflow.nodes)[:TITLE]
        self._nodes = {node.id: node for node in workflow.nodes}
        self._agents = {
            node.id: AgentStepExecutor(node, tools=tools, model=model)
            for node in workflow.nodes
            if isinstance(node, AgentStepNode)
        }
        for each in self._agents.values():
            each.check(context)
        self._given: dict[str, dict[str, Any]] = {}
        self._reset()

    def execute(self, inputs: Mapping[str, Values] | None = None) -> AsyncGenerator[ExecutionEvent]:
        """Run it with *inputs*, by node and name; give its events as they happen."""
        self._given = self._checked(inputs)
        return executor.events(self)

    async def run(self, inputs: Mapping[str, Values] | None = None) -> dict[str, dict[str, Any]]:
        """Run it; return the outputs of every node, or raise TaskFailed or RunCancelled."""
        self._given = self._checked(inputs)
        return await executor.run(self)

    def run_sync(self, inputs: Mapping[str, Values] | None = None) -> dict[str, dict[str, Any]]:
        """Do as `run` does, without an event loop."""
        self._given = self._checked(inputs)
        return executor.run_sync(self)

    async def perform(self) -> None:
        """Do the work, telling of it."""
        self._reset()
        try:
            await walk(self.workflow.needs(), perform=self._one, blocked=self._blocked)
        except asyncio.CancelledError:
            why = self.context.cancelled or "cancelled"
            for id in self._in_state("pending", "running"):
                told = id in self._agents and self.states[id] == "running"
                self.states[id] = "cancelled"
                if not told:
                    self.context.tell_soon(_update("step_cancelled", id, cause=why))
            raise

    def ending(self) -> ExecutionOutcome:
        """Return what came of it."""
        completed = self._in_state("completed")
        if not self.errors:
            return ExecutionOutcome(state="completed", result=self.outputs, completed=completed)
        cause = "; ".join(f"node {id} failed: {error}" for id, error in self.errors.items())
        failure = TaskFailed(
            "workflow", cause, failed=tuple(self.errors), blocked=self._in_state("blocked")
        )
        return ExecutionOutcome(state="failed", reason=cause, failure=failure, completed=completed)

    def _reset(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, StepError] = {}
        self.states: dict[str, State] = dict.fromkeys(self._nodes, "pending")

    def _in_state(self, *states: State) -> tuple[str, ...]:
        return tuple(id for id, state in self.states.items() if state in states)

    def _checked(self, inputs: Mapping[str, Values] | None) -> dict[str, dict[str, Any]]:
        """Return a copy of *inputs*; InvalidInput for what no node waits to be given."""
        led = {(edge.target, edge.input) for edge in self.workflow.edges}
        for id, values in (inputs or {}).items():
            if id not in self._nodes:
                raise InvalidInput("inputs", f"there is no node {id!r}", given=id)
            for name in values:
                if (id, name) in led:
                    raise InvalidInput(f"inputs.{id}.{name}", "has an edge, and is given as well")
        return {id: dict(values) for id, values in (inputs or {}).items()}

    async def _one(self, id: str) -> bool | None:
        self.states[id] = "running"
        try:
            outputs = await self._processed(id)
        except StepFailed as error:
            return await self._fail(id, error, told=id in self._agents)
        except HoldfastError as error:
            if isinstance(error, RunCancelled) and self.context.cancelled is not None:
                self.states[id] = "cancelled"
                return None
            return await self._fail(id, error)
        except Exception as error:
            # A node is the user's code: that it raised must not stop what does not need it.
            log.exception("the node %s of the run %s", id, self.context.run_id)
            return await self._fail(id, error, told=id in self._agents)
        self.outputs[id], self.states[id] = outputs, "completed"
        if id not in self._agents:
            await self.context.tell(_update("step_completed", id))
        return True

    async def _processed(self, id: str) -> dict[str, Any]:
        inputs = dict(self._given.get(id, {}))
        for edge in self.workflow.edges:
            if edge.target == id:
                inputs[edge.input] = self._led(edge)
        if id in self._agents:
            return await self._agents[id].process(inputs, self.context)
        await self.context.tell(_update("step_started", id))
        outputs = await self._nodes[id].process(inputs, self.context)
        if not isinstance(outputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            told = f"must be a dict of outputs by name, is {type(outputs).__name__}"
            raise InvalidInput(f"outputs.{id}", told)
        return dict(outputs)

    def _led(self, edge: Edge) -> Any:
        """Return what *edge* leads to its input; InvalidInput if its source gave no such output."""
        outputs = self.outputs[edge.source]
        if edge.output not in outputs:
            there = ", ".join(outputs) or "nothing"
            told = f"{edge.source} gave no {edge.output}, but {there}"
            raise InvalidInput(f"inputs.{edge.target}.{edge.input}", told)
        return outputs[edge.output]

    async def _fail(self, id: str, raised: Exception, *, told: bool = False) -> bool:
        """Let the node fail of what it *raised*, telling of it unless its step has *told*."""
        known = raised.error if isinstance(raised, StepFailed) else None
        internal = StepError("internal", f"{type(raised).__name__}: {raised}")
        error = known if isinstance(known, StepError) else internal
        self.states[id], self.errors[id] = "failed", error
        if not told:
            await self.context.tell(_update("step_failed", id, cause=str(error)))
        return False

    async def _blocked(self, blocked: Blocked) -> None:
        self.states[blocked.id] = "blocked"
        cause = f"needs {', '.join(blocked.by)}, which failed"
        told = _update("step_blocked", blocked.id, cause=cause, blocked_by=blocked.by)
        await self.context.tell(told)


def _update(
    event: TaskMoment, id: str, *, cause: str | None = None, blocked_by: tuple[str, ...] = ()
) -> TaskUpdate:
    return TaskUpdate(event=event, step_id=id, cause=cause, blocked_by=blocked_by)
