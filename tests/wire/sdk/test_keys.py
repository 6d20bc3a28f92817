"""Who comes in: keys as either generation of the SDK sends them, and session tokens."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest
from anthropic import (
    Anthropic,
    AuthenticationError,
    NotFoundError,
    PermissionDeniedError,
)
from wire.asking import Client, answered, client_of, walked
from wire.serving import Served, serving

pytestmark = pytest.mark.anyio

PATIENCE = 30
"""Seconds after which what another process did will never be seen."""


class Guarded(NamedTuple):
    """A server that asks for a key, and its first one."""

    url: str
    served: Served
    admin: dict[str, Any]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[Guarded]:
    with serving(tmp_path_factory.mktemp("guarded") / "h.db") as served:
        admin = served.run("keys", "create", "admin", "--scope", "admin")
        until_refused(Anthropic(base_url=served.url, api_key="any").beta.memory_stores.list)
        yield Guarded(served.url, served, admin)


def until_refused(ask: Callable[[], object]) -> None:
    """Ask until the answer is 401."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        try:
            ask()
        except AuthenticationError:
            return
    pytest.fail("The server went on answering.")


def test_an_open_server_closes_when_another_process_makes_a_key(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "h.db", forks=False) as served,
        Anthropic(base_url=served.url, api_key="any") as client,
    ):
        client.beta.memory_stores.list()

        key = served.run("keys", "create", "ci")

        until_refused(client.beta.memory_stores.list)
        with client.with_options(api_key=key["secret"]) as known:
            known.beta.memory_stores.list()


Open = Callable[..., Any]


@pytest.fixture
def opened(guarded: Guarded, color: str) -> Open:
    """Open a client of the test's colour on the guarded server."""

    @asynccontextmanager
    async def open_client(**how: Any) -> AsyncGenerator[Client]:
        client = client_of(color, guarded.url, **how)
        yield client
        await answered(client.close())

    return open_client


@pytest.fixture
async def admin(opened: Open, guarded: Guarded) -> AsyncGenerator[Client]:
    async with opened(api_key=guarded.admin["secret"]) as client:
        yield client


async def new_key(admin: Client, **what: Any) -> Any:
    body = {"name": "ci", **what}
    return await answered(admin.post("/api/keys", cast_to=object, body=body))


async def test_a_key_opens_whichever_header_carries_it(opened: Open, guarded: Guarded) -> None:
    secret = guarded.admin["secret"]

    for how in (
        {"api_key": secret},
        {"auth_token": secret},
        {"auth_token": "other", "default_headers": {"x-api-key": secret}},
    ):
        async with opened(**how) as client:
            await answered(client.beta.memory_stores.list())


@pytest.mark.parametrize("how", ["api_key", "auth_token"])
async def test_what_opens_nothing_is_refused_once_and_in_the_same_words(
    opened: Open, guarded: Guarded, how: str
) -> None:
    before = guarded_asked(guarded)

    async with opened(**{how: "hf_wrong"}) as client:
        with pytest.raises(AuthenticationError) as unknown:
            await answered(client.beta.memory_stores.list())
    async with opened(**{how: "hfs_wrong"}) as client:
        with pytest.raises(AuthenticationError) as no_token:
            await answered(client.beta.memory_stores.list())

    assert unknown.value.type == "authentication_error"
    assert said(unknown.value) == said(no_token.value)
    assert guarded_asked(guarded) - before == 2


def said(error: AuthenticationError) -> str:
    body: Any = error.body
    return body["error"]["message"]


def guarded_asked(guarded: Guarded) -> int:
    """Return how many requests were refused for their credential so far."""
    counted = guarded.served.asked(guarded.admin["secret"])
    return sum(n for (_, _, status), n in counted.items() if status == 401)


async def test_a_key_reaches_as_far_as_its_scope(opened: Open, admin: Client) -> None:
    store = await answered(admin.beta.memory_stores.create(name="Notes"))
    reader = await new_key(admin, scope="read")
    writer = await new_key(admin, scope="write")

    async with opened(api_key=reader["secret"]) as client:
        await answered(client.beta.memory_stores.retrieve(store.id))
        with pytest.raises(PermissionDeniedError, match="write"):
            await answered(client.beta.memory_stores.create(name="Other"))
    async with opened(api_key=writer["secret"]) as client:
        await answered(client.beta.memory_stores.archive(store.id))
        with pytest.raises(PermissionDeniedError, match="admin") as refused:
            await answered(client.beta.memory_stores.delete(store.id))

    assert refused.value.type == "permission_error"


async def test_a_write_is_by_the_key_that_sent_it(opened: Open, admin: Client) -> None:
    key = await new_key(admin)
    async with opened(api_key=key["secret"]) as client:
        store = await answered(client.beta.memory_stores.create(name="Notes"))
        await answered(
            client.beta.memory_stores.memories.create(store.id, path="/a.md", content="")
        )

        (version,) = await walked(
            client.beta.memory_stores.memory_versions.list(store.id, api_key_id=key["id"])
        )

    assert version.to_dict()["created_by"] == {"type": "api_actor", "api_key_id": key["id"]}


async def test_another_workspace_is_not_there(
    opened: Open, admin: Client, guarded: Guarded
) -> None:
    store = await answered(admin.beta.memory_stores.create(name="Notes"))
    elsewhere = guarded.served.run("keys", "create", "ci", "--workspace", "elsewhere")
    header = {"anthropic-workspace-id": "default"}

    async with opened(api_key=elsewhere["secret"]) as client:
        with pytest.raises(NotFoundError):
            await answered(client.beta.memory_stores.retrieve(store.id))
        with pytest.raises(PermissionDeniedError):
            await answered(client.beta.memory_stores.list(extra_headers=header))


async def test_a_session_token_wins_over_a_key_and_writes_as_its_session(
    opened: Open, admin: Client, guarded: Guarded
) -> None:
    store = await answered(admin.beta.memory_stores.create(name="Notes"))
    attached: Any = [{"type": "memory_store", "memory_store_id": store.id}]
    session = await answered(
        admin.beta.sessions.create(agent="agent_1", environment_id="env_1", resources=attached)
    )
    token: Any = await answered(
        admin.post(f"/api/sessions/{session.id}/tokens", cast_to=object, body={})
    )

    key = {"x-api-key": guarded.admin["secret"]}
    async with opened(auth_token=token["token"], default_headers=key) as client:
        memories, versions = (
            client.beta.memory_stores.memories,
            client.beta.memory_stores.memory_versions,
        )
        await answered(memories.create(store.id, path="/a.md", content=""))
        (version,) = await walked(versions.list(store.id, session_id=session.id))
        with pytest.raises(PermissionDeniedError):
            await answered(client.beta.sessions.list())

    by = {"type": "session_actor", "session_id": session.id}
    assert version.to_dict()["created_by"] == by


async def test_a_revoked_key_opens_no_more(admin: Client, guarded: Guarded) -> None:
    key = await new_key(admin)
    client = Anthropic(base_url=guarded.url, api_key=key["secret"])
    client.beta.memory_stores.list()

    guarded.served.run("keys", "revoke", key["id"])

    until_refused(client.beta.memory_stores.list)
    client.close()
