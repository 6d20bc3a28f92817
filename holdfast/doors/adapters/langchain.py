"""Long-term and durable memory as a middleware of LangChain's agents."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.tools import finished
from holdfast.ground.errors import MissingExtra
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import AgentState, ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
    from langgraph.config import get_config
    from langgraph.runtime import Runtime, get_runtime

    from holdfast.doors.adapters.langchain_tools import tools_for
except ImportError as error:
    raise MissingExtra("langchain", command="pip install langchain") from error


class _Turn(Struct, frozen=True):
    """The user of a request, the query, and the place of the user's message."""

    user: str
    query: str
    place: int
    message: HumanMessage | None


class _Known(Struct, frozen=True):
    """What is known for one message of a user: the hydration and the recalled block."""

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
        self._hydrates = agent is not None
        self._known: dict[int, tuple[weakref.ref[HumanMessage], str, _Known]] = {}
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
    ) -> ModelResponse[Any]:
        """Call the model with what is known."""
        turn = self._turn(request)
        known = self._known_of(turn)
        if known is None:
            hydration = self._memories.hydration(request.runtime)
            known = self._keep(turn, hydration, self._memories.block(turn.user, turn.query))
        return handler(_informed(request, turn, known))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Call the model with what is known."""
        turn = self._turn(request)
        known = self._known_of(turn)
        if known is None:
            block = self._memories.ablock(turn.user, turn.query)
            if self._hydrates:
                hydrating = asyncio.to_thread(self._memories.hydration, request.runtime)
                known = self._keep(turn, *await asyncio.gather(hydrating, block))
            else:
                known = self._keep(turn, "", await block)
        return await handler(_informed(request, turn, known))

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Remember what was said since the agent ended last."""
        user, found = self._memories.user(runtime), _last_human(state["messages"])
        if found is not None:
            # The same message may begin another turn, which recalls by itself.
            self._known.pop(id(found[1]), None)
        if self._remember:
            thread = get_config().get("configurable", {}).get("thread_id")
            said = _said(_exchange(state["messages"]))
            self._memories.remember(user, said, None if thread is None else str(thread))

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Remember what was said since the agent ended last."""
        await finished(lambda: self.after_agent(state, runtime))

    def _turn(self, request: ModelRequest[Any]) -> _Turn:
        messages = request.messages
        found = _last_human(messages)
        place, message = (0, None) if found is None else found
        query = latest([_text(each) for each in messages if isinstance(each, HumanMessage)])
        return _Turn(self._memories.user(request.runtime), query, place, message)

    def _keep(self, turn: _Turn, hydration: str, block: str) -> _Known:
        """Return what is known for *turn*, and keep it for its other calls of the model."""
        known = _Known(hydration, block)
        if (message := turn.message) is not None:
            reference = weakref.ref(message, partial(self._drop, id(message)))
            self._known[id(message)] = reference, turn.user, known
        return known

    def _drop(self, id: int, _: object) -> None:
        self._known.pop(id, None)

    def _known_of(self, turn: _Turn) -> _Known | None:
        # By the message itself: all calls of a turn hold it, and no other turn does.
        message, user, known = self._known.get(id(turn.message), (None, "", None))
        if message is None or message() is not turn.message or user != turn.user:
            return None
        return known


def _informed(request: ModelRequest[Any], turn: _Turn, known: _Known) -> ModelRequest[Any]:
    """Return *request* with the hydration and the recalled block."""
    request = _instructed(request, known.hydration)
    if not known.block:
        return request
    messages, block = request.messages, HumanMessage(known.block)
    return request.override(messages=[*messages[: turn.place], block, *messages[turn.place :]])


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
