"""Sessions over HTTP: how many, who uses them, when they and the streams of a key end."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import httpx2
import pytest
from doors.mcp.web import (
    ALL,
    ARGUMENTS,
    EVERY,
    INITIALIZE,
    JSON_OR_STREAM,
    META,
    MODERN,
    PING,
    connected,
    key,
    modern,
    post,
    token,
    tools,
)
from served import TLS

import holdfast
from holdfast.doors.mcp.http import SESSIONS, HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.ground.scope import LOCAL, Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import KeyScope
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio


def open_session(url: str, secret: str) -> str:
    answer = post(url, authorization=f"Bearer {secret}")
    assert answer.status_code == 200
    return answer.headers["mcp-session-id"]


class Visitor(NamedTuple):
    """The client of a server without keys."""

    actor: Actor = LOCAL
    scope: KeyScope = "admin"
    agent: str | None = None
    user: str | None = None
    session_id: str | None = None
    keyed: bool = False


class Door:
    """Requests to the hosts of a handle, without a network between."""

    def __init__(self, hosts: HttpHosts, hf: Holdfast) -> None:
        self._hosts, self._hf = hosts, hf

    async def request(
        self, body: object, session: str = "", method: str = "POST"
    ) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the response."""
        sent = {"content-type": "application/json", "mcp-session-id": session, **JSON_OR_STREAM}
        headers = [(name.encode(), value.encode()) for name, value in sent.items() if value]
        scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "raw_path": b"/mcp",
            "headers": headers,
            "query_string": b"store=Notes",
            "scheme": "http",
        }
        started: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.append(message)

        async def admitted() -> None:
            return

        await self._hosts.answer(
            scope, receive, send, principal=Visitor(), hf=self._hf, admitted=admitted
        )
        (start,) = started
        return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}


async def test_there_are_a_thousand_sessions_and_no_more(hf: Holdfast) -> None:
    async def run(work: Callable[[], Any]) -> Any:
        return work()

    hosts = HttpHosts(hf, run)
    door = Door(hosts, hf)
    async with hosts.running():
        sessions = list[str]()
        for _ in range(1_000):
            status, headers = await door.request(INITIALIZE)
            assert status == 200
            sessions.append(headers["mcp-session-id"])
        assert SESSIONS.value() == len(set(sessions)) == 1_000

        assert (await door.request(INITIALIZE))[0] == 503
        assert (await door.request(PING, sessions[0]))[0] == 200
        assert (await door.request(PING, sessions[-1]))[0] == 200

        assert (await door.request({}, sessions[0], "DELETE"))[0] == 200
        assert SESSIONS.value() == 999
        assert (await door.request(PING, sessions[0]))[0] == 404
        assert (await door.request(INITIALIZE))[0] == 200
    assert SESSIONS.value() == 0


async def test_an_idle_session_ends_and_is_no_longer_counted(hf: Holdfast) -> None:
    hosts = partial(HttpHosts, idle=0.05)
    with serving(hf, clock=SystemClock(), make_subapp=hosts) as base:
        session = post(f"{base}/mcp").headers["mcp-session-id"]
        await no_session_is_counted()
        assert post(f"{base}/mcp", PING, mcp_session_id=session).status_code == 404


async def test_a_session_that_is_refused_is_not_counted(url: str) -> None:
    refused = {**INITIALIZE, "method": "tools/list"}
    assert post(url, refused).status_code == 400
    await no_session_is_counted()


async def no_session_is_counted() -> None:
    async with asyncio.timeout(60):
        while SESSIONS.value():
            await asyncio.to_thread(threading.Event().wait, 0.01)


def test_a_session_belongs_to_the_credential_that_opened_it(hf: Holdfast, url: str) -> None:
    one, two = key(hf), key(hf)
    session = open_session(url, one)

    def status(secret: str, session: str) -> int:
        headers = {"authorization": f"Bearer {secret}", "mcp_session_id": session}
        return post(url, PING, **headers).status_code

    assert status(one, session) == 200
    assert status(two, session) == status(two, "0" * 32) == 404
    headers = {"authorization": f"Bearer {two}", "mcp-session-id": session, **JSON_OR_STREAM}
    assert httpx2.delete(url, headers=headers).status_code == 404
    assert httpx2.get(url, headers=headers).status_code == 404
    assert status(one, session) == 200
    assert post(url, PING, mcp_session_id=session).status_code == 401


@pytest.mark.usefixtures("store")
def test_a_token_does_not_reach_the_session_of_another_token(
    hf: Holdfast, url: str, store: str
) -> None:
    one, two = token(hf, store), token(hf, store)
    session = open_session(url, one)

    for secret, status in ((one, 200), (two, 404), (key(hf, scope="admin"), 404)):
        headers = {"authorization": f"Bearer {secret}", "mcp_session_id": session}
        assert post(url, PING, **headers).status_code == status


def test_a_client_without_a_key_does_not_reach_the_session_of_a_key(hf: Holdfast, url: str) -> None:
    before = post(url).headers["mcp-session-id"]
    secret = key(hf)

    assert post(url, PING, mcp_session_id=before).status_code == 401
    headers = {"authorization": f"Bearer {secret}", "mcp_session_id": before}
    assert post(url, PING, **headers).status_code == 404


def test_a_revoked_key_is_refused_in_its_session(hf: Holdfast, url: str) -> None:
    key(hf)
    revoked = hf.keys.create("k")
    headers = {"authorization": f"Bearer {revoked.secret}"}
    headers["mcp_session_id"] = open_session(url, str(revoked.secret))
    hf.keys.revoke(revoked.id)

    assert post(url, PING, **headers).status_code == 401


@pytest.mark.usefixtures("store")
def test_a_revoked_key_reaches_no_method(hf: Holdfast, url: str, store: str) -> None:
    key(hf)
    revoked = hf.keys.create("k", scope="admin")
    secret = {"authorization": f"Bearer {revoked.secret}"}
    session = open_session(url, str(revoked.secret))
    hf.keys.revoke(revoked.id)
    calls: list[tuple[str, dict[str, Any]]] = [
        *(("tools/call", {"name": name, "arguments": ARGUMENTS[name]}) for name in ALL),
        *(("resources/read", {"uri": uri}) for uri in (f"holdfast://stores/{store}", LTM)),
        *((f"{kind}/list", {}) for kind in ("tools", "resources", "prompts")),
        ("prompts/get", {"name": "briefing"}),
    ]

    for method, params in calls:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        addressed = f"{url}?{EVERY}"
        assert post(addressed, body, mcp_session_id=session, **secret).status_code == 401
        assert modern(addressed, method, **secret).status_code == 401
    ltm = hf.longterm("ada")
    assert ltm is not None
    assert len(ltm.list("items").data) == 1
    assert hf.durable("scout").get("target") is not None


LTM = "holdfast://longterm/ada"
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"_meta": META, "notifications": {"resourcesListChanged": True}},
}
LISTEN_HEADERS = {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}


async def stream_ends_after(url: str, secret: str, mode: str, end: Callable[[], object]) -> None:
    """Open a stream as *mode* does, call *end*, and return once the stream has ended."""
    headers = {"authorization": f"Bearer {secret}", **JSON_OR_STREAM}
    async with httpx2.AsyncClient(headers=headers, timeout=60, verify=TLS) as http:
        if mode == "legacy":
            session = (await http.post(url, json=INITIALIZE)).headers["mcp-session-id"]
            request = http.stream("GET", url, headers={"mcp-session-id": session})
        else:
            request = http.stream("POST", url, json=LISTEN, headers=LISTEN_HEADERS)
        async with request as stream:
            assert stream.status_code == 200
            end()
            async with asyncio.timeout(60):
                async for _ in stream.aiter_bytes():
                    pass


async def test_the_open_streams_of_a_revoked_key_end(hf: Holdfast, url: str, mode: str) -> None:
    key(hf)
    revoked = hf.keys.create("k", scope="write")
    await stream_ends_after(url, str(revoked.secret), mode, lambda: hf.keys.revoke(revoked.id))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def timed(clock: FrozenClock) -> Iterator[tuple[str, Holdfast]]:
    """Serve a handle whose clock the test advances."""
    with (
        holdfast.open(":memory:", clock=clock) as hf,
        serving(hf, clock=clock, make_subapp=partial(HttpHosts, checks_every=0.1)) as base,
    ):
        yield f"{base}/mcp", hf


async def test_an_expired_token_is_refused_and_its_streams_end(
    timed: tuple[str, Holdfast], clock: FrozenClock, mode: str
) -> None:
    url, hf = timed
    store = hf.memory_stores.create(name="Notes").id
    resources = [{"type": "memory_store", "memory_store_id": store, "access": "read_write"}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=resources).id
    secret = str(hf.sessions.create_token(session, expires_in=3_600).token)
    async with connected(url, "", mode, secret=secret) as client:
        assert await tools(client) == ["memory"]

    await stream_ends_after(url, secret, mode, lambda: clock.tick(3_601))

    assert post(url, authorization=f"Bearer {secret}").status_code == 401


@pytest.mark.usefixtures("store")
def test_an_archived_session_is_refused(hf: Holdfast, url: str, store: str) -> None:
    resources = [{"type": "memory_store", "memory_store_id": store, "access": "read_write"}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=resources).id
    secret = {"authorization": f"Bearer {hf.sessions.create_token(session).token}"}
    opened = post(url, **secret).headers["mcp-session-id"]
    hf.sessions.archive(session)

    assert post(url, PING, mcp_session_id=opened, **secret).status_code == 401


async def test_several_workers_serve_without_sessions(hf: Holdfast, store: str, mode: str) -> None:
    several = partial(HttpHosts, workers=2)
    with serving(hf, clock=SystemClock(), make_subapp=several) as base:
        url = f"{base}/mcp"
        assert "mcp-session-id" not in post(url).headers
        assert httpx2.get(url, headers=JSON_OR_STREAM).status_code == 405
        async with connected(url, EVERY, mode) as client:
            assert "memory" in await tools(client)
            note = await client.read_resource(f"holdfast://stores/{store}/a.md")
            assert note.model_dump()["contents"][0]["text"] == "tabs"
            resources = client.server_capabilities.resources
            assert resources is not None
            assert resources.subscribe is resources.list_changed is (mode == "auto")
        assert SESSIONS.value() == 0
