"""Memory and conversations of pydantic-ai's agents."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.conversation import HostConversation, thread_id
from holdfast.doors.adapters.tools import finished, offered, required, result_of
from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.tools.base import Tool

try:
    from pydantic_ai import ModelRetry, RunContext, ToolFailed
    from pydantic_ai import Tool as ModelTool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
        InstructionPart,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        TextPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
except ImportError as error:
    raise MissingExtra("pydantic-ai-slim", command="pip install pydantic-ai-slim") from error

SOURCE = "pydantic-ai"


@dataclass
class _Run:
    """What is known in one run: its context, the hydration, and the blocks by prompt."""

    context: Any = None
    hydration: str | None = None
    blocks: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class HoldfastMemory(AbstractCapability[Any]):
    """Memory of a user, of an agent and of files, as a capability of an agent.

    `user` and `agent` are names, or functions of the RunContext. What the agent knows is an
    instruction, and what is recalled stands just before the latest prompt; both are in requests
    alone, and in no history. After a run its prompt and answer are remembered. Two of these on one
    agent need an `id` each, and names of tools that differ.
    """

    hf: Holdfast | AsyncHoldfast
    _: KW_ONLY
    user: User | None = None
    agent: User | None = None
    store: str | None = None
    namespace: str = "chat"
    k: int = 5
    budget: int = BUDGET
    remember: bool = True
    tools: bool = True
    embedder: Any = None
    extractor: Any = None
    options: LongTermOptions | None = None
    _memories: UserMemories = field(init=False, repr=False)
    _run: _Run = field(default_factory=_Run, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the options; InvalidInput for a wrong one."""
        self._memories = UserMemories(
            self.hf,
            user=_unnamed if self.user is None else self.user,
            agent=self.agent,
            namespace=self.namespace,
            k=self.k,
            budget=self.budget,
            embedder=self.embedder,
            extractor=self.extractor,
            options=self.options,
        )

    @classmethod
    def get_serialization_name(cls) -> None:
        """Return None: a handle stands in no specification of an agent."""

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self.user is not None and self._memories.enabled

    async def for_run(self, ctx: RunContext[Any]) -> "HoldfastMemory":
        """Return the capability for one run; InvalidInput if *ctx* names no user or agent."""
        if self.user is not None:
            self._memories.user(ctx)
        self._memories.agent(ctx)
        run = copy(self)
        run._run = _Run(ctx)  # noqa: SLF001 - a copy of this object
        return run

    def get_toolset(self) -> AbstractToolset[Any] | None:
        """Return the tools of the memories that are named."""
        if not self.tools:
            return None
        run, named = self._run, self.user is not None
        offers = self._memories.tools(lambda: run.context, of_user=named, store=self.store)
        return FunctionToolset(tools_for(*offers), id=self.id)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put what is recalled just before the latest prompt of this request."""
        found = _latest_prompt(request_context.messages)
        if self.user is None or found is None:
            return request_context
        place, message, part, prompt = found
        blocks = self._run.blocks
        if prompt not in blocks:
            blocks[prompt] = await self._memories.ablock(self._memories.user(ctx), prompt)
        if not blocks[prompt]:
            return request_context
        block, messages = UserPromptPart(blocks[prompt]), list(request_context.messages)
        parts = [*message.parts[:part], block, *message.parts[part:]]
        messages[place] = replace(message, parts=parts)
        return replace(request_context, messages=messages)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put what the agent knows after the instructions of this request."""
        # Instructions that are given earlier than here are written into the history.
        run = self._run
        if run.hydration is None and self.agent is not None:
            run.hydration = await finished(lambda: self._memories.hydration(ctx))
        if not run.hydration:
            return request_context
        params = request_context.model_request_parameters
        known = InstructionPart(run.hydration, dynamic=True)
        params = replace(params, instruction_parts=[*(params.instruction_parts or ()), known])
        return replace(request_context, model_request_parameters=params)

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Remember what was said in the run, in the thread of its conversation."""
        if self.user is not None and self.remember:
            user, said = self._memories.user(ctx), _said(result.new_messages())
            thread = thread_id(SOURCE, ctx.conversation_id) if ctx.conversation_id else None
            await finished(lambda: self._memories.remember(user, said, thread))
        return result


def _unnamed(_: Any) -> str:
    return ""


class Conversations:
    """Message histories of agents by id, as threads of *user* if one is named."""

    def __init__(self, hf: Holdfast | AsyncHoldfast, *, user: str | None = None) -> None:
        if user is not None:
            required("user", user)
        self._hf, self._user = hf, user

    async def load(self, id: str) -> list[ModelMessage]:
        """Return the messages of a conversation; [] for one that has not begun."""
        conversation = self._conversation(id)
        return ModelMessagesTypeAdapter.validate_python(await finished(conversation.values))

    async def save(self, id: str, messages: Sequence[ModelMessage]) -> None:
        """Store what is new in *messages*, the whole history, all or none; twice is once.

        Raise Conflict if *messages* does not begin with what is stored.
        """
        conversation = self._conversation(id)
        values = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        await finished(lambda: conversation.extend(values))

    async def delete(self, id: str) -> None:
        """Delete a conversation for good."""
        await finished(self._conversation(id).delete)

    def _conversation(self, id: str) -> HostConversation:
        return HostConversation(self._hf, SOURCE, id, self._user)


def tools_for(*toolsets: Iterable[Tool]) -> list[ModelTool[Any]]:
    """Return our tools as pydantic-ai's; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> ModelTool[Any]:
    async def call(ctx: RunContext[Any], /, **arguments: Any) -> str:
        try:
            return await finished(lambda: result_of(tool, arguments))
        except ToolRefused as refused:
            # One retry too many would end the run.
            failed = ToolFailed if ctx.last_attempt else ModelRetry
            raise failed(str(refused)) from refused

    return ModelTool[Any].from_schema(
        call, tool.name, tool.description, tool.parameters, takes_ctx=True
    )


def _latest_prompt(
    messages: Sequence[ModelMessage],
) -> tuple[int, ModelRequest, int, str] | None:
    """Return the latest prompt with a text: place, message, part and text."""
    for place, message in reversed(list(enumerate(messages))):
        if isinstance(message, ModelRequest):
            texts = [_prompt(part) for part in message.parts]
            if text := latest(texts):
                return place, message, len(texts) - 1 - texts[::-1].index(text), text
    return None


def _prompt(part: Any) -> str:
    if not isinstance(part, UserPromptPart):
        return ""
    if isinstance(part.content, str):
        return part.content
    return "\n".join(each for each in part.content if isinstance(each, str))


def _said(messages: Iterable[ModelMessage]) -> list[dict[str, str]]:
    """Return the prompts and the texts of the model, without tools and thoughts."""
    said: list[dict[str, str]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            texts = [each.content for each in message.parts if isinstance(each, TextPart)]
            said.append({"role": "assistant", "content": "\n".join(texts)})
        else:
            said += [{"role": "user", "content": text} for text in map(_prompt, message.parts)]
    return [each for each in said if each["content"].strip()]
