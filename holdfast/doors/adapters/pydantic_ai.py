"""Memory as a capability of pydantic-ai's agents."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast import tools
from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.conversation import HostConversation
from holdfast.doors.adapters.tools import blocking_handle, finished, offered, required
from holdfast.ground.errors import Conflict, HoldfastError, MissingExtra
from holdfast.library.bridges import NamedStore
from holdfast.tools.base import JSON, Tool

try:
    from pydantic_ai import ModelRetry, RunContext
    from pydantic_ai import Tool as ModelTool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import (
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
    raise MissingExtra("agents") from error


SOURCE = "pydantic-ai"


@dataclass(kw_only=True)
class HoldfastMemory(AbstractCapability[Any]):
    """Long-term memory of a user, durable memory of an agent and a store of notes, for an agent.

    `user` and `agent` are names, or functions of the RunContext. What is recalled stands in each
    request just before the latest prompt, and in no history. Two of these on one agent need an `id`
    each.
    """

    hf: Any
    user: User | None = None
    agent: str | Callable[[Any], str] | None = None
    store: str | None = None
    namespace: str = "chat"
    k: int = 5
    budget: int = BUDGET
    remember: bool = True
    tools: bool = True
    thread_id: str | Callable[[Any], str] | None = None
    _memories: UserMemories | None = field(default=None, init=False, repr=False)
    _names: tuple[str | None, str | None] = field(default=(None, None), init=False, repr=False)
    _blocks: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the names, and open the memories."""
        if isinstance(self.agent, str):
            required("agent", self.agent)
        if self.user is not None:
            self._memories = UserMemories(
                self.hf, user=self.user, namespace=self.namespace, k=self.k, budget=self.budget
            )
        self._names = (
            self.user if isinstance(self.user, str) else None,
            self.agent if isinstance(self.agent, str) else None,
        )

    async def for_run(self, ctx: RunContext[Any]) -> "HoldfastMemory":
        """Return the capability for one run, with the names that *ctx* gives."""
        user = self._memories.user(ctx) if self._memories is not None else None
        agent = required("agent", self.agent(ctx)) if callable(self.agent) else self.agent
        return replace(self, user=user, agent=agent)

    def get_toolset(self) -> AbstractToolset[Any] | None:
        """Return the tools of the memories that are named."""
        return FunctionToolset(tools_for(*self._toolsets())) if self.tools else None

    def get_instructions(self) -> Callable[..., Any] | None:
        """Return what the agent knows, for the instructions of each request."""
        agent = self._names[1]
        if agent is None:
            return None

        async def hydration() -> str:
            memory = blocking_handle(self.hf).durable(agent)
            return await finished(lambda: memory.hydrate().render())

        return hydration

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Put what is recalled before the latest prompt of this request."""
        del ctx
        user = self._names[0]
        place, prompt = _latest_prompt(request_context.messages)
        if user is None or self._memories is None or not prompt:
            return request_context
        if prompt not in self._blocks:
            self._blocks[prompt] = await self._memories.ablock(user, prompt)
        if not (block := self._blocks[prompt]):
            return request_context
        messages = list(request_context.messages)
        messages.insert(place, ModelRequest(parts=[UserPromptPart(content=block)]))
        return replace(request_context, messages=messages)

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Remember what was said in the run."""
        user, memories = self._names[0], self._memories
        if user is not None and memories is not None and self.remember:
            said = _said(result.new_messages())
            thread = self.thread_id(ctx) if callable(self.thread_id) else self.thread_id
            await finished(lambda: memories.remember(user, said, thread))
        return result

    def _toolsets(self) -> list[list[Tool]]:
        hf, (user, agent) = blocking_handle(self.hf), self._names
        found: list[list[Tool]] = []
        if user is not None and self._memories is not None:
            found.append(tools.longterm(self._memories.longterm(user)))
        if agent is not None:
            found.append(tools.durable(hf.durable(agent)))
        if self.store is not None:
            found.append(tools.files(hf, NamedStore(hf.memory_stores, self.store).id))
        return found


class Conversations:
    """Message histories of pydantic-ai's agents, by id, as threads of *user* or of nobody."""

    def __init__(self, hf: Any, *, user: str | None = None) -> None:
        self._hf, self._user = hf, user

    async def load(self, id: str) -> list[ModelMessage]:
        """Return the messages of a conversation; [] for one that has not begun."""
        conversation = self._conversation(id)
        return ModelMessagesTypeAdapter.validate_python(await finished(conversation.values))

    async def save(self, id: str, messages: Sequence[ModelMessage]) -> None:
        """Store what is new in *messages*, the whole history; twice is once.

        Raise Conflict if *messages* does not begin with what is stored.
        """
        given = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        conversation = self._conversation(id)

        def work() -> None:
            stored = conversation.values()
            if given[: len(stored)] != stored:
                raise Conflict(
                    f"The messages do not begin with those of the conversation {id}.",
                    reason="diverged",
                    next="Load the conversation, and go on from its messages.",
                )
            conversation.append(given[len(stored) :])

        await finished(work)

    async def delete(self, id: str) -> None:
        """Delete a conversation for good."""
        await finished(self._conversation(id).delete)

    def _conversation(self, id: str) -> HostConversation:
        return HostConversation(self._hf, SOURCE, id, self._user)


def tools_for(*toolsets: Iterable[Tool]) -> list[ModelTool[Any]]:
    """Return tools of ours as pydantic-ai takes them; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> ModelTool[Any]:
    async def call(**arguments: Any) -> JSON:
        try:
            return await finished(lambda: tool.call(arguments))
        except HoldfastError as error:
            raise ModelRetry(str(error)) from error

    return ModelTool[Any].from_schema(call, tool.name, tool.description, tool.parameters)


def _latest_prompt(messages: Sequence[ModelMessage]) -> tuple[int, str]:
    """Return the place of the latest message with a prompt of the user, and its text."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, ModelRequest):
            texts = [each for each in map(_prompt, message.parts) if each]
            if texts:
                return place, latest(texts)
    return 0, ""


def _prompt(part: Any) -> str:
    if not isinstance(part, UserPromptPart):
        return ""
    if isinstance(part.content, str):
        return part.content
    return "\n".join(each for each in part.content if isinstance(each, str))


def _said(messages: Iterable[ModelMessage]) -> list[dict[str, str]]:
    """Return the prompts of the user and the texts of the model, without tools and thoughts."""
    said: list[dict[str, str]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            texts = [each.content for each in message.parts if isinstance(each, TextPart)]
            said.append({"role": "assistant", "content": "\n".join(texts)})
        else:
            said += [{"role": "user", "content": text} for text in map(_prompt, message.parts)]
    return [each for each in said if each["content"].strip()]
