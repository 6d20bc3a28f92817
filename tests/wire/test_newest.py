"""What only the newer releases of the SDK can say."""

from asyncio import gather

import pytest
from anthropic import AsyncAnthropic, ConflictError
from wire.asking import Client, answered, walked
from wire.serving import Served

pytestmark = pytest.mark.anyio


async def test_sessions_are_found_by_several_statuses_and_by_store(client: Client) -> None:
    sessions = client.beta.sessions
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    idle = await answered(
        sessions.create(
            agent="agent_1",
            environment_id="env_1",
            resources=[{"type": "memory_store", "memory_store_id": store.id}],
        )
    )
    over = await answered(sessions.create(agent="agent_1", environment_id="env_1"))
    await answered(sessions.archive(over.id))

    either = await walked(sessions.list(statuses=["idle", "terminated"], include_archived=True))
    running = await walked(sessions.list(statuses=["running"], include_archived=True))
    of_store = await walked(sessions.list(memory_store_id=store.id))

    assert [each.id for each in either] == [over.id, idle.id]
    assert running == []
    assert of_store == [idle]


async def test_a_call_may_name_its_workspace(client: Client) -> None:
    stores = client.beta.memory_stores
    await answered(stores.create(name="Here"))

    there = await answered(stores.create(name="There", workspace_id="wire-elsewhere"))

    listed = await walked(stores.list(workspace_id="wire-elsewhere"))
    assert there in listed
    assert [store.name for store in await walked(stores.list())] == ["Here"]


async def test_of_many_writers_at_once_one_wins_and_nobody_asks_twice(server: Served) -> None:
    async with AsyncAnthropic(base_url=server.url, api_key="any") as client:
        memories = client.beta.memory_stores.memories
        store = await client.beta.memory_stores.create(name="Raced for")
        memory = await memories.create(store.id, path="/a.md", content="0")
        before = server.asked()

        async def update(number: int) -> str:
            try:
                await memories.update(
                    memory.id,
                    memory_store_id=store.id,
                    content=f"by {number}",
                    precondition={
                        "type": "content_sha256",
                        "content_sha256": memory.content_sha256,
                    },
                )
            except ConflictError:
                return "lost"
            return "won"

        outcomes = await gather(*(update(number) for number in range(16)))

    asked = server.asked() - before
    assert sorted(outcomes) == ["lost"] * 15 + ["won"]
    assert sum(n for (_, method, _), n in asked.items() if method == "POST") == 16
