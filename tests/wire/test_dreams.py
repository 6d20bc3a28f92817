"""Dreams by the official SDK, on a real server with a model that speaks over HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, cast

import pytest
from anthropic import BadRequestError, NotFoundError
from anthropic.types.beta import BetaDream
from memories.longterm.model_servers import ModelServer, model_server
from wire.asking import Client, answered, client_of, walked
from wire.judging import hold
from wire.serving import Served, serving
from wire.shapes import Dream

pytestmark = pytest.mark.anyio

TEXT = "Deploys go to fly.io."


@pytest.fixture(scope="module")
def model() -> Generator[ModelServer]:
    """Give the server of a model that edits the first file it is shown."""
    with model_server() as model:
        model.says = json.dumps({"edit": [{"file": "f1", "text": TEXT}]})
        yield model


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    model: ModelServer,
) -> Generator[Served]:
    database: Any = tmp_path_factory.mktemp("dreams") / "h.db"
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_url")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        with serving(cast("Path", database), "--strict", "--dream-model", "ollama:d") as served:
            yield served


@pytest.fixture
async def client(served: Served, color: str) -> AsyncGenerator[Client]:
    client = client_of(color, served.url, api_key="any", _strict_response_validation=True)
    yield client
    await answered(client.close())


async def inputs_of(client: Client) -> Any:
    """Return the inputs of a dream: a store with one file, and a session on it."""
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    memories = client.beta.memory_stores.memories
    await answered(memories.create(store.id, path="/deploy.md", content="Deploys go to Heroku."))
    agent = await answered(client.beta.agents.create(name="Pair", model="claude-opus-4-8"))
    environment = await answered(client.beta.environments.create(name="Here"))
    attached: Any = [{"type": "memory_store", "memory_store_id": store.id}]
    session = await answered(
        client.beta.sessions.create(
            agent=agent.id, environment_id=environment.id, resources=attached
        )
    )
    return [
        {"type": "memory_store", "memory_store_id": store.id},
        {"type": "sessions", "session_ids": [session.id]},
    ]


async def ended(client: Client, dream: BetaDream) -> BetaDream:
    """Return *dream* once it has ended."""
    async with asyncio.timeout(60):
        while dream.status in {"pending", "running"}:
            await asyncio.sleep(0.02)
            dream = await answered(client.beta.dreams.retrieve(dream.id))
    return dream


async def texts(client: Client, store_id: str) -> list[str | None]:
    found = await walked(client.beta.memory_stores.memories.list(store_id, view="full"))
    return [cast("Any", each).content for each in found]


async def test_a_dream_is_created_polled_and_its_output_read(client: Client) -> None:
    inputs = await inputs_of(client)
    store = inputs[0]["memory_store_id"]
    begun = await answered(
        client.beta.dreams.create(
            inputs=inputs, model="claude-opus-4-8", instructions="Services only."
        )
    )
    assert (begun.status, begun.outputs) == ("pending", [])
    done = await ended(client, begun)
    raw = await answered(client.beta.dreams.with_raw_response.retrieve(done.id))
    hold(json.loads(raw.http_response.text), Dream)

    assert (done.status, done.error, done.instructions) == ("completed", None, "Services only.")
    assert (done.usage.input_tokens, done.usage.output_tokens) == (1, 1)
    assert await texts(client, store) == ["Deploys go to Heroku."]
    assert await texts(client, done.outputs[0].memory_store_id) == [TEXT]
    versions = client.beta.memory_stores.memory_versions
    newest = (await walked(versions.list(done.outputs[0].memory_store_id)))[0]
    assert cast("Any", newest.created_by).session_id == done.session_id
    assert done in await walked(client.beta.dreams.list(statuses=["completed"], limit=1))


async def test_a_dream_updates_a_store_is_archived_and_then_listed_on_demand(
    client: Client,
) -> None:
    inputs = await inputs_of(client)
    store = inputs[0]["memory_store_id"]
    behavior: Any = {"type": "update_existing", "memory_store_id": store}
    begun = await answered(
        client.beta.dreams.create(
            inputs=inputs,
            model={"id": "claude-opus-4-8", "speed": "standard"},
            output_behavior=behavior,
        )
    )
    done = await ended(client, begun)

    assert (done.status, done.outputs[0].memory_store_id) == ("completed", store)
    assert await texts(client, store) == [TEXT]
    with pytest.raises(BadRequestError):
        await answered(client.beta.dreams.cancel(done.id))
    archived = await answered(client.beta.dreams.archive(done.id))
    assert archived.archived_at is not None
    assert archived not in await walked(client.beta.dreams.list())
    assert archived in await walked(client.beta.dreams.list(include_archived=True, limit=2))
    with pytest.raises(NotFoundError):
        await answered(client.beta.dreams.retrieve(f"drm_{'0' * 24}"))
