"""MultiModeAgent: one agent in a loop, by a plan, or as a team."""

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from holdfast.ground.errors import InvalidInput, RunFailed
from holdfast.ground.json_values import JSON, hashed
from holdfast.ground.validation import check_one_of
from holdfast.memories.run import keys
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset, Instructions, check_name
from holdfast.runtime.concurrency import awaited, cause_of, claimed, refuse_at_work
from holdfast.runtime.context import Context, model_of
from holdfast.runtime.events import ExecutionEvent, StepError
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.executor import ParallelTaskExecutor
from holdfast.runtime.plans.plan import ID_LENGTH, Step, Task, TaskPlan, with_schema
from holdfast.runtime.plans.planner import TaskPlanner
from holdfast.runtime.plans.schedule import supply, taken
from holdfast.runtime.plans.schema import OutputSchema, schema_of
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.version_writer import OnMismatch
from holdfast.runtime.steps.executor import StepExecutor
from holdfast.runtime.team.executor import TeamExecutor
from holdfast.runtime.team.prompts import Strategy
from holdfast.runtime.team.result import team_reason
from holdfast.tools.base import Schema

Design: TypeAlias = list[dict[str, Any]]

_PLACE: Final = re.compile(r"\{(objective|most|least)\}")


def design_step(id: str, objective: str, *, least: int, most: int) -> Step:
    """Return the step that designs *least* to *most* agents for *objective*."""
    said = {"objective": objective, "most": str(most), "least": str(least)}
    page = files("holdfast.runtime").joinpath("prompts", "design_team.md").read_text("utf-8")
    # In one pass: inserted text is not scanned again.
    instructions = _PLACE.sub(lambda found: said[found[1]], page.strip())
    return Step(
        id=id, instructions=instructions, output_schema=_schema(least=least, most=most), tools=[]
    )


def refused(design: Design) -> str | None:
    """Return the reason why the agents of *design* cannot be a team, or None."""
    names = [each["name"] for each in design]
    if doubled := next((each for each in names if names.count(each) > 1), None):
        return f"Two agents are called {doubled!r}: give each a name of its own."
    try:
        for name in names:
            check_name(name)
    except InvalidInput as error:
        return str(error)
    return None


def designed(design: Design) -> list[Agent]:
    """Return the agents of *design*."""
    return [
        Agent(
            each["name"],
            description=each["description"],
            instructions=each["instructions"],
            skills=tuple(each.get("skills") or ()),
        )
        for each in design
    ]


def _schema(*, least: int, most: int) -> Schema:
    text: Schema = {"type": "string", "minLength": 1}
    return {
        "type": "array",
        "minItems": least,
        "maxItems": most,
        "items": {
            "type": "object",
            "required": ["name", "description", "instructions"],
            "properties": {
                "name": text,
                "description": text,
                "instructions": text,
                "skills": {"type": "array", "items": text},
            },
        },
    }


Mode = Literal["loop", "plan", "multi-agent"]

IN_A_LOOP, IN_A_STEP, IN_A_TURN = 20, 10, 5
"""Requests in a loop, in one step of a plan, in one turn of a team, unless a number is set."""

_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_.-]+")

Part: TypeAlias = StepExecutor | TaskPlanner | ParallelTaskExecutor | TeamExecutor


@dataclass(kw_only=True, eq=False)
class MultiModeSpec:
    """The data of an agent with modes. `MultiModeAgent` can be executed."""

    name: str
    objective: str
    mode: Mode = "loop"
    model: AnyModel | None = None
    agents: Sequence[Agent] = ()
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    inputs: Mapping[str, JSON] | None = None
    output_schema: OutputSchema | None = None
    system_prompt: str | None = None
    plan: TaskPlan | None = None
    task: Task | None = None
    strategy: Strategy = "coordinator"
    max_iterations: int | None = None
    max_sub_agents: int = 3
    checkpoint: Checkpoints | None = None
    on_event: OnEvent | None = None

    def __post_init__(self) -> None:
        self._observer = observer_of(self.on_event)
        check_one_of("mode", self.mode, get_args(Mode))
        if not self.objective.strip():
            raise InvalidInput("objective", "must not be blank", next="Say what is to be done.")
        if self.mode == "multi-agent" and self.max_sub_agents < self.least_agents:
            reason = f"must be at least {self.least_agents} under the strategy {self.strategy}"
            raise InvalidInput("max_sub_agents", reason, given=self.max_sub_agents)

    @property
    def id(self) -> str:
        """The name as the id of a step."""
        return _NOT_ALLOWED.sub("_", self.name).strip("_")[:ID_LENGTH] or "agent"

    def iterations(self, usual: int) -> int:
        """Return the limit of requests in one step or turn, *usual* if none is set."""
        return usual if self.max_iterations is None else self.max_iterations

    @property
    def least_agents(self) -> int:
        """Least number of agents in a team of this strategy."""
        return 1 if self.strategy == "autonomous" else 2


class ModeRun:
    """Executes *agent* in its mode in *context*: the preparation, then the work."""

    def __init__(self, agent: MultiModeSpec, context: Context) -> None:
        self._agent, self.context = agent, context
        self.name, self.title = agent.mode, agent.name
        self.result: Any = None
        self.error: StepError | None = None
        self._inputs = taken(agent.inputs)
        self.checkpoints = agent.checkpoint
        self.on_mismatch: OnMismatch = "refuse"
        self.input_keys = tuple(map(keys.input, self._inputs))
        self._last: Part | None = None
        # Both are made now, so that what cannot be executed is refused before anything is.
        self._first, self._work = self._parts()

    @property
    def objective(self) -> str:
        """What the agent works on."""
        return self._agent.objective

    @property
    def parts(self) -> Collection[str]:
        """The keys of the entries of its work, as far as that is known."""
        work = self._work or self._first
        return work.parts if work else ()

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        agent, work = self._agent, self._first or self._work
        parts = {} if work is None else dict(work.begun_with())
        facts = {"mode": agent.mode, "objective": agent.objective, "inputs": self._inputs}
        return {name: hashed(fact) for name, fact in facts.items()} | parts

    async def perform(self) -> None:
        """Do the work and emit its events."""
        supply(self.context, self._inputs)
        try:
            await self._perform()
        except asyncio.CancelledError:
            self.error = StepError("cancelled", self.context.cancelled or "cancelled")
            raise
        except Exception as error:
            self.error = StepError("internal", cause_of(error))
            raise
        ending = self.ending()
        if ending.state == "completed":
            self.result = ending.result
        elif ending.state == "failed":
            self.error = self._error(ending)

    @property
    def output(self) -> Any:
        """The result, of the type of its schema, which a team does not check."""
        work = self._work
        return work.output if isinstance(work, StepExecutor | ParallelTaskExecutor) else self.result

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        ending = self._last.ending() if self._last else None
        if ending is None or (ending.state == "completed" and self._last is self._first):
            # A preparation has no result of its own.
            return ExecutionOutcome(state="failed")
        if ending.state == "failed" and ending.failure is None:
            # A team returns its failure in its result; an agent raises it.
            error = self._error(ending)
            failure = RunFailed(f"{self._agent.name} failed: {error}", result=ending.result)
            return msgspec.structs.replace(ending, failure=failure, detail=str(error))
        return ending

    async def _perform(self) -> None:
        if self._first is not None:
            await self._do(self._first)
            if self._first.ending().state != "completed":
                return None
            self._work = self._after(self._first)
            if self._work is not None:
                # What was prepared is not known before, and claimed only now.
                with claimed(self._work):
                    return await self._do(self._work)
        if self._work is not None:
            await self._do(self._work)
        return None

    async def _do(self, part: Part) -> None:
        self._last = part
        await part.perform()

    def _error(self, ending: ExecutionOutcome) -> StepError:
        part = self._last
        if isinstance(part, StepExecutor) and part.error is not None:
            return part.error
        if isinstance(part, TeamExecutor):
            left = part.get_result()
            reasons = "; ".join(f"{each.title}: {each.failure_reason}" for each in left.failed)
            outcome = f"it ended as {left.status}"
            why = team_reason(left.status) or "steps"
            return StepError(why, f"{outcome} ({reasons})" if reasons else outcome)
        why = "no_answer" if isinstance(part, TaskPlanner) else "steps"
        return StepError(ending.reason or why, ending.detail or "it did not end")

    def _parts(self) -> tuple[StepExecutor | TaskPlanner | None, Part | None]:
        """Return the preparation or None, and the work or None while unprepared."""
        agent = self._agent
        if agent.mode == "loop":
            return None, self._loop()
        if agent.mode == "multi-agent":
            return (None, self._team(agent.agents)) if agent.agents else (self._designer(), None)
        plan = agent.plan
        if plan is None and agent.task is not None:
            plan = TaskPlan(title=agent.task.title, tasks=[agent.task])
        return (self._planner(), None) if plan is None else (None, self._planned(plan))

    def _after(self, first: StepExecutor | TaskPlanner) -> Part | None:
        """Return the work that *first* has prepared."""
        if isinstance(first, StepExecutor):
            return self._team(designed(first.result))
        return None if first.plan is None else self._planned(first.plan)

    def _loop(self) -> StepExecutor:
        agent = self._agent
        step = Step(id=agent.id, instructions=agent.objective, output_schema=agent.output_schema)
        return StepExecutor(
            task=Task(id=agent.id, title=agent.name, steps=[step]),
            step=step,
            context=self.context,
            model=agent.model,
            tools=agent.tools,
            toolsets=agent.toolsets,
            system_prompt=agent.system_prompt,
            upstream_memory_keys=[keys.input(name) for name in self._inputs],
            max_iterations=agent.iterations(IN_A_LOOP),
        )

    def _planner(self) -> TaskPlanner:
        agent = self._agent
        return TaskPlanner(
            objective=agent.objective,
            context=self.context,
            model=agent.model,
            tools=agent.tools,
            inputs=list(self._inputs),
            output_schema=agent.output_schema,
            system_prompt=agent.system_prompt,
        )

    def _planned(self, plan: TaskPlan) -> ParallelTaskExecutor:
        agent = self._agent
        if not plan.problems(self._inputs):
            plan = with_schema(plan, agent.output_schema)
        return ParallelTaskExecutor(
            plan=plan,
            context=self.context,
            model=agent.model,
            tools=agent.tools,
            toolsets=agent.toolsets,
            inputs=self._inputs,
            system_prompt=agent.system_prompt,
            agents=agent.agents,
            max_iterations=agent.iterations(IN_A_STEP),
        )

    def _designer(self) -> StepExecutor:
        agent = self._agent
        step = design_step(
            f"{agent.id}.team",
            self._objective(),
            least=agent.least_agents,
            most=agent.max_sub_agents,
        )
        return StepExecutor(
            task=Task(id=step.id, title=f"The team of {agent.name}", steps=[step]),
            step=step,
            context=self.context,
            model=model_of(self.context, model=agent.model),
            system_prompt=agent.system_prompt,
            upstream_memory_keys=[keys.input(name) for name in self._inputs],
            max_iterations=agent.iterations(IN_A_LOOP),
            accept_result=refused,
        )

    def _team(self, agents: "list[Agent] | Any") -> TeamExecutor:
        agent = self._agent
        prompt = agent.system_prompt
        return TeamExecutor(
            objective=self._objective(),
            agents=[_prefixed(each, prompt) if prompt else each for each in agents],
            context=self.context,
            strategy=agent.strategy,
            model=agent.model,
            tools=agent.tools,
            toolsets=agent.toolsets,
            max_iterations=agent.iterations(IN_A_TURN),
        )

    def _objective(self) -> str:
        schema = self._agent.output_schema
        if schema is None:
            return self._agent.objective
        encoded = schema if isinstance(schema, str) else msgspec.json.encode(schema_of(schema))
        shown = encoded if isinstance(encoded, str) else encoded.decode()
        note = f"The result must be JSON of this schema:\n{shown}"
        return f"{self._agent.objective}\n\n{note}"


def _prefixed(agent: Agent, text: str) -> Agent:
    """Return *agent* with *text* before its own instructions."""
    own: Instructions = agent.instructions
    if isinstance(own, str):
        return agent.replace(instructions=f"{text}\n\n{own}" if own else text)

    async def instructions(run: Any) -> str:
        return f"{text}\n\n{await awaited(own(run))}"

    return agent.replace(instructions=instructions)


@dataclass(kw_only=True, eq=False)
class MultiModeAgent(MultiModeSpec):
    """Works on *objective* in its *mode*, in the context of each execution.

    - `loop`: one agent goes on until it finishes with a result, as *output_schema* says.
    - `plan`: *plan*, or *task* alone, or what a planner makes of the objective; *output_schema* is
      that of the final result.
    - `multi-agent`: *agents* work as a team by *strategy*; without any, a model designs at most
      *max_sub_agents*. *output_schema* is in the team's objective; nothing checks its result.

    What is complete is kept at *checkpoint*, in every mode. *max_iterations* limits the requests
    of the loop (20), of each step of the plan (10), of each
    turn of the team (5). Afterwards `get_results()` is the result, None where `error` gives the
    reason.
    """

    _run: ModeRun | None = field(default=None, init=False)

    @property
    def error(self) -> StepError | None:
        """The error of the last execution; None if it succeeded or there was none."""
        return self._run.error if self._run else None

    @property
    def output(self) -> Any:
        """The last result as an instance of the type of *output_schema*, but for a team's."""
        return self._run.output if self._run else None

    def get_results(self) -> Any:
        """Return the result of the last execution; None if it failed or there was none."""
        return self._run.result if self._run else None

    def execute(self, context: Context) -> AsyncGenerator[ExecutionEvent]:
        """Work in *context*; yield the events as they happen.

        What cannot be executed is refused at once: NoModel, InvalidPlan, ToolNameTaken and others.
        """
        return executor.events(self._begun(context), self._observer)

    def stream(self, context: Context) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self._begun(context), self._observer)

    async def run(self, context: Context) -> Any:
        """Work in *context* and return the result.

        Raise the error it failed with, or RunCancelled.
        """
        await executor.run(self._begun(context), self._observer)
        return self.output

    def run_sync(self, context: Context) -> Any:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self._begun(context), self._observer)
        return self.output

    def _begun(self, context: Context) -> ModeRun:
        if self._run is not None:
            refuse_at_work(self._run)
        self._run = ModeRun(self, context)
        return self._run
