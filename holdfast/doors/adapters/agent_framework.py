"""Memory as a context provider of the Microsoft Agent Framework."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import tools
from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.conversation import HostConversation
from holdfast.doors.adapters.tools import finished, offered, required
from holdfast.ground.errors import MissingExtra
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import JSON, Tool

try:
    from agent_framework import (
        ContextProvider,
        FunctionTool,
        HistoryProvider,
        Message,
        SessionContext,
    )
except ImportError as error:
    raise MissingExtra("agent-framework", command="pip install agent-framework-core") from error

if TYPE_CHECKING:
    from agent_framework import AgentSession, SupportsAgentRun

SOURCE = "agent-framework"
_ROLES = ("user", "assistant")


class HoldfastContextProvider(ContextProvider):
    """Long-term memory of *user* and durable memory of *agent*, around each run of an agent.

    *user* is a name, or a function of the session's context. What is recalled is a message of this
    run alone; the input and the response of the run are remembered, and nothing that other
    providers added.
    """

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: User,
        agent: str | None = None,
        source_id: str = "holdfast",
        namespace: str = "chat",
        k: int = 5,
        budget: int = BUDGET,
        remember: bool = True,
        offer_tools: bool = True,
    ) -> None:
        super().__init__(source_id)
        self._memories = UserMemories(
            hf, user=user, agent=agent, namespace=namespace, k=k, budget=budget
        )
        self._agent, self._remember, self._offer_tools = agent, remember, offer_tools

    async def before_run(
        self,
        *,
        agent: "SupportsAgentRun",
        session: "AgentSession",
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add what the agent knows, what is recalled, and the tools."""
        del agent, session, state
        user = self._memories.user(context)
        if hydration := await finished(lambda: self._memories.hydration(context)):
            context.extend_instructions(self.source_id, hydration)
        said = [each.text for each in context.input_messages if each.role == "user"]
        if block := await self._memories.ablock(user, latest(said)):
            context.extend_messages(self, [Message(role="user", contents=[block])])
        if self._offer_tools:
            offered_tools = await finished(lambda: self._tools(user))
            context.extend_tools(self.source_id, offered_tools)

    async def after_run(
        self,
        *,
        agent: "SupportsAgentRun",
        session: "AgentSession",
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Remember the input and the response of the run."""
        del agent, session, state
        if not self._remember:
            return
        user = self._memories.user(context)
        answers = context.response.messages if context.response is not None else []
        said = [
            {"role": str(each.role), "content": each.text}
            for each in (*context.input_messages, *answers)
            if each.role in _ROLES
        ]
        await finished(lambda: self._memories.remember(user, said, context.session_id))

    def _tools(self, user: str) -> list[FunctionTool]:
        found = [tools.longterm(self._memories.longterm(user))]
        if self._agent is not None:
            found.append(tools.durable(self._memories.hf.durable(self._agent)))
        return tools_for(*found)


class HoldfastHistoryProvider(HistoryProvider):
    """The messages of sessions, as threads of *user* or of nobody."""

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: str | None = None,
        source_id: str = "holdfast-history",
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self._hf, self._user = hf, user

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, oldest first."""
        del state, kwargs
        values = await finished(self._conversation(session_id).values)
        return [Message.from_dict(each) for each in values]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append *messages* to a session, all or none."""
        del state, kwargs
        conversation = self._conversation(session_id)
        values = [each.to_dict() for each in messages]
        await finished(lambda: conversation.append(values))

    def _conversation(self, session_id: str | None) -> HostConversation:
        return HostConversation(self._hf, SOURCE, required("session_id", session_id), self._user)


def tools_for(*toolsets: Iterable[Tool]) -> list[FunctionTool]:
    """Return tools of ours as the framework takes them; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> FunctionTool:
    async def call(**arguments: Any) -> JSON:
        return await finished(lambda: tool.call(arguments))

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        func=call,
        input_model=tool.parameters,
        approval_mode="never_require",
    )
