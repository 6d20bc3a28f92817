"""Memory as context and history providers of the Microsoft Agent Framework."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.conversation import HostConversation, thread_id
from holdfast.doors.adapters.tools import finished, offered, required, result_of
from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import Tool

try:
    from agent_framework import (
        AgentSession,
        ContextProvider,
        FunctionTool,
        HistoryProvider,
        Message,
        SessionContext,
        SupportsAgentRun,
    )
    from pydantic import BaseModel, ConfigDict, create_model
except ImportError as error:
    raise MissingExtra(
        "agent-framework-core", command="pip install agent-framework-core"
    ) from error

SOURCE = "agent-framework"
_BLOCK = "holdfast_block"


class HoldfastContextProvider(ContextProvider):
    """Memory of a user, and perhaps of an agent, around each run of an agent.

    What the agent knows joins the instructions, and what is recalled for the latest input is a
    message of this run alone. The input and the response are remembered, and nothing that other
    providers added. *user* is a name, or a function of the `AgentSession`; so is *agent*. With
    *tools* the model is offered ours, of the files in *store* too. *models* are `embedder`,
    `extractor` and `options` of long-term memory.
    """

    def __init__(
        self,
        hf: Holdfast | AsyncHoldfast,
        *,
        user: User,
        agent: User | None = None,
        store: str | None = None,
        source_id: str = "holdfast",
        namespace: str = "chat",
        k: int = 5,
        budget: int = BUDGET,
        remember: bool = True,
        tools: bool = True,
        **models: Any,
    ) -> None:
        super().__init__(source_id)
        self._memories = UserMemories(
            hf, user=user, agent=agent, namespace=namespace, k=k, budget=budget, **models
        )
        self._store, self._remember, self._offers = store, remember, tools

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self._memories.enabled

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add what the agent knows, what is recalled, and the tools."""
        del agent, state
        memories, user = self._memories, self._memories.user(session)
        if memories.agent(session) is not None:
            hydration = await finished(lambda: memories.hydration(session))
            context.extend_instructions(self.source_id, hydration or ())
        said = [each.text for each in context.input_messages if each.role == "user"]
        if block := await memories.ablock(user, latest(said)):
            shown = Message("user", [block], additional_properties={_BLOCK: True})
            context.extend_messages(self, [shown])
        if self._offers:
            ours = memories.tools(lambda: session, store=self._store)
            context.extend_tools(self.source_id, tools_for(*ours))

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Remember the input and the response of the run, in the thread of its session."""
        del agent, state
        if not self._remember:
            return
        user, thread = self._memories.user(session), thread_id(SOURCE, session.session_id)
        answers = context.response.messages if context.response is not None else []
        said = [
            {"role": each.role, "content": each.text}
            for each in (*context.input_messages, *answers)
        ]
        await finished(lambda: self._memories.remember(user, said, thread))


class HoldfastHistoryProvider(HistoryProvider):
    """The messages of sessions, as threads of *user* if one is named.

    *options* are the framework's: which messages are loaded and stored.
    """

    def __init__(
        self,
        hf: Holdfast | AsyncHoldfast,
        *,
        user: str | None = None,
        source_id: str = "holdfast-history",
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        if user is not None:
            required("user", user)
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
        """Append *messages* to a session, all or none.

        As with the framework's own providers, those that the session ends with are skipped, so
        that a whole conversation may be given again. Blocks of recalled memory are never stored.
        """
        del state, kwargs
        conversation = self._conversation(session_id)
        values = [each.to_dict() for each in messages if _BLOCK not in each.additional_properties]
        await finished(lambda: conversation.append(_new(conversation, values)))

    def _conversation(self, session_id: str | None) -> HostConversation:
        return HostConversation(self._hf, SOURCE, required("session_id", session_id), self._user)


def _new(conversation: HostConversation, values: list[Any]) -> list[Any]:
    """Return those of *values* that follow what *conversation* ends with."""
    stored = conversation.values(len(values)) if values else []
    for overlap in range(len(stored), 0, -1):
        if list(map(_identity, stored[-overlap:])) == list(map(_identity, values[:overlap])):
            repeated = overlap == 1 and values[0]["role"] == "user" and not _id(values[0])
            # An input that is said twice is more likely than one that is given again.
            return values if repeated else values[overlap:]
    return values


def _id(value: dict[str, Any]) -> object:
    return value.get("message_id")


def _identity(value: dict[str, Any]) -> object:
    return _id(value) or (value["role"], value.get("contents"))


def tools_for(*toolsets: Iterable[Tool]) -> list[FunctionTool]:
    """Return our tools as the framework's; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> FunctionTool:
    async def call(**arguments: Any) -> str:
        # The framework shows the model no text of an exception, so a refusal is a result.
        try:
            return await finished(lambda: result_of(tool, arguments))
        except ToolRefused as refused:
            return str(refused)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        func=call,
        input_model=_arguments(tool),
        approval_mode="never_require",
    )


def _arguments(tool: Tool) -> type[BaseModel]:
    """Return a model with the schema of *tool*; it takes any arguments."""

    def as_ours(schema: dict[str, Any]) -> None:
        schema.clear()
        schema.update(tool.parameters)

    config = ConfigDict(extra="allow", json_schema_extra=as_ours)
    return create_model(tool.name, __config__=config)
