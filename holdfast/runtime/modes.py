"""One agent that works in one of three modes: in a loop, by a plan, or as a team."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.runtime import executing
from holdfast.runtime.calling.alone import Agent
from holdfast.runtime.checkpoints.checkpoint import Checkpoints
from holdfast.runtime.context import Context
from holdfast.runtime.events import Event, StepError
from holdfast.runtime.mode_run import ModeRun
from holdfast.runtime.parts import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.plans.checks import ID_LENGTH
from holdfast.runtime.plans.plan import TaskPlan
from holdfast.runtime.plans.shapes import Task
from holdfast.runtime.team.words import Strategy
from holdfast.tools.base import Schema

Mode = Literal["loop", "plan", "multi-agent"]

_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(kw_only=True, eq=False)
class MultiModeAgent:
    """Works on *objective* in its *mode*, in whatever context it is executed.

    - `loop`: one agent goes on until it finishes with a result, as *output_schema* says.
    - `plan`: *plan*, or *task* alone, or what a planner makes of the objective; *output_schema* is
      that of the final result, *checkpoint* keeps what is completed.
    - `multi-agent`: *agents* work as a team by *strategy*; without any, a model designs at most
      *max_sub_agents*. A team is told of *output_schema*; nothing checks its result.

    Afterwards `get_results()` is the result, None where `error` says why.
    """

    name: str
    objective: str
    mode: Mode = "loop"
    model: AnyModel | None = None
    agents: Sequence[Agent] = ()
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    inputs: Mapping[str, JSON] | None = None
    output_schema: Schema | str | None = None
    system_prompt: str | None = None
    plan: TaskPlan | None = None
    task: Task | None = None
    strategy: Strategy = "coordinator"
    max_iterations: int = 20
    max_step_iterations: int = 10
    max_sub_agents: int = 3
    checkpoint: Checkpoints | None = None
    _run: ModeRun | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            known = ", ".join(get_args(Mode))
            raise InvalidInput("mode", f"must be one of {known}", given=self.mode)
        if not self.objective.strip():
            raise InvalidInput("objective", "must not be blank", next="Say what is to be done.")
        if self.mode == "multi-agent" and self.max_sub_agents < self.least_agents:
            told = f"must be at least {self.least_agents} under the strategy {self.strategy}"
            raise InvalidInput("max_sub_agents", told, given=self.max_sub_agents)

    @property
    def id(self) -> str:
        """Its name as the id of a step."""
        return _NOT_ALLOWED.sub("_", self.name).strip("_")[:ID_LENGTH] or "agent"

    @property
    def least_agents(self) -> int:
        """How many a team needs under its strategy."""
        return 1 if self.strategy == "autonomous" else 2

    @property
    def error(self) -> StepError | None:
        """Why the last execution has no result; None when it has, or there was none."""
        return self._run.error if self._run else None

    def get_results(self) -> Any:
        """Return the result of the last execution; None when it failed, or there was none."""
        return self._run.result if self._run else None

    def execute(self, context: Context) -> AsyncGenerator[Event]:
        """Work in *context*; give the events as they happen.

        What cannot be executed is refused at once: NoModel, InvalidPlan, ToolNameTaken and others.
        """
        return executing.events(self._begun(context))

    async def run(self, context: Context) -> Any:
        """Work in *context*; return the result, or raise what it failed with, or RunCancelled."""
        await executing.run(self._begun(context))
        return self.get_results()

    def run_sync(self, context: Context) -> Any:
        """Do as `run` does, without an event loop."""
        executing.run_sync(self._begun(context))
        return self.get_results()

    def _begun(self, context: Context) -> ModeRun:
        self._run = ModeRun(self, context)
        return self._run
