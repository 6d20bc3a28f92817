"""Model providers, asked over real HTTP at servers that speak as they do."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest
from memories.longterm.model_servers import ModelServer, model_server
from pydantic_ai.embeddings import Embedder as AgentsEmbedder
from pydantic_ai.embeddings import TestEmbeddingModel
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast.memories.longterm.vectors.embedder import (
    EmbeddingFailed,
    ModelThread,
    embedded,
    named,
    of_agents,
    ollama_address,
    unit,
)
from holdfast.testing.embedders import WordEmbedder

TEXTS = ["tabs over spaces", "tea over coffee"]


@pytest.fixture
def models() -> Iterator[ModelThread]:
    thread = ModelThread()
    yield thread
    thread.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(autouse=True)
def another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set keys and addresses in the process that are nobody's here."""
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_ORG_ID"):
        monkeypatch.setenv(name, "the process's own")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/nobody")
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:9/nobody")


def expected(server: ModelServer) -> list[float]:
    vectors = WordEmbedder(size=server.size).embed(TEXTS, input_type="document")
    return flat([unit(vector) for vector in vectors])


def flat(vectors: Sequence[Sequence[float]]) -> list[float]:
    return list(chain.from_iterable(vectors))


def keys(server: ModelServer, **given: str) -> dict[str, str]:
    addresses = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "GOOGLE_GEMINI_BASE_URL": server.url,
        "OLLAMA_BASE_URL": server.url,
    }
    return {**addresses, **given}


def test_openai_is_asked_with_the_key_it_was_given(
    server: ModelServer, models: ModelThread
) -> None:
    embedder = named(
        "openai:text-embedding-3-small", keys(server, OPENAI_API_KEY="ada's").get, models
    )

    vectors = embedded(embedder, TEXTS, "document")

    asked = server.asked[0]
    assert flat(vectors) == pytest.approx(expected(server))
    assert (asked.path, asked.body["model"]) == ("/v1/embeddings", "text-embedding-3-small")
    assert asked.headers["authorization"] == "Bearer ada's"
    assert "the process's own" not in asked.headers.values()


def test_gemini_is_asked_with_the_key_it_was_given(
    server: ModelServer, models: ModelThread
) -> None:
    embedder = named("google:gemini-embedding-001", keys(server, GEMINI_API_KEY="ada").get, models)

    vectors = embedded(embedder, TEXTS, "query")

    asked = server.asked[0]
    assert flat(vectors) == pytest.approx(expected(server))
    assert asked.path.endswith("/gemini-embedding-001:batchEmbedContents")
    assert asked.headers["x-goog-api-key"] == "ada"
    assert asked.body["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


def test_ollama_is_asked_at_its_address(server: ModelServer, models: ModelThread) -> None:
    embedder = named("ollama:nomic-embed-text", keys(server).get, models)

    vectors = embedded(embedder, TEXTS, "document")

    asked = server.asked[0]
    assert flat(vectors) == pytest.approx(expected(server))
    assert (asked.path, asked.body["model"]) == ("/v1/embeddings", "nomic-embed-text")


@pytest.mark.parametrize(
    "address",
    ["http://h:11434", "http://h:11434/", "http://h:11434/api", "http://h:11434/v1", "h:11434"],
)
def test_ollama_is_found_by_any_of_its_addresses(address: str) -> None:
    assert ollama_address(address) == "http://h:11434/v1"


@pytest.mark.parametrize("status", [400, 401])
def test_a_provider_that_refuses_is_a_failed_embedding(
    status: int, server: ModelServer, models: ModelThread
) -> None:
    server.status = status
    embedder = named("openai:m", keys(server, OPENAI_API_KEY="ada's").get, models)

    with pytest.raises(EmbeddingFailed, match="the embedder raised"):
        embedded(embedder, TEXTS, "document")


def test_a_provider_that_nobody_knows_is_a_failed_embedding(models: ModelThread) -> None:
    with pytest.raises(EmbeddingFailed):
        embedded(named("nobody:m", {"NOBODY_API_KEY": "k"}.get, models), TEXTS, "document")


def test_an_embedder_of_pydantic_ai_is_asked_by_its_own_name(
    server: ModelServer, models: ModelThread
) -> None:
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="k")
    embedder = of_agents(AgentsEmbedder(OpenAIEmbeddingModel("m", provider=provider)), models)
    models.on_close(provider.client.close)

    vectors = embedded(embedder, TEXTS, "document")

    assert embedder.model == "openai:m"
    assert flat(vectors) == pytest.approx(expected(server))


def test_a_running_event_loop_is_no_hindrance(models: ModelThread) -> None:
    embedder = of_agents(AgentsEmbedder(TestEmbeddingModel(dimensions=4)), models)

    async def within() -> int:
        return len(embedded(embedder, TEXTS, "document"))

    assert asyncio.run(within()) == 2


def test_closing_leaves_no_thread_and_it_starts_again(
    server: ModelServer, models: ModelThread
) -> None:
    embedder = named("ollama:m", keys(server).get, models)
    embedded(embedder, TEXTS, "document")
    models.close()

    assert "holdfast-models" not in [thread.name for thread in threading.enumerate()]
    assert len(embedded(embedder, TEXTS, "document")) == 2
