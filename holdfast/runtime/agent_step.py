"""A step of an agent as a node of a workflow: what reaches it is kept, and read by key."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from holdfast.ground.errors import InvalidInput
from holdfast.memories.run import keys
from holdfast.memories.run.entry import TITLE_CHARS
from holdfast.runtime.agent import AnyModel, AnyTool, named
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.shapes import Step, Task
from holdfast.runtime.steps.executor import StepExecutor
from holdfast.tools.base import Schema


@dataclass(frozen=True)
class AgentStepNode:
    """A node whose output an agent makes, by *instructions*.

    *tools* are tools, or names of those its executor has; None is all of these, () none.
    """

    id: str
    instructions: str
    _: KW_ONLY
    output_schema: Schema | str | None = None
    tools: Sequence[AnyTool | str] | None = None
    model: AnyModel | None = None
    agent: Agent | None = None

    async def process(self, inputs: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Return what the agent makes of *inputs*, as `output` and as `result`."""
        return await AgentStepExecutor(self).process(inputs, context)

    @property
    def names(self) -> list[str] | None:
        """The names of tools its executor is to offer; None when none are named."""
        if self.tools is None:
            return None
        return [each for each in self.tools if isinstance(each, str)]

    @property
    def own(self) -> list[AnyTool]:
        """The tools it brings itself."""
        return [each for each in self.tools or () if not isinstance(each, str)]

    def step(self) -> Step:
        """Return it as a step that was not yet begun."""
        return Step(id=self.id, instructions=self.instructions, output_schema=self.output_schema)


class AgentStepExecutor:
    """Executes *node* with those of *tools* that it may use, and *model* unless it has its own."""

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
        """Raise what would keep it from being begun in *context*: NoModel, ToolNameTaken."""
        self._executor(context, ())

    async def process(self, inputs: Mapping[str, Any], context: Context | None) -> dict[str, Any]:
        """Return what the agent makes of *inputs*, as `output` and as `result`; or StepFailed.

        Each that is not None is kept as `input:<node>.<name>`, where the agent is told to look.
        """
        if not isinstance(context, Context):
            raise InvalidInput("context", "is needed: the inputs are kept in its memory")
        given: list[str] = []
        for name, value in inputs.items():
            if value is None:
                continue
            key, title = keys.input(f"{self.node.id}.{name}"), f"{self.node.id}.{name}"
            context.memory.set(key, value, source=self.node.id, title=title[:TITLE_CHARS])
            given.append(key)
        result = await self._executor(context, given).run()
        return {"output": result, "result": result}

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
        """Return the tools that the node may use; InvalidInput for a name that is none's."""
        wanted = self.node.names
        if wanted is None:
            return list(self._tools)
        known = named(self._tools)
        if missing := [each for each in wanted if each not in known]:
            there = ", ".join(known) or "none"
            told = f"there is no {', '.join(missing)}; there are: {there}"
            raise InvalidInput("tools", told, given=missing[0])
        return [*(known[each] for each in wanted), *self.node.own]
