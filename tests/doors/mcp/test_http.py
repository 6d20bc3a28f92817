"""Hosts over HTTP: how owners are named, what is refused, and what is noticed."""

import asyncio
import json
import logging
import threading
from functools import partial

import httpx2
import pytest
from doors.mcp.hosting import LISTED, Notices, parsed, text_of
from doors.mcp.web import (
    AGENTS,
    ARGUMENTS,
    EVERY,
    INITIALIZE,
    JSON_OR_STREAM,
    MODERN,
    PING,
    READ,
    STORES,
    USERS,
    connected,
    key,
    modern,
    post,
    tools,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "query",
    ["user=ada&agent=scout&store=Notes&profile=full", "user=ada&agent=scout", "user=ada", ""],
)
@pytest.mark.parametrize("where", ["header", "address", "both"])
async def test_owners_are_named_by_header_or_address(
    shared_url: str, mode: str, query: str, where: str
) -> None:
    named = dict(pair.split("=") for pair in query.split("&") if pair)
    headers = {f"Holdfast-{name.title()}": value for name, value in named.items()}
    expected = [
        *(USERS if "user" in named else []),
        *(AGENTS if "agent" in named else []),
        *(STORES if "store" in named else []),
    ]
    async with connected(
        shared_url,
        query if where != "header" else "",
        mode,
        headers=headers if where != "address" else None,
    ) as client:
        assert await tools(client) == expected


async def test_without_an_owner_the_instructions_say_how_to_name_one(
    shared_url: str, mode: str
) -> None:
    async with connected(shared_url, mode=mode) as client:
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
    shared_url: str, query: str, headers: dict[str, str]
) -> None:
    answer = post(f"{shared_url}?{query}", **headers)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "hf_secret" not in answer.text


async def test_read_only_in_the_address_lists_only_what_reads(shared_url: str) -> None:
    async with connected(shared_url, f"{EVERY}&read_only=true") as client:
        assert set(await tools(client)) == READ


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


def test_a_body_that_is_not_json_is_refused(shared_url: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert post(shared_url, content_type=kind).status_code in {400, 415}
    assert post(shared_url, b"{").status_code == 400
    assert post(shared_url, b"\xff\xfe").status_code == 400
    assert post(shared_url, [INITIALIZE]).status_code == 400


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_deep_body_is_refused_and_the_server_goes_on(shared_url: str, depth: int) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * depth
    body = deep + b"1" + b"}" * (depth + 1)

    assert post(shared_url, body).status_code == 400
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}
    assert post(shared_url, body, **headers).status_code in {200, 400}
    assert modern(shared_url, "tools/list").status_code == 200


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_each_revision_with_a_handshake_is_spoken(shared_url: str, version: str) -> None:
    params = {**INITIALIZE["params"], "protocolVersion": version}
    opened = post(shared_url, {**INITIALIZE, "params": params})
    result = opened.json()["result"]
    assert result["protocolVersion"] == version

    headers = {
        "mcp_session_id": opened.headers["mcp-session-id"],
        "mcp_protocol_version": version,
    }
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    answer = post(f"{shared_url}?store=Notes", listing, **headers)
    assert [each["name"] for each in answer.json()["result"]["tools"]] == ["memory"]


async def test_a_server_offers_tools_prompts_and_resources_and_nothing_else(
    shared_url: str, mode: str
) -> None:
    async with connected(shared_url, EVERY, mode) as client:
        offered = client.server_capabilities.model_dump(exclude_none=True, exclude_unset=True)
    assert set(offered) - {"experimental"} == {"tools", "prompts", "resources"}
    assert not offered.get("experimental")
    assert offered["tools"] == offered["prompts"] == {"list_changed": False}
    assert offered["resources"] == {"subscribe": True, "list_changed": True}


async def test_the_access_log_has_no_owner_and_no_argument(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    mark = "xyzzy"
    with caplog.at_level(logging.INFO, logger="holdfast"):
        session = post(f"{url}?user={mark}").headers["mcp-session-id"]
        call = {"name": "ltm_remember", "arguments": {"text": mark}}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        answer = post(f"{url}?user={mark}", body, mcp_session_id=session)
        # A request is logged once its response has been sent.
        async with asyncio.timeout(60):
            while len(logged := access_log(caplog)) < 2:
                await asyncio.to_thread(threading.Event().wait, 0.01)
    assert not answer.json()["result"]["isError"]
    assert [each.rsplit(" ", 2)[0] for each in logged] == ["POST /mcp 200", "POST /mcp 200"]
    assert mark not in caplog.text


def access_log(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "holdfast.access"]


def test_a_body_of_more_than_a_mebibyte_is_refused(shared_url: str) -> None:
    assert post(shared_url, b" " * (1_048_576 + 1)).status_code == 413
    filled = json.dumps(INITIALIZE).encode()
    assert post(shared_url, filled + b" " * (1_048_576 - len(filled))).status_code == 200


def test_other_methods_and_streams_without_a_session_are_refused(shared_url: str) -> None:
    assert httpx2.get(shared_url, headers=JSON_OR_STREAM).status_code in {400, 405}
    assert httpx2.put(shared_url, headers=JSON_OR_STREAM).status_code == 405
    assert post(shared_url, PING).status_code == 400


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


async def test_a_call_has_the_same_result_in_both_eras(shared_url: str) -> None:
    found = list[list[object]]()
    for mode in ("legacy", "auto"):
        async with connected(shared_url, EVERY, mode) as client:
            listed = [each.model_dump() for each in (await client.list_tools()).tools]
            result = await client.call_tool("memory_search", ARGUMENTS["memory_search"])
            found.append([*listed, text_of(result)])
            assert parsed(text_of(result)) == result.structured_content
    assert found[0] == found[1]
