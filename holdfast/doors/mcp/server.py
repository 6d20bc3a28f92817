"""The server object: one for a process, in both eras of the protocol.

The official SDK speaks the protocol; here stands what is listed and answered, and
the prompts: commands that a person calls by name.
"""

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import ValidationError

from holdfast import recalled_block
from holdfast.doors.mcp.changes import ChangeHub, Run, Watch
from holdfast.doors.mcp.host_tool import encoded
from holdfast.doors.mcp.owners import HostMemories
from holdfast.doors.mcp.resources import PAGE, HostResources, newest_items
from holdfast.doors.mcp.tools import HostTools, words
from holdfast.ground.errors import (
    EngineFault,
    HoldfastError,
    InvalidInput,
    NotFound,
    Unavailable,
)
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.stores.records import Memory
from holdfast.tools.base import JSON

TOPIC_RESULTS = 10
_TOPIC_CHARACTERS = 4_096


class HostPrompts:
    """The prompts of one host; one whose memory is missing is not listed."""

    def __init__(self, memories: HostMemories, *, may_write: bool = True) -> None:
        self._memories, self._touch = memories, may_write
        read_only = memories.owners.read_only or not may_write
        text = words()
        topic = types.PromptArgument(
            name="topic", description=text["prompt.recall.topic"], required=True
        )
        what = types.PromptArgument(
            name="what", description=text["prompt.keep.what"], required=False
        )
        offered = {
            "recall": memories.longterm is not None,
            "briefing": not memories.owners.nobody and memories.owners.profile != "graph",
            "keep": memories.longterm is not None and not read_only,
        }
        arguments = {"recall": [topic], "briefing": [], "keep": [what]}
        self._prompts = {
            name: types.Prompt(
                name=name, description=text[f"prompt.{name}"], arguments=arguments[name]
            )
            for name, there in offered.items()
            if there
        }

    def listed(self) -> types.ListPromptsResult:
        """Return the prompts."""
        return types.ListPromptsResult(prompts=list(self._prompts.values()))

    def get(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return the messages of *name*; raise NotFound if it is not listed."""
        prompt = self._prompts.get(name)
        if prompt is None:
            there = ", ".join(self._prompts) or "none"
            raise NotFound("prompt", name, next=f"There are: {there}.")
        known = {each.name for each in prompt.arguments or ()}
        if unknown := sorted(set(arguments) - known):
            raise InvalidInput(unknown[0], "is not an argument of this prompt")
        made = {"recall": self._recall, "briefing": self._briefing, "keep": self._keep}
        text = made[name](arguments)
        message = types.PromptMessage(
            role="user", content=types.TextContent(type="text", text=text)
        )
        return types.GetPromptResult(description=prompt.description, messages=[message])

    def _recall(self, arguments: Mapping[str, str]) -> str:
        topic = arguments.get("topic", "").strip()
        if not topic or len(topic) > _TOPIC_CHARACTERS:
            reason = f"must be 1 to {_TOPIC_CHARACTERS:,} characters"
            raise InvalidInput("topic", reason, next="Say what to recall.")
        ltm = self._memories.longterm
        found = ltm.recall(topic, TOPIC_RESULTS, touch=self._touch) if ltm else None
        if not found:
            return words()["prompt.recall.empty"]
        return f"{recalled_block(found)}\n\n{words()['prompt.recall.text']}"

    def _briefing(self, arguments: Mapping[str, str]) -> str:
        del arguments
        memories, parts = self._memories, list[str]()
        if memories.durable is not None:
            parts.append(memories.durable.hydrate().render())
        important = sorted(newest_items(memories, 1_000), key=lambda each: -each.importance)
        if block := recalled_block(important[:TOPIC_RESULTS]):
            parts.append(block)
        store = memories.store_id()
        if store is not None:
            page = memories.hf.memory_stores.memories.list(store, limit=PAGE)
            paths: list[JSON] = [
                f"/memories{each.path}" for each in page.data if isinstance(each, Memory)
            ]
            files: dict[str, JSON] = {"files": paths}
            parts.append(encoded(files | ({"more": True} if page.next_page else {})))
        return "\n\n".join([*filter(None, parts), words()["prompt.briefing.text"]])

    def _keep(self, arguments: Mapping[str, str]) -> str:
        text, what = words(), arguments.get("what", "").strip()
        only = f"\n\n{text['prompt.keep.only']} {what}" if what else ""
        return text["prompt.keep.text"] + only


NAME: Final = "holdfast"
CALLS_MOST: Final = 64
"""Calls in flight of one credential."""
URIS_MOST: Final = 1_000
"""URIs that one subscriber may name."""
_RESOURCE_UNKNOWN: Final = -32_002
"""The code of an unknown resource in the handshake era."""
_HINTS: Final[dict[CacheableMethod, CacheHint]] = {
    "tools/list": CacheHint(ttl_ms=60_000),
    "prompts/list": CacheHint(ttl_ms=60_000),
    "resources/templates/list": CacheHint(ttl_ms=60_000),
    "resources/list": CacheHint(),
    "resources/read": CacheHint(),
}
_METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "prompts/list",
        "prompts/get",
    }
)
_OTHER: Final = "other"
REQUESTS: Final = REGISTRY.counter(
    "mcp_requests_total",
    "Requests over MCP.",
    method=(*sorted(_METHODS), _OTHER),
    outcome=("ok", "tool_error", "error"),
)

_log = logging.getLogger(__name__)

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]


async def _always() -> bool:
    return True


class _CodeOnly(MCPError):
    """An error without its message, which may hold an argument.

    The SDK writes the message of an error that passes it to a span.
    """

    def __init__(self, whole: MCPError) -> None:
        super().__init__(whole.error.code, "")
        self.whole = whole


async def _restore_message(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Give an error its message back, outside of the span."""
    try:
        return await call_next(ctx)
    except _CodeOnly as error:
        raise error.whole from None


class CallLimit:
    """Counts the calls in flight of one credential."""

    def __init__(self, most: int = CALLS_MOST) -> None:
        self._most, self._calls = most, 0

    def begin(self) -> bool:
        """Count a call; return whether it may run."""
        if self._calls >= self._most:
            return False
        self._calls += 1
        return True

    def end(self) -> None:
        """End a call that began."""
        self._calls -= 1


class Host(Struct, frozen=True, kw_only=True):
    """What one host is served: tools, resources and prompts, by its rights.

    `allowed` says whether it still may read; `limit` bounds its calls in flight.
    """

    memories: HostMemories
    tools: HostTools
    resources: HostResources
    prompts: HostPrompts
    limit: CallLimit
    allowed: Callable[[], Awaitable[bool]] = _always

    @property
    def instructions(self) -> str:
        """The text for the host's model about this server."""
        text, owners = words(), self.memories.owners
        if owners.nobody:
            return text["instructions_nobody"]
        if owners.profile == "graph":
            return text["instructions_graph"]
        disabled = f" {text['instructions_disabled']}" if self.memories.disabled else ""
        return text["instructions"] + disabled


def host_of(
    memories: HostMemories,
    *,
    may_write: bool = True,
    limit: CallLimit | None = None,
    allowed: Callable[[], Awaitable[bool]] = _always,
) -> Host:
    """Return what is served to the host that reaches *memories*."""
    return Host(
        memories=memories,
        tools=HostTools(memories, may_write=may_write),
        resources=HostResources(memories),
        prompts=HostPrompts(memories, may_write=may_write),
        limit=limit or CallLimit(),
        allowed=allowed,
    )


class MemoryServer:
    """Answers the requests of hosts; *find* returns the host of a request, at once.

    Work that may block goes through *run*.
    """

    def __init__(
        self,
        find: Callable[[Context], Host],
        run: Run,
        hub: ChangeHub,
        *,
        sessions: bool = True,
    ) -> None:
        self._find, self._run, self._hub = find, run, hub
        self._watches: dict[int, Watch] = {}
        self.server: Server[Any] = Server(
            NAME,
            version=version("holdfast"),
            title="Holdfast",
            cache_hints=_HINTS,
            get_tool_input_schema=lambda _: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe if sessions else None,
            on_unsubscribe_resource=self._unsubscribe if sessions else None,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        self.server.middleware.insert(0, _restore_message)
        self.server.middleware.append(self._counted)
        self._sessions = sessions

    async def _counted(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Count a request, and add the host's instructions to the start of a connection."""
        if ctx.request_id is None:
            return await call_next(ctx)
        method = ctx.method if ctx.method in _METHODS else _OTHER
        outcome = "error"
        try:
            result = await call_next(ctx)
            outcome = "tool_error" if _is_tool_error(result) else "ok"
        except MCPError as error:
            raise _CodeOnly(error) from None
        except ValidationError:
            raise
        except Exception as error:  # noqa: BLE001 - each fault is answered, without internals
            raise _CodeOnly(_fault(error)) from None
        finally:
            REQUESTS.add(method, outcome)
        if method in {"initialize", "server/discover"} and isinstance(result, dict):
            capabilities = {**result["capabilities"], **self._capabilities(method)}
            host = self._find(ctx)
            return {**result, "instructions": host.instructions, "capabilities": capabilities}
        return result

    def _capabilities(self, method: str) -> dict[str, Any]:
        """Return what the SDK does not know: only resources change."""
        notified = self._sessions or method == "server/discover"
        return {
            "tools": {"listChanged": False},
            "prompts": {"listChanged": False},
            "resources": {"subscribe": notified, "listChanged": notified},
        }

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        _refuse_cursor(params)
        return types.ListToolsResult(tools=self._find(ctx).tools.listed())

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        host = self._find(ctx)
        if params.name not in host.tools.by_name:
            there = ", ".join(host.tools.by_name) or "none"
            raise MCPError(types.INVALID_PARAMS, f"There is no such tool here. There are: {there}.")
        if not host.limit.begin():
            message = f"{CALLS_MOST} calls are in flight, the most that may."
            busy = Unavailable(message, reason="overloaded")
            return host.tools.by_name[params.name].refused(busy)
        try:
            return await self._run(lambda: host.tools.call(params.name, params.arguments or {}))
        finally:
            host.limit.end()

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        host, cursor = self._find(ctx), params.cursor if params else None
        if self._sessions and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            # A client of this era is told of new and deleted resources without asking for it.
            await self._session_watch(ctx, host)
        return await self._answered(ctx, lambda: host.resources.listed(cursor))

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        _refuse_cursor(params)
        return self._find(ctx).resources.templates()

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        host, uri = self._find(ctx), str(params.uri)
        contents = await self._answered(ctx, lambda: host.resources.read(uri))
        return types.ReadResourceResult(contents=[contents])

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        _refuse_cursor(params)
        return self._find(ctx).prompts.listed()

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        host = self._find(ctx)
        return await self._answered(
            ctx, lambda: host.prompts.get(params.name, params.arguments or {})
        )

    async def _answered(self, ctx: Context, work: Callable[[], T]) -> T:
        """Return *work*(); what is unknown or invalid is an error of the protocol."""
        try:
            return await self._run(work)
        except NotFound as error:
            known = error.kind == "resource" and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
            raise MCPError(
                _RESOURCE_UNKNOWN if known else types.INVALID_PARAMS, str(error)
            ) from None
        except InvalidInput as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def _subscribe(
        self, ctx: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        host, uri = self._find(ctx), str(params.uri)
        if not await self._answered(ctx, lambda: host.resources.readable(uri)):
            raise MCPError(_RESOURCE_UNKNOWN, f"There is no resource {uri}. List them first.")
        watch = await self._session_watch(ctx, host)
        if len(watch.uris) >= URIS_MOST:
            raise MCPError(
                types.INVALID_PARAMS, f"At most {URIS_MOST:,} URIs can be subscribed to."
            )
        watch.uris.add(uri)
        await self._hub.read(watch, [uri])
        return types.EmptyResult()

    async def _unsubscribe(
        self, ctx: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        known = self._watches.get(_connection_id(ctx))
        if known is not None:
            known.uris.discard(str(params.uri))
        return types.EmptyResult()

    async def _session_watch(self, ctx: Context, host: Host) -> Watch:
        """Return the watch of the request's connection, which ends with the connection."""
        key = _connection_id(ctx)
        known = self._watches.get(key)
        if known is not None and self._hub.holds(known):
            return known
        if self._hub.full:
            raise MCPError(types.INTERNAL_ERROR, "There are too many subscribers. Try again later.")
        session = ctx.session

        async def send(event: ServerEvent) -> None:
            if isinstance(event, ResourceUpdated):
                await session.send_resource_updated(event.uri)
            else:
                await session.send_resource_list_changed()

        watch = Watch(
            host.resources,
            host.memories.hf.workspace,
            listed=True,
            send=send,
            allowed=host.allowed,
        )
        self._watches[key] = watch

        def ended() -> None:
            self._hub.drop(watch)
            if self._watches.get(key) is watch:
                del self._watches[key]

        # The SDK hands handlers no other way to the connection, and documents its exit stack.
        ctx.session._connection.exit_stack.callback(ended)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        await self._hub.add(watch)
        return watch

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        host, wanted = self._find(ctx), params.notifications
        uris = [str(each) for each in wanted.resource_subscriptions or ()]
        if len(uris) > URIS_MOST:
            raise MCPError(
                types.INVALID_PARAMS, f"At most {URIS_MOST:,} URIs can be subscribed to."
            )
        if self._hub.full:
            raise MCPError(types.INTERNAL_ERROR, "There are too many subscribers. Try again later.")
        readable = await self._answered(
            ctx, lambda: [uri for uri in uris if host.resources.readable(uri)]
        )
        bus = _HostBus()
        watch = Watch(
            host.resources,
            host.memories.hf.workspace,
            readable,
            listed=bool(wanted.resources_list_changed),
            send=bus.publish,
            allowed=host.allowed,
        )
        try:
            await self._hub.add(watch)
            return await ListenHandler(bus)(ctx, params)
        finally:
            self._hub.drop(watch)


class _HostBus:
    """Passes the notices of one watch to its listen stream."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[ServerEvent], None]] = []

    async def publish(self, event: ServerEvent) -> None:
        """Pass *event* on."""
        for listener in self._listeners:
            listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Pass notices to *listener* until the function that is returned is called."""
        self._listeners.append(listener)
        return self._listeners.clear


def _connection_id(ctx: Context) -> int:
    return id(ctx.session._connection)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - see _session_watch


def _is_tool_error(result: HandlerResult) -> bool:
    return isinstance(result, dict) and result.get("isError") is True


def _fault(error: Exception) -> MCPError:
    """Return *error* as one of the protocol.

    Of a fault of ours, class and place are logged; its text may repeat what a client sent.
    """
    if isinstance(error, HoldfastError) and not isinstance(error, EngineFault):
        return MCPError(types.INTERNAL_ERROR, str(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{each.name}:{each.lineno}" for each in reversed(frames[-4:]))
    _log.error("a request failed: %s at %s", type(error).__name__, where)
    return MCPError(types.INTERNAL_ERROR, "The server has failed. Try again, or report it.")


def _refuse_cursor(params: types.PaginatedRequestParams | None) -> None:
    """Raise an error for a cursor of a list that has one page."""
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "The cursor is not one of this list. Leave it out.")
