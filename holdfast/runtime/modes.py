"""One agent that works in one of three modes: in a loop, by a plan, or as a team."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from holdfast.runtime import executor
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, StepError
from holdfast.runtime.mode_run import ModeRun, MultiModeSpec


@dataclass(kw_only=True, eq=False)
class MultiModeAgent(MultiModeSpec):
    """Works on *objective* in its *mode*, in whatever context it is executed.

    - `loop`: one agent goes on until it finishes with a result, as *output_schema* says.
    - `plan`: *plan*, or *task* alone, or what a planner makes of the objective; *output_schema* is
      that of the final result, *checkpoint* keeps what is completed.
    - `multi-agent`: *agents* work as a team by *strategy*; without any, a model designs at most
      *max_sub_agents*. A team is told of *output_schema*; nothing checks its result.

    Afterwards `get_results()` is the result, None where `error` says why.
    """

    _run: ModeRun | None = field(default=None, init=False)

    @property
    def error(self) -> StepError | None:
        """Why the last execution has no result; None when it has, or there was none."""
        return self._run.error if self._run else None

    def get_results(self) -> Any:
        """Return the result of the last execution; None when it failed, or there was none."""
        return self._run.result if self._run else None

    def execute(self, context: Context) -> AsyncGenerator[ExecutionEvent]:
        """Work in *context*; give the events as they happen.

        What cannot be executed is refused at once: NoModel, InvalidPlan, ToolNameTaken and others.
        """
        return executor.events(self._begun(context))

    async def run(self, context: Context) -> Any:
        """Work in *context*; return the result, or raise what it failed with, or RunCancelled."""
        await executor.run(self._begun(context))
        return self.get_results()

    def run_sync(self, context: Context) -> Any:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self._begun(context))
        return self.get_results()

    def _begun(self, context: Context) -> ModeRun:
        self._run = ModeRun(self, context)
        return self._run
