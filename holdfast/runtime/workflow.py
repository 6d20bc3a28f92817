"""Workflows: graphs of functions and steps of agents, and their runner."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    InvalidPlan,
    RunCancelled,
    RunWaiting,
    StepFailed,
    TaskFailed,
)
from holdfast.ground.json_values import encode, hashed
from holdfast.ground.validation import listed
from holdfast.memories.run import keys
from holdfast.memories.run.entry import TITLE_CHARS, VALUE_DEPTH
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.listeners import working_part
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, named
from holdfast.runtime.concurrency import (
    LENT,
    Suspended,
    awaited,
    cause_of,
    contained,
    refuse_at_work,
)
from holdfast.runtime.context import Context
from holdfast.runtime.events import (
    ExecutionEvent,
    StepError,
    TaskMoment,
    TaskUpdate,
    parts_ready,
)
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import (
    Resources,
    State,
    Step,
    Task,
    cycles,
    problems_of_steps,
)
from holdfast.runtime.plans.schedule import Blocked, walk
from holdfast.runtime.plans.schema import OutputSchema, ResultSchema, plain_json
from holdfast.runtime.plans.wire import PlanProblem, plain
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.suspension import AnswerTimeout, PartCall, asking
from holdfast.runtime.runs.version_writer import NODE, OnMismatch, checked_mismatch
from holdfast.runtime.steps.executor import StepExecutor


@dataclass(frozen=True)
class AgentStepNode:
    """A node of which an agent makes the output, by *instructions*.

    *tools* are tools, or names of tools of its executor; None is all of these, () none.
    """

    id: str
    instructions: str
    _: KW_ONLY
    output_schema: OutputSchema | None = None
    tools: Sequence[AnyTool | str] | None = None
    model: AnyModel | None = None
    agent: Agent | None = None

    async def process(self, inputs: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Return the agent's result for *inputs*, as `output` and as `result`."""
        return await AgentStepExecutor(self).process(inputs, context)

    @property
    def names(self) -> list[str] | None:
        """The names of the executor's tools it uses; None for all of them."""
        if self.tools is None:
            return None
        return [each for each in listed(self.tools) if isinstance(each, str)]

    @property
    def own(self) -> list[AnyTool]:
        """The tools it brings itself."""
        return [each for each in listed(self.tools or ()) if not isinstance(each, str)]

    def step(self) -> Step:
        """Return the node as a new step."""
        return Step(id=self.id, instructions=self.instructions, output_schema=self.output_schema)


class AgentStepExecutor:
    """Executes *node* with those of *tools* it may use, and *model* if it has none."""

    def __init__(
        self,
        node: AgentStepNode,
        *,
        tools: Sequence[AnyTool] = (),
        model: AnyModel | None = None,
    ) -> None:
        self.node = node
        self._tools, self._model = tuple(tools), model

    def check(self, context: Context) -> None:
        """Raise what would prevent its start in *context*: NoModel, ToolNameTaken."""
        self._executor(context, ())

    async def process(self, inputs: Mapping[str, Any], context: Context | None) -> dict[str, Any]:
        """Return the agent's result for *inputs*, as `output` and in JSON as `result`.

        Each input that is not None is stored in JSON as `input:<node>.<name>`, and the agent gets
        its key. Raise StepFailed if the agent fails.
        """
        if not isinstance(context, Context):
            raise InvalidInput("context", "is needed: the inputs are kept in its memory")
        given: list[str] = []
        for name, value in inputs.items():
            if value is None:
                continue
            key, title = keys.input(f"{self.node.id}.{name}"), f"{self.node.id}.{name}"
            stored = plain_json(value)
            context.memory.set(key, stored, source=self.node.id, title=title[:TITLE_CHARS])
            given.append(key)
        step = self._executor(context, given)
        return {"output": await step.run(), "result": step.result}

    def _executor(self, context: Context, given: Sequence[str]) -> StepExecutor:
        node, step = self.node, self.node.step()
        return StepExecutor(
            task=Task(id=node.id, title=node.id, steps=[step]),
            step=step,
            context=context,
            model=node.model or self._model,
            agent=node.agent,
            tools=self._offered(),
            upstream_memory_keys=given,
        )

    def _offered(self) -> list[AnyTool]:
        """Return the tools that the node may use; raise InvalidInput for an unknown name."""
        wanted = self.node.names
        if wanted is None:
            return list(self._tools)
        known = named(self._tools)
        if missing := [each for each in wanted if each not in known]:
            there = ", ".join(known) or "none"
            reason = f"there is no {', '.join(missing)}; there are: {there}"
            raise InvalidInput("tools", reason, given=missing[0])
        return [*(known[each] for each in wanted), *self.node.own]


Values: TypeAlias = Mapping[str, Any]
"""Inputs or outputs of a node, by name."""


class Node(Protocol):
    """A part of a workflow; its `id` is unique in the workflow."""

    @property
    def id(self) -> str:
        """The id."""
        ...

    async def process(self, inputs: dict[str, Any], context: Context) -> Values:
        """Return its outputs, by name; an exception is its failure."""
        ...


class Edge(Struct, frozen=True):
    """Passes the *output* of the node *source* to the *input* of the node *target*."""

    source: str
    output: str
    target: str
    input: str


@dataclass(frozen=True)
class FunctionNode:
    """A node whose outputs *function* returns, from its inputs and the context.

    The function may be plain or awaitable. A plain one is called on the event loop, so it must not
    block.
    """

    id: str
    function: Callable[[dict[str, Any], Context], Values | Awaitable[Values]]

    async def process(self, inputs: dict[str, Any], context: Context) -> Values:
        """Return the result of the function."""
        return await awaited(self.function(inputs, context))


@dataclass(frozen=True)
class Workflow:
    """*nodes*, and the *edges* between them.

    >>> double = FunctionNode("double", lambda inputs, context: {"n": inputs["n"] * 2})
    >>> Workflow([double], [Edge("double", "n", "double", "n")]).problems()[0].message
    'leads back to its own node'
    """

    nodes: Sequence[Node]
    edges: Sequence[Edge] = ()

    def needs(self) -> dict[str, list[str]]:
        """Return the ids of the nodes that each node needs."""
        sources = {node.id: list[str]() for node in self.nodes}
        for edge in self.edges:
            if edge.target in sources:
                sources[edge.target].append(edge.source)
        return sources

    def problems(self) -> list[PlanProblem]:
        """Return all problems that prevent a run."""
        return [*self._of_nodes(), *self._of_edges(), *self._of_cycles()]

    def _of_nodes(self) -> Iterator[PlanProblem]:
        if not self.nodes:
            yield PlanProblem("workflow", "no_nodes", "has no nodes")
        seen: set[str] = set()
        for number, node in enumerate(self.nodes):
            where = f"workflow.nodes[{number}]"
            if node.id in seen:
                yield PlanProblem(where, "duplicate", f"another node has the id {node.id!r}")
            seen.add(node.id)
            # The id and the instructions of a node follow the rules of a step.
            is_step = isinstance(node, AgentStepNode)
            step = node.step() if is_step else Step(id=node.id, instructions="A function.")
            alone = Task(id="workflow", title="workflow", steps=[step])
            for problem in problems_of_steps(alone, "", Resources()):
                place = problem.where.removeprefix(".steps[0]")
                yield PlanProblem(where + place, problem.code, problem.message)

    def _of_edges(self) -> Iterator[PlanProblem]:
        known = {node.id for node in self.nodes}
        taken: set[tuple[str, str]] = set()
        for number, edge in enumerate(self.edges):
            where = f"workflow.edges[{number}]"
            for end in dict.fromkeys((edge.source, edge.target)):
                if end not in known:
                    yield PlanProblem(where, "unknown_node", f"there is no node {end!r}")
            if edge.source == edge.target:
                yield PlanProblem(where, "self", "leads back to its own node")
            if (edge.target, edge.input) in taken:
                message = f"{edge.target}.{edge.input} has an edge already"
                yield PlanProblem(where, "two_edges", message)
            taken.add((edge.target, edge.input))

    def _of_cycles(self) -> Iterator[PlanProblem]:
        for cycle in cycles(self.needs()):
            message = f"need one another: {' needs '.join(cycle)}"
            yield PlanProblem("workflow.edges", "cycle", message)


TITLE: Final = 80
"""Characters of the title of a workflow, made of its nodes' ids."""

log = logging.getLogger(__name__)


class WorkflowRunner:
    """Runs *workflow* in *context*; raises all its problems as InvalidPlan here.

    *tools* are what nodes of agents may name, *model* is for those that have none. The outputs of
    each completed node are kept at *checkpoint*, and a run of the same `run_id` goes on from them.
    Afterwards `outputs` holds them, `states` and `errors` describe the other nodes.
    """

    def __init__(
        self,
        workflow: Workflow,
        context: Context,
        *,
        tools: Sequence[AnyTool] = (),
        model: AnyModel | None = None,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
        on_event: OnEvent | None = None,
    ) -> None:
        self._observer = observer_of(on_event)
        self.checkpoints, self.on_mismatch = checkpoint, checked_mismatch(on_mismatch)
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
        """Run it with *inputs*, by node and name; yield its events as they happen."""
        return executor.events(self, self._observer, self._taking(inputs))

    def stream(self, inputs: Mapping[str, Values] | None = None) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer, self._taking(inputs))

    async def run(self, inputs: Mapping[str, Values] | None = None) -> dict[str, dict[str, Any]]:
        """Run it and return the outputs of every node; raise TaskFailed or RunCancelled."""
        self._given = self._checked(inputs)
        return await executor.run(self, self._observer)

    def run_sync(self, inputs: Mapping[str, Values] | None = None) -> dict[str, dict[str, Any]]:
        """Do as `run` does, without an event loop."""
        self._given = self._checked(inputs)
        return executor.run_sync(self, self._observer)

    @property
    def parts(self) -> list[str]:
        """The keys of the entries of its nodes."""
        return [keys.step(id) for id in self._nodes]

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        facts: dict[str, Any] = {
            f"workflow.nodes.{id}": plain(node.step()) if isinstance(node, AgentStepNode) else id
            for id, node in self._nodes.items()
        }
        facts |= {"workflow.edges": list(self.workflow.edges), "inputs": self._given}
        plain_facts = msgspec.to_builtins(facts, enc_hook=repr)
        return {name: hashed(fact) for name, fact in plain_facts.items()}

    async def perform(self) -> None:
        """Do the work and emit its events."""
        done = self.outputs if self._in_state("waiting") else {}
        self._reset()
        self.outputs |= done
        try:
            await self.context.emit(parts_ready("node", self.workflow.needs()))
            await walk(self.workflow.needs(), perform=self._one, blocked=self._blocked)
        except asyncio.CancelledError:
            why = self.context.cancelled or "cancelled"
            for id in self._in_state("pending", "running", "waiting"):
                emitted = id in self._agents and self.states[id] == "running"
                self.states[id] = "cancelled"
                if not emitted:
                    self.context.tell_soon(_update("step_cancelled", id, cause=why))
            raise

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        completed = self._in_state("completed")
        if self._in_state("waiting"):
            return ExecutionOutcome(state="waiting", completed=completed)
        if not self.errors:
            return ExecutionOutcome(state="completed", result=self.outputs, completed=completed)
        cause = "; ".join(f"node {id} failed: {error}" for id, error in self.errors.items())
        failure = TaskFailed(
            "workflow", cause, failed=tuple(self.errors), blocked=self._in_state("blocked")
        )
        return ExecutionOutcome(
            state="failed",
            reason="steps",
            detail=cause,
            failure=failure,
            completed=completed,
            blocked=self._in_state("blocked"),
        )

    def _reset(self) -> None:
        self.outputs: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, StepError] = {}
        self.states: dict[str, State] = dict.fromkeys(self._nodes, "pending")

    def _in_state(self, *states: State) -> tuple[str, ...]:
        return tuple(id for id, state in self.states.items() if state in states)

    def _taking(self, inputs: Mapping[str, Values] | None) -> Callable[[], None]:
        """Return what sets a copy of *inputs*, which are checked here, for one execution."""
        given = self._checked(inputs)

        def take() -> None:
            self._given = given

        return take

    def _checked(self, inputs: Mapping[str, Values] | None) -> dict[str, dict[str, Any]]:
        """Return a copy of *inputs*; raise InvalidInput for an unknown or connected input.

        Raise RunTaken if the workflow runs already, with inputs of its own.
        """
        refuse_at_work(self)
        led = {(edge.target, edge.input) for edge in self.workflow.edges}
        for id, values in (inputs or {}).items():
            if id not in self._nodes:
                raise InvalidInput("inputs", f"there is no node {id!r}", given=id)
            for name in values:
                if (id, name) in led:
                    raise InvalidInput(f"inputs.{id}.{name}", "has an edge, and is given as well")
        return {id: dict(values) for id, values in (inputs or {}).items()}

    async def _one(self, id: str) -> bool | None:
        versions = self.context.versions
        known = versions.restored.get("state", NODE + id)
        # It may have been complete before another one waited.
        if id in self.outputs or known is not None:
            self.outputs[id] = self.outputs[id] if known is None else self._restored(id, known)
            self.states[id] = "completed"
            await self.context.tell(_update("step_restored", id))
            return True
        self.states[id] = "running"
        # Each node runs in a task of its own; its step may write the entry of the node.
        LENT.set(frozenset((keys.step(id),)))
        working_part.set(id)
        try:
            outputs = await self._processed(id)
        except StepFailed as error:
            return await self._fail(id, error, emitted=id in self._agents)
        except HoldfastError as error:
            cancelled = isinstance(error, RunCancelled) and self.context.cancelled is not None
            if cancelled or isinstance(error, RunWaiting):
                self.states[id] = "cancelled" if cancelled else "waiting"
                return None
            return await self._fail(id, error)
        except Exception as error:
            # A node is the user's code: that it raised must not stop what does not need it.
            log.exception("the node %s of the run %s", id, self.context.run_id)
            return await self._fail(id, error, emitted=id in self._agents)
        cancelled = await self._kept(id, outputs)
        self.outputs[id], self.states[id] = outputs, "completed"
        if id not in self._agents:
            await self.context.tell(_update("step_completed", id))
        if cancelled is not None:
            raise cancelled
        return True

    async def _kept(self, id: str, outputs: dict[str, Any]) -> asyncio.CancelledError | None:
        """Keep the outputs of a node; return a cancellation that came meanwhile."""
        kept = {"result": outputs["result"]} if id in self._agents else outputs
        row = StateRow("state", NODE + id, msgspec.json.encode(kept))
        try:
            await self.context.versions.complete(id, cause="node", rows=[row])
        except asyncio.CancelledError as error:
            # What is saved is complete, and told as that.
            return error
        return None

    def _restored(self, id: str, kept: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs of a node that an earlier process has completed."""
        node = self._nodes[id]
        if not isinstance(node, AgentStepNode):
            return kept
        result, schema = kept["result"], node.output_schema
        output = result if schema is None else ResultSchema(schema).instance(result)
        return {"output": output, "result": result}

    async def _processed(self, id: str) -> dict[str, Any]:
        inputs = dict(self._given.get(id, {}))
        for edge in self.workflow.edges:
            if edge.target == id:
                inputs[edge.input] = self._led(edge)
        if id in self._agents:
            return await self._agents[id].process(inputs, self.context)
        await self.context.tell(_update("step_started", id))
        outputs = await self._outputs(id, inputs)
        if not isinstance(outputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            reason = f"must be a dict of outputs by name, is {type(outputs).__name__}"
            raise InvalidInput(f"outputs.{id}", reason)
        for name, value in outputs.items():
            encode(value, root="", depth=VALUE_DEPTH, field=f"outputs.{id}.{name}")
        return dict(outputs)

    async def _outputs(self, id: str, inputs: dict[str, Any]) -> Values:
        """Return the outputs of a node, which may ask people."""
        logs = self.context.logs

        async def work() -> Values:
            return await self._nodes[id].process(inputs, self.context)

        try:
            with contained():
                outputs = await asking(PartCall(logs.of(id), "node"), work)
        except Suspended as suspended:
            raise RunWaiting(self.context.run_id, logs.questions) from suspended
        except AnswerTimeout as late:
            error = StepError("answer_timeout", str(late))
            raise StepFailed(id, error, run=self.context) from late
        logs.end(id)
        return outputs

    def _led(self, edge: Edge) -> Any:
        """Return the value that *edge* passes on.

        Raise InvalidInput if its source has no such output.
        """
        outputs = self.outputs[edge.source]
        if edge.output not in outputs:
            there = ", ".join(outputs) or "nothing"
            reason = f"{edge.source} gave no {edge.output}, but {there}"
            raise InvalidInput(f"inputs.{edge.target}.{edge.input}", reason)
        return outputs[edge.output]

    async def _fail(self, id: str, raised: Exception, *, emitted: bool = False) -> bool:
        """Mark the node as failed with *raised*; emit that unless its step *emitted* it."""
        known = raised.error if isinstance(raised, StepFailed) else None
        internal = StepError("internal", cause_of(raised))
        error = known if isinstance(known, StepError) else internal
        self.states[id], self.errors[id] = "failed", error
        if not emitted:
            await self.context.tell(_update("step_failed", id, cause=str(error)))
        return False

    async def _blocked(self, blocked: Blocked) -> None:
        self.states[blocked.id] = "blocked"
        cause = f"needs {', '.join(blocked.by)}, which failed"
        update = _update("step_blocked", blocked.id, cause=cause, blocked_by=blocked.by)
        await self.context.tell(update)


def _update(
    event: TaskMoment, id: str, *, cause: str | None = None, blocked_by: tuple[str, ...] = ()
) -> TaskUpdate:
    return TaskUpdate(event=event, step_id=id, cause=cause, blocked_by=blocked_by)
