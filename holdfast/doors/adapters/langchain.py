"""Long-term and durable memory as a middleware of LangChain's agents."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.tools import finished, offered, result_of
from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import Tool

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import (
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
    from langchain_core.tools import BaseTool, ToolException
    from langgraph.config import get_config
    from langgraph.runtime import Runtime, get_runtime
    from pydantic import PrivateAttr
except ImportError as error:
    raise MissingExtra("langchain", command="pip install langchain") from error

Result = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]


class _Known(Struct, frozen=True):
    """What is known for one message of a user: the hydration and the recalled block."""

    message: "weakref.ref[HumanMessage]"
    user: str
    hydration: str
    block: str


class HoldfastMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Memory of a user, and perhaps of an agent, around each call of the model.

    What the agent knows joins the system message, and what is recalled for the user's last message
    stands before it, as data, in that request only. After the agent ends, what was said is
    remembered under the thread id of the config. *user* is a name, or a function of the `Runtime`;
    so is *agent*. With *tools* the model is offered ours. *models* are `embedder`, `extractor` and
    `options` of long-term memory.
    """

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: User,
        agent: User | None = None,
        store: str | None = None,
        namespace: str = "chat",
        k: int = 5,
        budget: int = BUDGET,
        remember: bool = True,
        tools: bool = True,
        **models: Any,
    ) -> None:
        super().__init__()
        self._memories = UserMemories(
            hf, user=user, agent=agent, namespace=namespace, k=k, budget=budget, **models
        )
        self._remember = remember
        self._known: dict[int, _Known] = {}
        offers = self._memories.tools(get_runtime, store=store) if tools else []
        self.tools = tools_for(*offers)

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self._memories.enabled

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> Result:
        """Call the model with what is known."""
        return handler(self._request(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Result:
        """Call the model with what is known."""
        return await handler(await asyncio.to_thread(self._request, request))

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Remember what was said since the agent ended last."""
        user = self._memories.user(runtime)
        if self._remember:
            thread = get_config().get("configurable", {}).get("thread_id")
            said = _said(_exchange(state["messages"]))
            self._memories.remember(user, said, None if thread is None else str(thread))

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Remember what was said since the agent ended last."""
        await finished(lambda: self.after_agent(state, runtime))

    def _request(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return *request* with the hydration and the recalled block."""
        user, messages = self._memories.user(request.runtime), request.messages
        found = _last_human(messages)
        if found is None:
            return _instructed(request, self._memories.hydration(request.runtime))
        place, message = found
        known = self._known_for(message, user)
        if known is None:
            query = latest([_text(each) for each in messages if isinstance(each, HumanMessage)])
            known = _Known(
                weakref.ref(message, partial(self._drop, id(message))),
                user,
                self._memories.hydration(request.runtime),
                self._memories.block(user, query),
            )
            self._known[id(message)] = known
        request = _instructed(request, known.hydration)
        if not known.block:
            return request
        block = HumanMessage(known.block)
        return request.override(messages=[*messages[:place], block, *messages[place:]])

    def _drop(self, id: int, _: object) -> None:
        self._known.pop(id, None)

    def _known_for(self, message: HumanMessage, user: str) -> _Known | None:
        # By the message itself: all calls of a turn hold it, and no other turn does.
        known = self._known.get(id(message))
        if known is None or known.message() is not message or known.user != user:
            return None
        return known


def tools_for(*toolsets: Iterable[Tool]) -> list[BaseTool]:
    """Return tools of ours as LangChain takes them; ToolNameTaken if a name repeats."""
    return [_HoldfastTool(each) for each in offered(toolsets)]


class _HoldfastTool(BaseTool):
    """One tool of ours; a mistake of the model reaches it as an error of the tool."""

    _tool: Tool = PrivateAttr()

    def __init__(self, tool: Tool) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            args_schema=tool.parameters,
            handle_tool_error=True,
        )
        self._tool = tool

    def _run(self, /, **arguments: Any) -> str:
        try:
            return result_of(self._tool, arguments)
        except ToolRefused as refused:
            raise ToolException(str(refused)) from refused

    async def _arun(self, /, **arguments: Any) -> str:
        return await finished(lambda: self._run(**arguments))


def _instructed(request: ModelRequest[Any], hydration: str) -> ModelRequest[Any]:
    """Return *request* with *hydration* at the end of its system message."""
    if not hydration:
        return request
    system = request.system_message
    if system is None:
        return request.override(system_message=SystemMessage(hydration))
    content: Any = system.content
    if isinstance(content, str):
        content = f"{content}\n\n{hydration}" if content else hydration
    else:
        content = [*content, {"type": "text", "text": hydration}]
    return request.override(system_message=system.model_copy(update={"content": content}))


def _last_human(messages: Sequence[AnyMessage]) -> tuple[int, HumanMessage] | None:
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, HumanMessage):
            return place, message
    return None


def _exchange(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return the last messages of the user that stand together, and all after them.

    What is older was remembered after an earlier run, and may be a summary of it by now.
    """
    found = _last_human(messages)
    if found is None:
        return ()
    first = found[0]
    while first > 0 and isinstance(messages[first - 1], HumanMessage):
        first -= 1
    return messages[first:]


def _said(messages: Iterable[AnyMessage]) -> list[dict[str, str]]:
    roles = ((each, _role(each)) for each in messages)
    return [{"role": role, "content": _text(each)} for each, role in roles if role]


def _role(message: AnyMessage) -> str:
    if isinstance(message, HumanMessage):
        return "user"
    return "assistant" if isinstance(message, AIMessage) else ""


def _text(message: AnyMessage) -> str:
    return str(message.text)
