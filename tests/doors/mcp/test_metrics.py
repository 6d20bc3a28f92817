"""Metrics and spans of requests: methods, outcomes and codes, and no argument."""

import pytest
from doors.mcp.hosting import NOTES, done, hosted, refused
from mcp import Client
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from holdfast.doors.mcp.changes import ChangeHub, feed_of
from holdfast.doors.mcp.owners import HostMemories
from holdfast.doors.mcp.server import REQUESTS, CallLimit, MemoryServer, host_of
from holdfast.doors.mcp.stdio import Calls
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

MARK = "xyzzy"


async def test_requests_are_counted_by_method_and_outcome(client: Client) -> None:
    def counts() -> dict[str, float]:
        return {outcome: REQUESTS.value("tools/call", outcome) for outcome in OUTCOMES}

    before = counts()
    await client.call_tool("memory", {"command": "view", "path": "/memories"})
    await refused(client, "memory", command="view", path="/memories/none.md")
    with pytest.raises(MCPError):
        await client.call_tool(MARK, {})

    assert counts() == {outcome: number + 1 for outcome, number in before.items()}
    assert MARK not in "\n".join(REGISTRY.lines("holdfast"))


OUTCOMES = ("ok", "tool_error", "error")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("test"))
    return exporter


async def test_spans_hold_no_arguments(
    spans: InMemorySpanExporter, hf: Holdfast, mode: str
) -> None:
    async with hosted(hf, NOTES, mode) as client:
        await client.call_tool("ltm_remember", {"text": MARK})
        await client.call_tool("ltm_recall", {"query": MARK})
        await refused(client, "ltm_recall", query={MARK: MARK})
        await refused(client, "memory", command="view", path=f"/memories/{MARK}")
        await client.get_prompt("recall", {"topic": MARK})
        for uri in (f"holdfast://stores/{MARK}/a.md", f"file:///{MARK}"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert MARK in caught.value.error.message
        with pytest.raises(MCPError):
            await client.list_resources(cursor=MARK)
        with pytest.raises(MCPError):
            await client.get_prompt("recall", {MARK: "x", "topic": "x"})

    found = [span for span in spans.get_finished_spans() if span.kind is SpanKind.SERVER]
    assert {"tools/call ltm_recall", "resources/read"} <= {span.name for span in found}
    assert MARK not in "".join(span.to_json() for span in found)


async def test_calls_beyond_the_most_in_flight_are_refused(hf: Holdfast) -> None:
    calls, limit = Calls(), CallLimit(1)
    host = host_of(HostMemories(hf, NOTES), limit=limit)
    served = MemoryServer(lambda _: host, calls.run, ChangeHub(feed_of(hf), calls.run))
    async with Client(served.server) as client:
        assert limit.begin()
        assert "Try again" in await refused(client, "ltm_recall", query="tea")
        limit.end()
        for _ in range(3):
            assert (await done(client, "ltm_recall", query="tea"))["count"] == 0
    assert calls.finish(60)
