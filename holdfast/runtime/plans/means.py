"""With what the steps of a task or plan are worked on, but for what each says itself."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from holdfast.ground.json_values import JSON, decode, encode
from holdfast.memories.run import keys
from holdfast.memories.run.entry import TITLE_CHARS, VALUE_DEPTH
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset, named
from holdfast.runtime.checkpoints import CheckpointWriter
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import Step, Task
from holdfast.runtime.steps.executor import StepExecutor


@dataclass(frozen=True)
class PlanContext:
    """What every step gets."""

    context: Context
    _: KW_ONLY
    model: AnyModel | None = None
    agent: Agent | None = None
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    system_prompt: str | None = None
    upstream_memory_keys: Sequence[str] = ()
    max_iterations: int = 10
    token_budget: int = 120_000
    keeper: CheckpointWriter | None = None

    def reading(self, upstream: Iterable[str]) -> "PlanContext":
        """Return the same for steps that are told of the entries *upstream*."""
        return replace(self, upstream_memory_keys=tuple(upstream))

    def keeping(self, keeper: CheckpointWriter | None) -> "PlanContext":
        """Return the same, with *keeper* keeping what is complete."""
        return replace(self, keeper=keeper)

    def restored(self, step: str) -> bool:
        """Tell whether *step*, or this item of one, was complete before this run began."""
        return self.keeper is not None and step in self.keeper.restored_steps

    def tool_names(self) -> Collection[str] | None:
        """Return the names of the tools there will be, None when they are not known yet.

        Raises ToolNameTaken when two of them are named alike.
        """
        agents = self.agent.tools if self.agent else ()
        known = named(self.tools, agents)
        sets = [*self.toolsets, *(self.agent.toolsets if self.agent else ())]
        return None if sets else set(known)

    def check(self, task: Task) -> None:
        """Raise what would keep every step of *task* from being begun: NoModel, ToolNameTaken."""
        self.executor(task, task.steps[0])

    def executor(
        self, task: Task, step: Step, *, finish: bool = False, item_index: int | None = None
    ) -> StepExecutor:
        """Return what works on *step* of *task*."""
        return StepExecutor(
            task=task,
            step=step,
            context=self.context,
            model=self.model,
            agent=self.agent,
            tools=self.tools,
            toolsets=self.toolsets,
            system_prompt=self.system_prompt,
            upstream_memory_keys=self.upstream_memory_keys,
            finish_task=finish,
            max_iterations=self.max_iterations,
            token_budget=self.token_budget,
            item_index=item_index,
        )


def taken(inputs: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """Return a copy of *inputs*; InvalidInput for a key or value that no run can be given."""
    copied: dict[str, JSON] = {}
    for key, value in (inputs or {}).items():
        keys.input(key)
        copied[key] = decode(encode(value, root="$", depth=VALUE_DEPTH, field=f"inputs.{key}"))
    return copied


def supply(context: Context, inputs: Mapping[str, JSON]) -> None:
    """Set each of *inputs*, whatever an earlier run left under its key."""
    for key, value in inputs.items():
        context.memory.set(keys.input(key), value, title=key[:TITLE_CHARS])
