"""A strict server, and the headers that each generation of the SDK sends."""

from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx
import pytest
from anthropic import (
    APIStatusError,
    BadRequestError,
    NotFoundError,
)
from wire.asking import Client, answered, client_of, walked
from wire.serving import Served, serving

pytestmark = pytest.mark.anyio

BETAS = ("agent-memory-2026-07-22", "managed-agents-2026-04-01")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(tmp_path_factory.mktemp("strict") / "h.db", "--strict") as served:
        yield served


@pytest.fixture
async def client(strict: Served, color: str) -> AsyncGenerator[Client]:
    client = client_of(color, strict.url, api_key="any")
    yield client
    await answered(client.close())


async def test_what_the_sdk_sends_by_itself_is_enough(client: Client) -> None:
    stores, memories = client.beta.memory_stores, client.beta.memory_stores.memories

    store = await answered(stores.create(name="Notes"))
    memory = await answered(memories.create(store.id, path="/a.md", content="1"))
    await answered(memories.update(memory.id, memory_store_id=store.id, content="2"))
    agent = await answered(client.beta.agents.create(name="Pair", model="claude-opus-4-6"))
    environment = await answered(client.beta.environments.create(name="Here"))
    attached: Any = [{"type": "memory_store", "memory_store_id": store.id}]
    session = await answered(
        client.beta.sessions.create(
            agent=agent.id, environment_id=environment.id, resources=attached
        )
    )

    assert len(await walked(memories.list(store.id))) == 1
    assert len(await walked(stores.memory_versions.list(store.id))) == 2
    assert (session.agent.name, session.environment_id) == ("Pair", environment.id)


@pytest.mark.parametrize("beta", BETAS)
async def test_either_beta_opens_the_store_routes(client: Client, beta: str) -> None:
    await with_betas(client, beta)


@pytest.mark.parametrize("beta", ["", ",".join(BETAS), "agent-memory-1999-01-01"])
async def test_no_beta_both_or_an_unknown_one_do_not(client: Client, beta: str) -> None:
    with pytest.raises(BadRequestError, match="anthropic-beta"):
        await with_betas(client, beta)


async def with_betas(client: Client, beta: str) -> None:
    await answered(
        client.get(
            "/v1/memory_stores", cast_to=object, options={"headers": {"anthropic-beta": beta}}
        )
    )


def test_a_request_without_a_version_is_refused(strict: Served) -> None:
    answer = httpx.get(
        f"{strict.url}/v1/memory_stores", headers={"anthropic-beta": BETAS[0]}, timeout=60
    )

    assert answer.status_code == 400
    assert "anthropic-version" in answer.json()["error"]["message"]


async def test_only_post_updates_a_memory(client: Client) -> None:
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    memory = await answered(
        client.beta.memory_stores.memories.create(store.id, path="/a.md", content="1")
    )

    path = f"/v1/memory_stores/{store.id}/memories/{memory.id}"
    headers = {"anthropic-beta": BETAS[0]}

    with pytest.raises(APIStatusError) as refused:
        await answered(client.patch(path, cast_to=object, body={}, options={"headers": headers}))

    assert refused.value.status_code == 405
    assert "POST" in refused.value.response.headers["allow"]
    assert "PATCH" not in refused.value.response.headers["allow"]


async def test_an_unknown_agent_or_environment_is_not_made_up(client: Client) -> None:
    agent = await answered(client.beta.agents.create(name="Pair", model="claude-opus-4-6"))
    environment = await answered(client.beta.environments.create(name="Here"))
    sessions = client.beta.sessions

    with pytest.raises(NotFoundError):
        await answered(sessions.create(agent="agent_1", environment_id=environment.id))
    with pytest.raises(NotFoundError):
        await answered(sessions.create(agent=agent.id, environment_id="env_1"))
