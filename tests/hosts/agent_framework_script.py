"""A scripted client for agents of the Agent Framework, and what tests read of memory."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from holdfast.library.holdfast import Holdfast

OPENING, CLOSING = "<recalled-memories>", "</recalled-memories>"

Reply = str | Content


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Returns the scripted replies in turn, then "Done.", and records each request."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__()
        self._replies = list(replies)
        self.requests: list[list[Message]] = []
        self.options: list[Mapping[str, Any]] = []

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        del kwargs
        self.requests.append(list(messages))
        self.options.append(dict(options))
        reply = self._replies.pop(0) if self._replies else "Done."
        content = Content.from_text(reply) if isinstance(reply, str) else reply
        return _stream(content) if stream else _response(content)

    def shown(self, request: int = -1) -> list[str]:
        """Return the texts of one request, and the results of tools."""
        return [each.text or _results(each) for each in self.requests[request]]

    def blocks(self, request: int = -1) -> list[str]:
        """Return the recalled blocks in one request."""
        return [each for each in self.shown(request) if each.startswith(OPENING)]

    def instructions(self, request: int = -1) -> str:
        """Return the instructions of one request."""
        return self.options[request].get("instructions") or ""

    def offered(self, request: int = -1) -> list[str]:
        """Return the names of the tools of one request."""
        return [each.name for each in self.options[request].get("tools") or ()]


async def _response(content: Content) -> ChatResponse[Any]:
    return ChatResponse(messages=[Message("assistant", [content])])


def _stream(content: Content) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(contents=[content], role="assistant")

    return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


def _results(message: Message) -> str:
    return "\n".join(
        str(each.result) for each in message.contents if each.type == "function_result"
    )


def called(name: str, **arguments: Any) -> Content:
    return Content.from_function_call(call_id=f"call_{name}", name=name, arguments=arguments)


def agent_of(client: ScriptedClient, *providers: ContextProvider, **more: Any) -> Agent[Any]:
    return Agent(client, context_providers=list(providers), **more)


def texts(hf: Holdfast, user: str) -> list[tuple[str, str, str | None]]:
    """Return the turns that are remembered of *user*, oldest first."""
    found = hf.longterm_data(user).list("turns", limit=100).data
    return [(each.role, each.text, each.thread_id) for each in reversed(found)]


def remembered(hf: Holdfast, text: str, user: str = "ada") -> str:
    """Remember *text*, and return its id."""
    memory = hf.longterm(user, enabled=True)
    assert memory is not None
    stored = memory.remember(text).stored
    assert stored is not None
    return stored.id
