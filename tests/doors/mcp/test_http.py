"""Hosts over HTTP: owners, rights, sessions, and what is refused."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import httpx2
import mcp_types as types
import pytest
from doors.mcp.hosting import LISTED, Notices, done, parsed, refused, text_of
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

JSON_OR_STREAM = {"accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
EVERY = "user=ada&agent=scout&store=Notes&profile=full"
USERS = ["ltm_recall", "ltm_remember", "ltm_forget"]
AGENTS = ["memory_store", "memory_recall", "memory_list", "memory_forget"]
STORES = ["memory", "memory_search", "memory_history", "memory_restore"]
READ = {"ltm_recall", "memory_recall", "memory_list", "memory", "memory_search", "memory_history"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ltm_recall": {"query": "tea"},
    "ltm_remember": {"text": "Ada has a dog."},
    "ltm_forget": {"id": "item_none"},
    "memory_store": {"key": "other", "category": "core", "content": "x"},
    "memory_recall": {"key": "target"},
    "memory_list": {},
    "memory_forget": {"key": "target"},
    "memory": {"command": "view", "path": "/memories/a.md"},
    "memory_search": {"query": "tabs"},
    "memory_history": {"path": "/memories/a.md"},
    "memory_restore": {"version_id": "memver_none"},
}


@pytest.fixture
def hf(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    return hf


@pytest.fixture
def url(hf: Holdfast) -> Iterator[str]:
    with serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url:
        yield f"{url}/mcp"


@pytest.fixture
def store(hf: Holdfast) -> str:
    """Fill each memory with one text, and return the store's id."""
    store = hf.memory_stores.create(name="Notes").id
    hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
    hf.durable("scout").set("target", "fly.io", category="core")
    ltm = hf.longterm("ada")
    assert ltm is not None
    ltm.remember("Ada drinks tea.")
    return store


def key(hf: Holdfast, **more: Any) -> str:
    return str(hf.keys.create("k", **more).secret)


def token(hf: Holdfast, *stores: str, access: str = "read_write") -> str:
    resources = [
        {"type": "memory_store", "memory_store_id": each, "access": access} for each in stores
    ]
    session = hf.sessions.create(agent="a", environment_id="e", resources=resources).id
    return str(hf.sessions.create_token(session).token)


@asynccontextmanager
async def connected(
    url: str,
    query: str = "",
    mode: str = "auto",
    *,
    secret: str | None = None,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """Connect a client to the server at *url*."""
    sent = dict(headers or {})
    if secret is not None:
        sent["authorization"] = f"Bearer {secret}"
    async with httpx2.AsyncClient(headers=sent, timeout=60) as http:
        transport = streamable_http_client(f"{url}?{query}" if query else url, http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def post(url: str, body: object = INITIALIZE, **headers: str) -> httpx2.Response:
    """Send one request; names of *headers* have underscores, and bytes are sent as they are."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", **JSON_OR_STREAM, **names}
    return httpx2.post(url, content=content, headers=sent, timeout=60)


META = {
    PROTOCOL_VERSION_META_KEY: MODERN,
    CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {},
}


def modern(url: str, method: str, **headers: str) -> httpx2.Response:
    """Send a request of the modern era, which needs no session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}}
    return post(url, body, mcp_protocol_version=MODERN, mcp_method=method, **headers)


async def tools(client: Client) -> list[str]:
    return [each.name for each in (await client.list_tools()).tools]


@pytest.mark.parametrize(
    "query",
    ["user=ada&agent=scout&store=Notes&profile=full", "user=ada&agent=scout", "user=ada", ""],
)
@pytest.mark.parametrize("where", ["header", "address", "both"])
async def test_owners_are_named_by_header_or_address(
    url: str, mode: str, query: str, where: str
) -> None:
    named = dict(pair.split("=") for pair in query.split("&") if pair)
    headers = {f"Holdfast-{name.title()}": value for name, value in named.items()}
    expected = [
        *(USERS if "user" in named else []),
        *(AGENTS if "agent" in named else []),
        *(STORES if "store" in named else []),
    ]
    async with connected(
        url,
        query if where != "header" else "",
        mode,
        headers=headers if where != "address" else None,
    ) as client:
        assert await tools(client) == expected


async def test_without_an_owner_the_instructions_say_how_to_name_one(url: str, mode: str) -> None:
    async with connected(url, mode=mode) as client:
        assert await tools(client) == []
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []
        assert client.instructions is not None
        assert "Holdfast-User" in client.instructions


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("user=ada", {"holdfast_user": "eve"}),
        ("user=ada&user=eve", {}),
        ("user=ada&colour=red", {}),
        ("api_key=hf_secret", {}),
        ("authorization=Bearer+hf_secret", {}),
        ("profile=everything", {}),
        ("", {"holdfast_profile": "everything"}),
        ("read_only=perhaps", {}),
        ("user=a%0Ab", {}),
        ("agent=" + "a" * 300, {}),
    ],
)
def test_owners_that_are_named_wrongly_are_refused(
    url: str, query: str, headers: dict[str, str]
) -> None:
    answer = post(f"{url}?{query}", **headers)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "hf_secret" not in answer.text


@pytest.mark.usefixtures("store")
async def test_read_only_in_the_address_lists_only_what_reads(url: str) -> None:
    async with connected(url, f"{EVERY}&read_only=true") as client:
        assert set(await tools(client)) == READ


class Caller(NamedTuple):
    """A credential, the owners it names, and the tools and resources it reaches.

    The credential is a key, with the options of its creation, or the token of a session with an
    access to the store; or there is none.
    """

    query: str
    tools: list[str]
    resources: set[str]
    key: dict[str, str] | None = None
    access: str | None = None

    def secret(self, hf: Holdfast, store: str) -> str | None:
        if self.access is not None:
            return token(hf, store, access=self.access)
        return None if self.key is None else key(hf, **self.key)


ALL = [*USERS, *AGENTS, *STORES]
KINDS = {"store", "note", "durable", "longterm"}
NOTES = {"store", "note"}
CALLERS = {
    "open": Caller(EVERY, ALL, KINDS),
    "admin": Caller(EVERY, ALL, KINDS, {"scope": "admin"}),
    "write": Caller(EVERY, ALL, KINDS, {"scope": "write"}),
    "read": Caller(EVERY, [each for each in ALL if each in READ], KINDS, {"scope": "read"}),
    "user": Caller("profile=full", USERS, {"longterm"}, {"user": "ada"}),
    "user read": Caller("", ["ltm_recall"], {"longterm"}, {"scope": "read", "user": "ada"}),
    "agent": Caller("agent=scout", AGENTS, {"durable"}, {"agent": "scout"}),
    "session": Caller("profile=full", STORES, NOTES, access="read_write"),
    "session read-only": Caller("profile=full", STORES[:3], NOTES, access="read_only"),
}


@pytest.mark.parametrize("caller", CALLERS)
async def test_each_caller_reaches_the_tools_and_resources_of_its_rights(
    hf: Holdfast, url: str, store: str, mode: str, caller: str
) -> None:
    allowed, kinds = CALLERS[caller].tools, CALLERS[caller].resources
    uris = {
        "store": f"holdfast://stores/{store}",
        "note": f"holdfast://stores/{store}/a.md",
        "durable": "holdfast://durable/scout",
        "longterm": "holdfast://longterm/ada",
    }

    secret = CALLERS[caller].secret(hf, store)

    async with connected(url, CALLERS[caller].query, mode, secret=secret) as client:
        assert await tools(client) == allowed
        listed = {each.uri for each in (await client.list_resources()).resources}
        assert listed == {uris[kind] for kind in kinds}

        for kind, uri in uris.items():
            if kind in kinds:
                assert (await client.read_resource(uri)).contents
            else:
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
        for name, arguments in ARGUMENTS.items():
            if name in allowed:
                await client.call_tool(name, arguments)
            else:
                with pytest.raises(MCPError) as caught:
                    await client.call_tool(name, arguments)
                assert caught.value.error.code == types.INVALID_PARAMS
        if "memory" in allowed and "memory_restore" not in allowed:
            await refused(client, "memory", command="create", path="/memories/b.md", file_text="")
            assert hf.memory_stores.memories.at(store, "/b.md") is None


@pytest.mark.parametrize(
    ("caller", "query"),
    [
        ("user", "user=eve"),
        ("user", "agent=scout"),
        ("user", "store=Notes"),
        ("user", "profile=graph"),
        ("agent", "agent=other"),
        ("agent", "user=ada"),
        ("session", "user=ada"),
        ("session", "agent=scout"),
        ("session", "store=Other"),
    ],
)
def test_another_owner_than_the_credentials_is_forbidden(
    hf: Holdfast, url: str, store: str, caller: str, query: str
) -> None:
    hf.memory_stores.create(name="Other")
    secret = CALLERS[caller].secret(hf, store)

    answer = post(f"{url}?{query}", authorization=f"Bearer {secret}")

    assert answer.status_code == 403


def test_a_key_of_another_workspace_reaches_nothing_here(hf: Holdfast, url: str) -> None:
    secret = key(hf, workspace="theirs")
    answer = post(url, authorization=f"Bearer {secret}", anthropic_workspace_id="default")
    assert answer.status_code == 403


async def test_a_key_of_another_workspace_sees_its_own(hf: Holdfast, url: str, store: str) -> None:
    async with connected(url, EVERY, secret=key(hf, workspace="theirs")) as client:
        with pytest.raises(MCPError):
            await client.read_resource(f"holdfast://stores/{store}/a.md")
        assert (await done(client, "ltm_recall", query="tea"))["results"] == []


async def test_a_session_of_several_stores_names_one(hf: Holdfast, url: str, store: str) -> None:
    other = hf.memory_stores.create(name="Other").id
    secret = token(hf, store, other)

    answer = post(url, authorization=f"Bearer {secret}")
    assert answer.status_code == 400
    assert "Notes" in answer.text
    assert "Other" in answer.text

    async with connected(url, "store=Notes", secret=secret) as client:
        result = await client.call_tool("memory", ARGUMENTS["memory"])
        assert isinstance(result, types.CallToolResult)
        assert "tabs" in text_of(result)
    async with connected(url, f"store={other}", secret=secret) as client:
        await refused(client, "memory", **ARGUMENTS["memory"])


async def test_a_session_without_a_store_has_no_tools(hf: Holdfast, url: str) -> None:
    async with connected(url, secret=token(hf)) as client:
        assert await tools(client) == []


@pytest.mark.usefixtures("store")
async def test_a_recall_by_a_key_that_only_reads_leaves_no_mark(hf: Holdfast, url: str) -> None:
    async def recalls(scope: str) -> int:
        async with connected(url, "user=ada", secret=key(hf, scope=scope)) as client:
            assert (await done(client, "ltm_recall", query="tea"))["count"] == 1
            await client.get_prompt("recall", {"topic": "tea"})
        ltm = hf.longterm("ada")
        assert ltm is not None
        ltm.flush()
        return ltm.list("items").data[0].access_count

    assert await recalls("read") == 0
    assert await recalls("write") == 2


async def test_long_term_memory_needs_its_switch(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")
    async with connected(url, "user=ada&store=Notes") as client:
        assert await tools(client) == ["memory"]
        assert client.instructions is not None
        assert "HOLDFAST_LTM_ENABLED=0" in client.instructions


def open_session(url: str, secret: str) -> str:
    answer = post(url, authorization=f"Bearer {secret}")
    assert answer.status_code == 200
    return answer.headers["mcp-session-id"]


PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


def test_a_session_belongs_to_the_credential_that_opened_it(hf: Holdfast, url: str) -> None:
    one, two = key(hf), key(hf)
    session = open_session(url, one)

    def status(secret: str, session: str, method: Callable[..., httpx2.Response] = post) -> int:
        return method(
            url, PING, authorization=f"Bearer {secret}", mcp_session_id=session
        ).status_code

    assert status(one, session) == 200
    assert status(two, session) == status(two, "0" * 32) == 404
    headers = {"authorization": f"Bearer {two}", "mcp-session-id": session, **JSON_OR_STREAM}
    assert httpx2.delete(url, headers=headers).status_code == 404
    assert httpx2.get(url, headers=headers).status_code == 404
    assert status(one, session) == 200
    assert post(url, PING, mcp_session_id=session).status_code == 401


def test_a_revoked_key_is_refused_in_its_session(hf: Holdfast, url: str) -> None:
    key(hf)
    revoked = hf.keys.create("k")
    headers = {"authorization": f"Bearer {revoked.secret}"}
    headers["mcp_session_id"] = open_session(url, str(revoked.secret))
    hf.keys.revoke(revoked.id)

    assert post(url, PING, **headers).status_code == 401


async def test_the_open_streams_of_a_revoked_key_end(hf: Holdfast, url: str, mode: str) -> None:
    key(hf)
    revoked = hf.keys.create("k", scope="write")
    headers = {"authorization": f"Bearer {revoked.secret}", **JSON_OR_STREAM}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        if mode == "legacy":
            session = (await http.post(url, json=INITIALIZE)).headers["mcp-session-id"]
            request = http.stream("GET", url, headers={"mcp-session-id": session})
        else:
            request = http.stream("POST", url, json=LISTEN, headers=LISTEN_HEADERS)
        async with request as stream:
            assert stream.status_code == 200
            hf.keys.revoke(revoked.id)
            async with asyncio.timeout(60):
                async for _ in stream.aiter_bytes():
                    pass


LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"_meta": META, "notifications": {"resourcesListChanged": True}},
}
LISTEN_HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}


@pytest.mark.parametrize(
    "headers", [{}, {"x_api_key": "hf_made_up"}, {"authorization": "Bearer x"}]
)
def test_without_a_valid_key_the_answer_is_401(
    hf: Holdfast, url: str, headers: dict[str, str]
) -> None:
    key(hf)
    for answer in (post(url, **headers), modern(url, "tools/list", **headers)):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="holdfast"'


@pytest.mark.parametrize("name", ["oauth-protected-resource", "oauth-authorization-server"])
def test_there_is_no_authorization_server_to_find(hf: Holdfast, url: str, name: str) -> None:
    key(hf)
    base = url.removesuffix("/mcp")
    for path in (f"/.well-known/{name}", f"/.well-known/{name}/mcp"):
        assert httpx2.get(base + path).status_code == 404


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:1"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8420"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
    ],
)
def test_a_foreign_host_or_origin_is_refused(
    hf: Holdfast, url: str, headers: dict[str, str], status: int, *, keyed: bool
) -> None:
    secret = {"x_api_key": key(hf)} if keyed else {}
    assert post(url, **headers, **secret).status_code == status
    assert modern(url, "tools/list", **headers, **secret).status_code == status


def test_a_body_that_is_not_json_is_refused(url: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert post(url, content_type=kind).status_code in {400, 415}
    assert post(url, b"{").status_code == 400
    assert post(url, b"\xff\xfe").status_code == 400
    assert post(url, [INITIALIZE]).status_code == 400


def test_a_body_of_more_than_a_mebibyte_is_refused(url: str) -> None:
    assert post(url, b" " * (1_048_576 + 1)).status_code == 413
    filled = json.dumps(INITIALIZE).encode()
    assert post(url, filled + b" " * (1_048_576 - len(filled))).status_code == 200


def test_other_methods_and_streams_without_a_session_are_refused(url: str) -> None:
    assert httpx2.get(url, headers=JSON_OR_STREAM).status_code in {400, 405}
    assert httpx2.put(url, headers=JSON_OR_STREAM).status_code == 405
    assert post(url, PING).status_code == 400


async def test_changes_are_noticed_over_http(hf: Holdfast, url: str, store: str, mode: str) -> None:
    notices, note = Notices(), f"holdfast://stores/{store}/a.md"
    memories, memory = hf.memory_stores.memories, hf.memory_stores.memories.at(store, "/a.md")
    assert memory is not None
    async with (
        connected(url, "store=Notes", mode, message_handler=notices.receive) as client,
        notices.following(client, note),
    ):
        until = asyncio.ensure_future(notices.until(note))
        number = 0
        # A client of the handshake era opens its stream some time after it has connected.
        while not until.done():
            number += 1
            update = partial(memories.update, memory.id, memory_store_id=store)
            await asyncio.to_thread(update, content=f"text {number}")
            await asyncio.wait({until}, timeout=0.5)
        assert LISTED not in await until


@pytest.mark.usefixtures("store")
async def test_several_workers_serve_without_sessions(hf: Holdfast, mode: str) -> None:
    several = partial(HttpHosts, workers=2)
    with serving(hf, clock=SystemClock(), make_subapp=several) as base:
        url = f"{base}/mcp"
        assert "mcp-session-id" not in post(url).headers
        async with connected(url, EVERY, mode) as client:
            assert await tools(client) == ALL
            assert (await done(client, "ltm_recall", query="tea"))["count"] == 1
            resources = client.server_capabilities.resources
            assert resources is not None
            assert resources.subscribe is resources.list_changed is (mode == "auto")


@pytest.mark.usefixtures("store")
async def test_a_call_has_the_same_result_in_both_eras(url: str) -> None:
    found = list[list[object]]()
    for mode in ("legacy", "auto"):
        async with connected(url, EVERY, mode) as client:
            listed = [each.model_dump() for each in (await client.list_tools()).tools]
            result = await client.call_tool("memory_search", ARGUMENTS["memory_search"])
            found.append([*listed, text_of(result)])
            assert parsed(text_of(result)) == result.structured_content
    assert found[0] == found[1]
