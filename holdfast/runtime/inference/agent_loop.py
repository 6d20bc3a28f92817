"""One call of an agent: requests and tools in turn, to the result they come to."""

import asyncio
from typing import Any, TypeAlias

from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    repair_messages,
)
from pydantic_graph import End

from holdfast.ground.errors import InvalidInput, NoModel, NotRunnable, ToolNameTaken
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.agent import AgentSpec, AgentStart, AnyModel
from holdfast.runtime.concurrency import none_left
from holdfast.runtime.inference.building import CallDeps, built
from holdfast.runtime.inference.request import (
    AgentRequest,
    DeltaType,
    HookFailed,
    Sent,
    answered,
    can_stream,
    deltas,
    finished,
    retell,
    sending,
    started,
    system_text,
    whole,
)
from holdfast.runtime.inference.run_types import (
    MAX_ITER,
    CallRecord,
    Run,
    RunEnd,
    StopReason,
    check_max_iter,
)
from holdfast.runtime.inference.tool_calls import ToolCalls
from holdfast.runtime.mcp import connect, seen_to

Graph: TypeAlias = AgentRun[Any, Any]
ToModel: TypeAlias = ModelRequestNode[Any, Any]
ToTools: TypeAlias = CallToolsNode[Any, Any]


class AgentCall:
    """One call of *agent* in *run*, whose *index*-th result it is: made once, by `made`.

    At most *max_iter* requests are made, None being no limit, and *timeout* seconds taken. When it
    is over, `result` is what it came to and `ending` why; they are there too when the call was
    cancelled.
    """

    def __init__(
        self,
        agent: AgentSpec,
        run: Run,
        *,
        index: int = 0,
        max_iter: int | None = MAX_ITER,
        timeout: float | None = None,
    ) -> None:
        check_max_iter(max_iter)
        self.agent, self.run = agent, run
        self.ending = RunEnd()
        self.result: InferenceResult | None = None
        self._tools = ToolCalls(agent, run)
        self._deps = CallDeps(self._tools)
        self._max_iter, self._timeout = max_iter, timeout
        self._record = CallRecord(agent, run, index=index, answers=self._tools.answers)
        self._graph: Graph | None = None
        self._next: ModelRequest | None = None
        self._steps = 0

    async def made(self) -> InferenceResult:
        """Return what the call came to, however it ended.

        What keeps it from beginning is raised: NoModel, NotRunnable, ToolNameTaken, InvalidInput
        for a tool chosen that is not there. So is a cancellation, once `result` is there.
        """
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await self._work()
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._end("timeout", error, detail=f"it ran past its {self._timeout:g} s")
        except asyncio.CancelledError:
            self._end("cancelled")
            self.result = self._told()
            raise
        self.result = await self._finished()
        return self.result

    @property
    def kept(self) -> bool:
        """Whether the result belongs in the state: whole, or cut short with something in it."""
        result = self.result
        if result is None:
            return False
        return self.ending.status == "completed" or bool(result.output or result.tool_calls)

    def _end(
        self, reason: StopReason, cause: BaseException | None = None, *, detail: str = ""
    ) -> None:
        self.ending = RunEnd(reason, detail, cause)

    async def _work(self) -> None:
        model = self.run.model_of(self.agent)
        if model is None:
            raise no_model(self.agent)
        for told in await connect(self.agent, self.run):
            await self.run.tell("mcp.unavailable", told, agent=self.agent.name)
        try:
            await self._exchange(model)
        except HookFailed as error:
            self._end("hook_error", error.__cause__, detail=error.hook)
        except UsageLimitExceeded as error:
            self._end("budget", error)
        except (NotRunnable, ToolNameTaken):
            raise
        except Exception as error:
            if isinstance(error, InvalidInput) and error.field == "tool_choice":
                raise
            # Providers, their clients and custom models raise what they like.
            self._end("model_error", error)

    async def _exchange(self, model: AnyModel) -> None:
        system = await system_text(self.agent, self.run.handle)
        if self.run.system_prompt:
            system = "\n\n".join(filter(None, (system, self.run.system_prompt)))
        begin = await sending(self.agent, self.run, system)
        sent = begin.sent(begin.prompt, begin.history)
        seen = seen_to.set(True)
        try:
            with ModelAgent.parallel_tool_call_execution_mode("sequential"):
                run = built(self.agent).iter(**self._options(model, sent))
                async with none_left(), run as self._graph:
                    await self._drive(self._graph, begin)
        finally:
            seen_to.reset(seen)

    def _options(self, model: AnyModel, sent: Sent) -> dict[str, Any]:
        """Return how pydantic-ai is to run the loop."""
        most = self._tools.most_errors + 1
        return {
            "message_history": sent.messages,
            "instructions": sent.system or None,
            "model": model,
            "model_settings": self._tools.settings,
            "deps": self._deps,
            "usage": self.run.usage,
            "usage_limits": self.run.usage_limits or UsageLimits(request_limit=None),
            "retries": {"tools": most, "output": most},
            "infer_name": False,
        }

    async def _drive(self, graph: Graph, begin: AgentRequest) -> None:
        node = graph.next_node
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                self._next = node.request if self._steps else None
                if not self._steps:
                    self._deps.base = len(graph.all_messages()) + 1
                if not await self._may_ask(begin):
                    return
                node = await self._ask(graph, node)
            elif ModelAgent.is_call_tools_node(node):
                await self._hear(node)
                node = await self._use_tools(graph, node)
                if self._tools.errors >= self._tools.most_errors:
                    self._next = node.request if ModelAgent.is_model_request_node(node) else None
                    self._end("tool_error", detail=f"{self._tools.errors} errors of tools")
                    return
            else:
                node = await graph.next(node)

    async def _may_ask(self, begin: AgentRequest) -> bool:
        """Tell whether one more request is to be made; else how the call ends is known."""
        if self._steps == self._max_iter:
            self._end("max_steps", detail=f"{self._steps} requests")
            return False
        start = AgentStart(
            agent=self.agent,
            run=self.run.handle,
            input=self.run.input,
            prompt=begin.prompt,
            history=begin.history,
            step=self._steps + 1,
        )
        if not self._steps:
            self._record.prompt, self._record.history = start.prompt, start.history
        changed = await started(start)
        if changed.stop:
            self._end("hook_stop")
            return False
        same = changed.prompt == begin.prompt and changed.history == begin.history
        self._deps.rewritten = None if same else begin.sent(changed.prompt, changed.history)
        if not self._steps:
            self._record.prompt, self._record.history = changed.prompt, changed.history
        return True

    async def _ask(self, graph: Graph, node: ToModel) -> Any:
        """Make the request of *node*, and tell what comes as it comes; return what is next."""
        self._steps += 1
        watched = self.run.watched
        if watched and can_stream(graph.ctx.deps.model):
            async with node.stream(graph.ctx) as stream:
                async for kind, delta in deltas(stream):
                    await self._tell(kind, delta)
            return await graph.next(node)
        after = await graph.next(node)
        if watched and isinstance(after, CallToolsNode):
            for kind, delta in whole(after.model_response):
                await self._tell(kind, delta)
        return after

    async def _tell(self, kind: DeltaType, delta: str) -> None:
        data = {"delta": delta, "step": self._steps}
        await self.run.tell(kind, data, agent=self.agent.name)

    async def _hear(self, node: ToTools) -> None:
        """Let the agent's hook see, and change, the reply of *node* before its tools work."""
        if self.agent.hooks and self.agent.hooks.on_response:
            before = self._record.result(self._exchanged(), stop_reason="done")
            after = await answered(self.agent, before, self.run.handle)
            retell(node.model_response, before, after)
        self._tools.ask(node.model_response, self._steps)

    async def _use_tools(self, graph: Graph, node: ToTools) -> Any:
        async with node.stream(graph.ctx) as stream:
            async for event in stream:
                if isinstance(event, FunctionToolResultEvent):
                    await self._tools.came_back(event.part)
        return await graph.next(node)

    def _exchanged(self) -> list[ModelMessage]:
        """Return what the call's own loop said and got so far."""
        if self._graph is None or not self._steps:
            return []
        found = self._graph.all_messages()[self._deps.base :]
        if self._next is not None and not any(each is self._next for each in found):
            # What the tools gave to a request that is not to be made.
            found.append(self._next)
        return found

    def _told(self) -> InferenceResult:
        exchanged = self._exchanged()
        if exchanged:
            exchanged = repair_messages(exchanged)
        ending = self.ending
        return self._record.result(exchanged, stop_reason=ending.reason, error=ending.error())

    async def _finished(self) -> InferenceResult:
        """Return the result as the agent's hook leaves it."""
        result = self._told()
        if self.ending.reason == "hook_error":
            return result
        try:
            return await finished(self.agent, result, self.run.handle)
        except HookFailed as error:
            self._end("hook_error", error.__cause__, detail=error.hook)
            return self._told()


def no_model(agent: AgentSpec) -> NoModel:
    """Return the error that *agent* has nobody to ask."""
    return NoModel(
        f"The agent {agent.name} has no model.",
        agent=agent.name,
        next="Name one: for the call, for the agent, or as the network's default_model.",
    )
