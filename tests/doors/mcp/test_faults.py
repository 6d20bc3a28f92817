"""Faults of a host, a model or ours: wrong arguments, slow and cancelled calls, and exceptions."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NoReturn

import mcp_types as types
import msgspec
import pytest
from doors.mcp.hosting import NOTES, done, hosted, parsed, served, text_of
from mcp import Client
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.doors.mcp.host_tool import HostTool
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.resources import HostResources
from holdfast.doors.mcp.server import CALLS_MOST, REQUESTS, Host, HostPrompts, host_of
from holdfast.doors.mcp.tools import HINTS
from holdfast.ground.errors import EngineFault
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import JSON, Tool, told

pytestmark = pytest.mark.anyio

MARK = "xyzzy"
FULL = Owners(user="ada", agent="scout", store="Notes", profile="full")
GRAPHS = Owners(store="Notes", profile="graph")


def with_work(host: Host, work: Callable[[object], JSON]) -> Host:
    """Return *host* with *work* behind its tool `ltm_recall`."""
    known = host.tools.by_name["ltm_recall"]
    tool = Tool(
        id="test", name="ltm_recall", description="", parameters=known.tool.parameters, work=work
    )
    host.tools.by_name["ltm_recall"] = HostTool(tool=tool, hints=HINTS["ltm_recall"])
    return host


class Broken(HostResources):
    """Resources whose text cannot be read."""

    def read(self, uri: str) -> NoReturn:
        """Fail."""
        raise ValueError(f"{MARK}: {uri}")


class BrokenPrompts(HostPrompts):
    """Prompts that cannot be made."""

    def get(self, name: str, arguments: Mapping[str, str]) -> NoReturn:
        """Fail."""
        raise KeyError(MARK, name, dict(arguments))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("test"))
    return exporter


FAULTS: list[Exception] = [
    RuntimeError(MARK),
    ValueError(MARK),
    UnicodeError(MARK),
    EngineFault(f"The statement failed: {MARK}.", statement=MARK),
]


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
async def test_the_text_of_an_exception_is_in_no_answer_span_or_log(
    hf: Holdfast,
    mode: str,
    error: Exception,
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: object) -> JSON:
        raise error

    host, counted = with_work(host_of(HostMemories(hf, NOTES)), fail), REQUESTS
    before = counted.value("tools/call", "error")
    async with served(hf, host, mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("ltm_recall", {"query": "tea"})
        assert await done(client, "ltm_remember", text="Ada drinks tea.")

    assert caught.value.error.code == types.INTERNAL_ERROR
    assert caught.value.error.message == "The server has failed. Try again, or report it."
    assert counted.value("tools/call", "error") == before + 1
    assert MARK not in "".join(span.to_json() for span in spans.get_finished_spans())
    assert MARK not in caplog.text
    assert type(error).__name__ in caplog.text


async def test_a_fault_that_a_tool_reports_is_an_error_of_the_protocol(
    hf: Holdfast, mode: str
) -> None:
    fault = told(EngineFault(MARK))
    host = with_work(host_of(HostMemories(hf, NOTES)), lambda _: fault)
    async with served(hf, host, mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("ltm_recall", {"query": "tea"})
    assert caught.value.error.code == types.INTERNAL_ERROR
    assert MARK not in caught.value.error.message


async def test_a_fault_in_resources_or_prompts_is_answered_without_its_text(
    hf: Holdfast, mode: str, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    memories = HostMemories(hf, NOTES)
    broken = msgspec.structs.replace(
        host_of(memories), resources=Broken(memories), prompts=BrokenPrompts(memories)
    )
    async with served(hf, broken, mode) as client:
        for fault in (
            client.read_resource("holdfast://longterm/ada"),
            client.list_resources(),
            client.get_prompt("recall", {"topic": "tea"}),
        ):
            with pytest.raises(MCPError) as caught:
                await fault
            assert caught.value.error.code == types.INTERNAL_ERROR
            assert MARK not in caught.value.error.message
        assert (await client.list_prompts()).prompts

    assert MARK not in "".join(span.to_json() for span in spans.get_finished_spans())
    assert MARK not in caplog.text


async def test_a_slow_call_delays_no_ping_and_no_other_call(hf: Holdfast) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> JSON:
        begun.set()
        assert go_on.wait(60)
        return {"results": [], "count": 0, "mode": "words"}

    host = with_work(host_of(HostMemories(hf, NOTES)), wait)
    async with served(hf, host, "legacy") as client:
        slow = asyncio.ensure_future(client.call_tool("ltm_recall", {"query": "tea"}))
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            await client.session.send_request(types.PingRequest(), types.EmptyResult)
            assert (await done(client, "ltm_remember", text="Ada drinks tea."))["stored"]
            assert not slow.done()
        finally:
            go_on.set()
        assert text_of(await slow)


async def test_a_credential_has_64_calls_in_flight_and_more_are_refused(
    hf: Holdfast, mode: str
) -> None:
    go_on, more = threading.Event(), 8

    def wait(_: object) -> JSON:
        assert go_on.wait(60)
        return {"results": [], "count": 0, "mode": "words"}

    host = with_work(host_of(HostMemories(hf, NOTES)), wait)
    async with served(hf, host, mode) as client:
        calls = [
            asyncio.ensure_future(client.call_tool("ltm_recall", {"query": "tea"}))
            for _ in range(CALLS_MOST + more)
        ]
        try:
            answered = asyncio.as_completed(calls, timeout=60)
            refusals = [text_of(await next(answered)) for _ in range(more)]
            assert (await client.list_tools(cache_mode="bypass")).tools
        finally:
            go_on.set()
        results = await asyncio.gather(*calls)

    assert CALLS_MOST == 64
    for each in refusals:
        error = parsed(each)["error"]
        assert (error["type"], error["next"]) == ("unavailable", "Try again in a moment.")
    assert sum(not each.is_error for each in results) == CALLS_MOST


WRONG: list[Any] = [None, True, 3, 2.5, "text", '{"a": 1}', [], [3], {}, {"a": {"b": 1}}]
"""Values of each type: those that do not fit an argument must be refused."""


async def wrong_calls(
    client: Client, tools: dict[str, types.Tool]
) -> AsyncGenerator[tuple[str, str, types.CallToolResult]]:
    """Call each tool with each argument of each type; yield tool, argument and result."""
    for name, tool in tools.items():
        properties = tool.input_schema["properties"]
        right = {each: VALUES[each] for each in tool.input_schema.get("required", ())}
        for argument in properties:
            for value in WRONG:
                result = await client.call_tool(name, {**right, argument: value})
                assert isinstance(result, types.CallToolResult)
                yield name, argument, result


MORE = {"memory": ("path",)}
VALUES: dict[str, Any] = {
    "query": "tea",
    "text": "Ada drinks tea.",
    "id": "item_none",
    "key": "target",
    "category": "core",
    "content": "fly.io",
    "command": "view",
    "path": "/memories",
    "version_id": "memver_none",
    "entities": [],
    "relations": [],
    "observations": [],
    "entityNames": [],
    "deletions": [],
    "names": [],
}


@pytest.mark.parametrize("owners", [FULL, GRAPHS], ids=["full", "graph"])
async def test_an_argument_of_another_type_is_refused_by_name_with_what_next(
    hf: Holdfast, owners: Owners
) -> None:
    answered, refusals = 0, dict[str, set[str]]()
    async with hosted(hf, owners) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        async for name, argument, result in wrong_calls(client, tools):
            answered += 1
            if not result.is_error:
                continue
            assert result.structured_content is None
            refusals.setdefault(name, set()).add(argument)
            if name == "memory":
                assert text_of(result)
                continue
            error = parsed(text_of(result))["error"]
            assert error["next"], (name, argument, error)
            assert error["message"], (name, argument, error)

    assert answered == sum(len(each.input_schema["properties"]) for each in tools.values()) * len(
        WRONG
    )
    for name, tool in tools.items():
        if name != "memory":
            assert refusals.get(name, set()) == set(tool.input_schema["properties"]), name


@pytest.mark.parametrize("owners", [FULL, GRAPHS], ids=["full", "graph"])
async def test_an_argument_that_is_unknown_is_refused(hf: Holdfast, owners: Owners) -> None:
    async with hosted(hf, owners) as client:
        for tool in (await client.list_tools()).tools:
            required = tool.input_schema.get("required", ())
            right = {each: VALUES[each] for each in (*required, *MORE.get(tool.name, ()))}
            result = await client.call_tool(tool.name, {**right, "colour": "red"})
            assert isinstance(result, types.CallToolResult)
            assert result.is_error, tool.name
            assert "colour" in text_of(result)


@pytest.mark.parametrize(
    ("name", "arguments", "form"),
    [
        ("ltm_recall", {"query": "tea", "k": "5"}, "int"),
        ("memory_list", {"filter": '{"category": "core"}'}, "object"),
        ("memory_store", {**VALUES, "tags": '["a"]'}, "array"),
    ],
)
async def test_json_in_a_string_is_refused_with_the_form_that_is_wanted(
    hf: Holdfast, name: str, arguments: dict[str, Any], form: str
) -> None:
    known = {"memory_store": {"key", "category", "content", "tags"}}.get(name, set(arguments))
    async with hosted(hf, FULL) as client:
        result = await client.call_tool(name, {k: v for k, v in arguments.items() if k in known})
    assert isinstance(result, types.CallToolResult)
    assert form in parsed(text_of(result))["error"]["message"]
