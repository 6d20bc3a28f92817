"""Toolsets of MCP servers.

A server that cannot be reached costs its tools, not the run; an event reports it. The next run
tries again.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast
from weakref import WeakKeyDictionary

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator

from holdfast.ground.errors import InvalidInput, NotRunnable
from holdfast.runtime.agent import AgentSpec, AnyToolset
from holdfast.runtime.concurrency import cause_of, contained
from holdfast.runtime.inference.run_types import InferenceRun

if TYPE_CHECKING:
    from fastmcp.client.transports import ClientTransport
    from jsonschema.exceptions import ValidationError
    from pydantic_ai.mcp import MCPToolset


# jsonschema takes 30 ms to import, so the functions that need it import it.

PROBLEMS = 5
"""Problems reported to the model at once."""

Partial = bool | Literal["off", "on", "trailing-strings"]


class Checks(Protocol):
    """The used part of a jsonschema validator."""

    def iter_errors(self, instance: object) -> "Iterator[ValidationError]":
        """Yield each way in which *instance* breaks the schema."""
        ...


def checks(schema: Mapping[str, Any]) -> Checks:
    """Return a validator for *schema*, in the draft it names, 2020-12 by default."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return cast("Checks", validator_for(schema, default=Draft202012Validator)(schema))


def unusable(schema: object) -> str | None:
    """Return the reason why *schema* cannot be a tool's, or None."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return "the schema is no object"
    known = cast("dict[str, Any]", schema)
    if known.get("type") != "object":
        return "the schema is not one of an object"
    if foreign := next((ref for ref in _references(known) if not ref.startswith("#")), None):
        return f"the schema refers to {foreign!r}"
    try:
        validator_for(known, default=Draft202012Validator).check_schema(known)
    except SchemaError as error:
        return f"the schema is broken at {error.json_path}: {error.message}"
    return None


def takes_anything(validator: object) -> bool:
    """Return whether *validator* accepts all arguments."""
    return isinstance(validator, SchemaValidator) and validator.title in {"any", "dict[str,any]"}


class BySchema:
    """Validates arguments by *schema*; problems are returned to the model."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _checks(self) -> Checks:
        return checks(self._schema)

    def validate_json(
        self, input: str | bytes | bytearray, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments in the text *input*."""
        try:
            given: object = json.loads(input)
        except ValueError as error:
            raise ModelRetry(f"the arguments are not JSON: {error}") from error
        return self.validate_python(given, allow_partial=allow_partial, **kwargs)

    def validate_python(
        self,
        input: Any,
        *,
        allow_partial: Partial = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the arguments *input*."""
        if not isinstance(input, dict):
            raise ModelRetry(f"the arguments must be an object, not {json.dumps(input)[:60]}")
        problems = list(self._checks.iter_errors(cast("object", input)))
        if problems:
            raise ModelRetry("; ".join(map(_described, problems[:PROBLEMS])))
        return cast("dict[str, Any]", input)


def _described(problem: "ValidationError") -> str:
    return f"{problem.json_path}: {problem.message}"


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in cast("dict[str, object]", schema).items():
            if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _references(value)


Transport = Literal["stdio", "streamable-http", "sse"]

_PING = 5
"""Seconds that a server in doubt has to answer a ping."""

log = logging.getLogger(__name__)

seen_to: ContextVar[bool] = ContextVar("seen_to", default=False)
"""Whether the runner of the agent has connected its servers, as far as possible."""


class Remote(AbstractToolset[Any]):
    """The tools of the MCP server that `make` connects to, names after *prefix*."""

    def __init__(
        self,
        name: str,
        make: "Callable[[], MCPToolset[Any]]",
        *,
        prefix: str = "",
        shows: Callable[[str], bool] = lambda _: True,
        required: bool = False,
        timeout: float = 30,
    ) -> None:
        self.name, self.required = name, required
        self._make, self._prefix, self._shows, self._timeout = make, prefix, shows, timeout
        self._link: _Link | None = None
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def id(self) -> str | None:
        """Return the server's name."""
        return self.name

    @property
    def label(self) -> str:
        """Return the name for error messages."""
        return f"the MCP server {self.name}"

    async def connect(self) -> str | None:
        """Connect if not connected; return the reason if that fails, or None."""
        async with self._alone():
            if self._link is not None and await self._link.lives():
                return None
            await self._part()
            try:
                async with asyncio.timeout(self._timeout):
                    # It takes seconds, in which the event loop is to go on.
                    await asyncio.to_thread(import_module, "pydantic_ai.mcp")
                    with contained():
                        self._link = await _linked(self._make())
            except TimeoutError:
                return f"it did not answer within {self._timeout:g} s"
            except Exception as error:
                # Whatever the transport raises; the run goes on without the server's tools.
                log.warning("the MCP server %s cannot be reached", self.name, exc_info=True)
                return cause_of(error)
        for tool, why in self._link.left_out.items():
            log.warning("the MCP server %s: its tool %s is left out: %s", self.name, tool, why)
        return None

    def status(self, error: str | None) -> dict[str, Any]:
        """Return its status for `Run.mcp`; *error* is the result of `connect`."""
        if error is not None or self._link is None:
            return {"status": "unavailable", "error": error}
        return {"status": "connected", "left_out": dict(self._link.left_out)}

    async def aclose(self) -> None:
        """Close the connection; the next run makes a new one."""
        async with self._alone():
            await self._part()

    async def __aenter__(self) -> Self:
        if not seen_to.get() and (error := await self.connect()) and self.required:
            raise _unreachable(self.name, error)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the connection open for the next run."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the server's tools by the names the model sees; {} if not connected."""
        link = self._link
        if link is None or not link.here():
            return {}
        found: dict[str, ToolsetTool[Any]] = {}
        for name, tool in (await link.toolset.get_tools(ctx)).items():
            if name in link.left_out or not self._shows(name):
                continue
            shown = replace(tool.tool_def, name=self._prefix + name)
            found[shown.name] = replace(tool, toolset=self, tool_def=shown)
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the result of the server's tool."""
        link = self._link
        if link is None:
            raise ConnectionError(f"the MCP server {self.name} is not connected")
        plain = name.removeprefix(self._prefix)
        there = replace(tool, toolset=link.toolset, tool_def=replace(tool.tool_def, name=plain))
        try:
            return await link.toolset.call_tool(plain, tool_args, ctx, there)
        except BaseException:
            link.in_doubt = True
            raise

    def _alone(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = loop, asyncio.Lock()
        return self._gate[1]

    async def _part(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        if not link.here():
            log.warning("the MCP server %s was left connected on another event loop", self.name)
            return
        try:
            with contained():
                await link.toolset.__aexit__(None, None, None)
        except Exception:
            # The connection is discarded anyway.
            log.warning("closing the MCP server %s failed", self.name, exc_info=True)


class McpServer(Remote):
    """An MCP server that offers its tools to an agent as `<name>-<tool>`.

    It is reached by the *command* that starts it, with *args* and *env*, or at a *url*, with
    *headers*. *transport* is guessed unless given. *include* and *exclude* are names of its tools,
    or patterns as for file names; exclude wins. A run that needs a *required* one that cannot be
    reached does not begin. *timeout* is in seconds, for connecting and for each call.
    """

    def __init__(
        self,
        name: str,
        *,
        command: str | None = None,
        args: Sequence[str] = (),
        env: dict[str, str] | None = None,
        url: str | None = None,
        transport: Transport | None = None,
        headers: dict[str, str] | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        required: bool = False,
        timeout: float = 30,
    ) -> None:
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
            raise InvalidInput("name", "must be text that is not blank", given=name)
        if (command is None) == (url is None):
            raise InvalidInput("command", "exactly one of command and url must be given")
        way = transport or _guessed(url)
        if (way == "stdio") != (url is None) or way not in ("stdio", "streamable-http", "sse"):
            raise InvalidInput(
                "transport", "does not apply to this kind of server", given=transport
            )

        def reach() -> "ClientTransport":
            if url is None:
                return _process(command or "", args, env)
            return _web(way, url, headers)

        super().__init__(
            name,
            lambda: _toolset(reach(), timeout),
            prefix=f"{name}-",
            shows=lambda tool: _is_shown(tool, include, exclude),
            required=required,
            timeout=timeout,
        )


class _Link:
    """A connection on one event loop; `left_out` has unusable tools and reasons."""

    def __init__(self, toolset: "MCPToolset[Any]", left_out: dict[str, str]) -> None:
        self.toolset, self.left_out = toolset, left_out
        self.in_doubt = False
        self._loop = asyncio.get_running_loop()

    def here(self) -> bool:
        return asyncio.get_running_loop() is self._loop

    async def lives(self) -> bool:
        """Return whether the server is alive; it is pinged only after a failed call."""
        if not self.here() or not self.toolset.client.is_connected():
            return False
        if self.in_doubt:
            try:
                async with asyncio.timeout(_PING):
                    await self.toolset.client.ping()
            except Exception:
                log.info("an MCP server does not answer any more", exc_info=True)
                return False
            self.in_doubt = False
        return True


async def connect(agent: AgentSpec, run: InferenceRun) -> list[dict[str, Any]]:
    """Connect the servers of *agent* new to *run*; return the unavailable ones.

    Raise NotRunnable if a required one cannot be reached.
    """
    new = [each for each in _servers(agent.toolsets) if each.name not in run.mcp]
    errors = await asyncio.gather(*(each.connect() for each in new))
    for server, error in zip(new, errors, strict=True):
        run.mcp[server.name] = server.status(error)
    failed = {each: error for each, error in zip(new, errors, strict=True) if error is not None}
    for server, error in failed.items():
        if server.required:
            raise _unreachable(server.name, error, agent.name)
    return [{"server": server.name, "error": error} for server, error in failed.items()]


async def require(agents: Iterable[AgentSpec]) -> None:
    """Connect the servers that *agents* require; raise NotRunnable if one fails."""
    needed = [
        (server, agent)
        for agent in agents
        for server in _servers(agent.toolsets)
        if server.required
    ]
    errors = await asyncio.gather(*(server.connect() for server, _ in needed))
    for (server, agent), error in zip(needed, errors, strict=True):
        if error is not None:
            raise _unreachable(server.name, error, agent.name)


async def reach(toolsets: Iterable[AnyToolset], down: "dict[Remote, str]") -> dict[str, str]:
    """Connect the servers in *toolsets*, except for those already *down*.

    Return the errors of those that fail now, by name. Raise NotRunnable if one of them is required.
    """
    tried = [each for each in _servers(toolsets) if each not in down]
    errors = await asyncio.gather(*[each.connect() for each in tried])
    found = {server: error for server, error in zip(tried, errors, strict=True) if error}
    for server, error in found.items():
        if server.required:
            raise _unreachable(server.name, error)
    down |= found
    return {server.name: error for server, error in found.items()}


async def close(toolsets: Iterable[AnyToolset]) -> None:
    """Close the connections to all servers among *toolsets*."""
    await asyncio.gather(*(each.aclose() for each in _servers(toolsets)))


def kept(toolset: AnyToolset) -> AnyToolset:
    """Return *toolset*, its pydantic-ai MCP toolsets connected across runs."""
    return toolset.visit_and_replace(_kept)


def is_remote(toolset: AnyToolset) -> bool:
    """Return whether the tools of *toolset* are an MCP server's."""
    return bool(_servers([toolset]))


_held: "WeakKeyDictionary[AnyToolset, Remote]" = WeakKeyDictionary()


def _kept(leaf: AnyToolset) -> AnyToolset:
    if isinstance(leaf, Remote) or not _is_mcp(type(leaf)):
        return leaf
    found = _held.get(leaf)
    if found is None:
        known = cast("MCPToolset[Any]", leaf)
        found = Remote(known.id or known.label, lambda: known)
        _held[leaf] = found
    return found


@lru_cache(maxsize=256)
def _is_mcp(kind: type[AnyToolset]) -> bool:
    # By name, so that an unused class is not imported.
    return ("pydantic_ai.mcp", "MCPToolset") in [(c.__module__, c.__name__) for c in kind.__mro__]


def _servers(toolsets: Iterable[AnyToolset]) -> list[Remote]:
    leaves: list[AnyToolset] = []
    for toolset in toolsets:
        toolset.apply(leaves.append)
    held = [_kept(each) for each in leaves]
    return list(dict.fromkeys([each for each in held if isinstance(each, Remote)]))


async def _linked(toolset: "MCPToolset[Any]") -> _Link:
    await toolset.__aenter__()
    try:
        listed = await toolset.list_tools()
    except BaseException:
        await toolset.__aexit__(None, None, None)
        raise
    reasons = {each.name: unusable(each.input_schema) for each in listed}
    return _Link(toolset, {name: why for name, why in reasons.items() if why is not None})


def _toolset(transport: "ClientTransport", timeout: float) -> "MCPToolset[Any]":
    from pydantic_ai.mcp import MCPToolset

    return MCPToolset[Any](
        transport, tool_error_behavior="error", init_timeout=timeout, read_timeout=timeout
    )


def _process(command: str, args: Sequence[str], env: dict[str, str] | None) -> "ClientTransport":
    from fastmcp.client.transports import StdioTransport

    # The process ends with the connection.
    return StdioTransport(command, list(args), env=env, keep_alive=False)


def _web(way: Transport, url: str, headers: dict[str, str] | None) -> "ClientTransport":
    from fastmcp.client.transports import SSETransport, StreamableHttpTransport

    make = SSETransport if way == "sse" else StreamableHttpTransport
    return make(url, headers=headers)


def _guessed(url: str | None) -> Transport:
    if url is None:
        return "stdio"
    return "sse" if url.rstrip("/").endswith("/sse") else "streamable-http"


def _is_shown(tool: str, include: Sequence[str] | None, exclude: Sequence[str] | None) -> bool:
    if any(fnmatchcase(tool, each) for each in exclude or ()):
        return False
    return include is None or any(fnmatchcase(tool, each) for each in include)


def _unreachable(name: str, error: str, agent: str | None = None) -> NotRunnable:
    return NotRunnable(
        f"The MCP server {name} cannot be reached: {error}.",
        agent=agent,
        next="Start it, or do without: required=False.",
    )
