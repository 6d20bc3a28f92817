"""The same requests over stdio and over HTTP, in both eras, have the same answers."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from doors.mcp.hosting import GRAPH, parsed, text_of
from doors.mcp.process import HostProcess, parameters, started
from doors.mcp.web import ALL, ARGUMENTS, EVERY, INITIALIZE, JSON_OR_STREAM, META, MODERN, filled
from mcp import Client
from served import TLS

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

Request = tuple[str, dict[str, Any]]
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that a request of the modern era repeats in a header, by method."""


def requests_of(store: str) -> list[Request]:
    """Return requests whose answers do not depend on the time, on the owners of `EVERY`."""
    tools: list[Request] = [
        ("ltm_recall", {"query": "bicycle"}),
        ("ltm_recall", {"query": 5}),
        ("ltm_remember", {"text": "Ada drinks tea."}),
        ("ltm_forget", {"id": "item_none"}),
        ("memory_recall", {"key": "target"}),
        ("memory_recall", {"key": "none"}),
        ("memory_list", {}),
        ("memory_store", {"key": "target", "category": "core", "content": ""}),
        ("memory_forget", {"key": "none"}),
        ("memory", {"command": "view", "path": "/memories"}),
        ("memory", {"command": "view", "path": "/memories/a.md"}),
        ("memory", {"command": "fly", "path": "/memories/a.md"}),
        ("memory_search", {"query": "tabs"}),
        ("memory_history", {"path": "/memories/a.md"}),
        ("memory_restore", {"version_id": "memver_none"}),
        ("unknown", {}),
    ]
    uris = [
        "holdfast://longterm/ada",
        "holdfast://durable/scout",
        f"holdfast://stores/{store}",
        f"holdfast://stores/{store}/a.md",
        "holdfast://longterm/eve",
    ]
    prompts: list[Request] = [
        ("recall", {"topic": "tea"}),
        ("briefing", {}),
        ("keep", {"what": "tea"}),
        ("other", {}),
    ]
    return [
        *((f"{each}/list", {}) for each in ("tools", "prompts", "resources/templates")),
        ("resources/list", {}),
        ("resources/list", {"cursor": "x"}),
        *(("tools/call", {"name": name, "arguments": given}) for name, given in tools),
        *(("resources/read", {"uri": uri}) for uri in uris),
        *(("prompts/get", {"name": name, "arguments": given}) for name, given in prompts),
        ("completion/complete", {}),
    ]


class HttpClient:
    """Requests of one era over HTTP."""

    def __init__(self, url: str, mode: str) -> None:
        self._url, self._modern = url, mode == "auto"
        self._headers = dict(JSON_OR_STREAM)
        if not self._modern:
            answer = self._post(INITIALIZE, self._headers)
            self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    def _post(self, body: object, headers: dict[str, str]) -> httpx2.Response:
        return httpx2.post(self._url, json=body, headers=headers, timeout=60, verify=TLS)

    def answer(self, id: int, method: str, params: dict[str, Any]) -> str:
        """Return the text of the response."""
        headers = dict(self._headers)
        if self._modern:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if method in NAMED:
                headers["mcp-name"] = params[NAMED[method]]
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        answer = self._post(request, headers)
        assert answer.headers["content-type"].startswith("application/json")
        return answer.text


@contextmanager
def both(tmp_path: Path, mode: str) -> Generator[tuple[HostProcess, HttpClient, str]]:
    """Serve one database over stdio and over HTTP; yield both, and the id of the store."""
    target = str(tmp_path / "holdfast.db")
    arguments = ["--db", target, "--agent", "scout", "--profile", "full"]
    with holdfast.open(target) as hf:
        store = filled(hf)
        with (
            started(tmp_path, arguments, shaken=mode == "legacy") as host,
            serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url,
        ):
            yield host, HttpClient(f"{url}/mcp?{EVERY}", mode), store


def test_stdio_and_http_give_the_same_bytes_for_the_same_request(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    with both(tmp_path, mode) as (host, http, store):
        for method, params in requests_of(store):
            sent = params if mode == "legacy" else {**params, "_meta": META}
            id = host.begin(method, sent)
            line = host.receive_line().decode().strip()
            answer = http.answer(id, method, sent)
            assert parsed(answer)["id"] == id
            # The SDK writes the modern era's messages over HTTP with another encoder.
            assert answer == (line if mode == "legacy" else as_ascii(line)), (method, params)


def as_ascii(line: str) -> str:
    """Return *line* of JSON with its members in their order, and other characters escaped."""
    return json.dumps(json.loads(line), separators=(",", ":"))


NOTE = {"path": "/memories/a.md"}
GRAPH_CALLS: dict[str, dict[str, Any]] = {
    "create_entities": {
        "entities": [{"name": "Ada", "entityType": "person", "observations": ["writes"]}]
    },
    "create_relations": {"relations": [{"from": "Ada", "to": "Ada", "relationType": "is"}]},
    "add_observations": {"observations": [{"entityName": "Ada", "contents": ["sings"]}]},
    "search_nodes": {"query": "sings"},
    "open_nodes": {"names": ["Ada"]},
    "read_graph": {},
    "delete_observations": {"deletions": [{"entityName": "Ada", "observations": ["sings"]}]},
    "delete_relations": {"relations": [{"from": "Ada", "to": "Ada", "relationType": "is"}]},
    "delete_entities": {"entityNames": ["Ada"]},
}


@pytest.mark.parametrize("profile", ["full", "graph"])
async def test_each_tool_resource_and_prompt_is_reached_over_stdio(
    tmp_path: Path, mode: str, profile: str
) -> None:
    target = str(tmp_path / "holdfast.db")
    with holdfast.open(target) as hf:
        store = filled(hf)
        version = hf.memory_stores.memory_versions.list(store).data[0].id
    more = ["--agent", "scout"] if profile == "full" else []
    calls = {**ARGUMENTS, "memory_restore": {"version_id": version}}
    calls["memory"] = {"command": "insert", "insert_line": 0, "insert_text": "x", **NOTE}
    calls = calls if profile == "full" else GRAPH_CALLS
    server = parameters(tmp_path, "--db", target, "--profile", profile, *more)

    async with Client(server, mode=mode) as client:
        tools = [each.name for each in (await client.list_tools()).tools]
        for name, arguments in calls.items():
            result = await client.call_tool(name, arguments)
            assert isinstance(result, types.CallToolResult)
            assert not result.is_error, text_of(result)
            if name == "memory_restore":
                history = await client.call_tool("memory_history", NOTE)
                assert '"by":"user_ada"' in text_of(history)
        resources = (await client.list_resources()).resources
        for each in resources:
            assert (await client.read_resource(each.uri)).contents
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        for name in prompts:
            given = {"topic": "tea"} if name == "recall" else {}
            assert (await client.get_prompt(name, given)).messages

    assert sorted(tools) == sorted(calls) == sorted(ALL if profile == "full" else GRAPH)
    assert len(resources) == (4 if profile == "full" else 1)
    assert prompts == (["recall", "briefing", "keep"] if profile == "full" else [])
