"""With what a memory is equipped: by what is given, by variables, and by whose keys there are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.longterm_items import kept, memory_of, texts
from contracts.longterm_vectors import SECONDS

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.testing.embedders import WordEmbedder

VARIABLES = (
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OLLAMA_API_URL",
    "OLLAMA_BASE_URL",
    "CHROMA_URL",
    "HOLDFAST_LTM_EMBEDDING_MODEL",
    "HOLDFAST_LTM_EMBEDDING_PROVIDER",
    "HOLDFAST_VECTOR_PROVIDER",
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hf(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


def no_keys(user: str, name: str) -> None:
    del user, name


def test_without_anything_it_goes_by_words(hf: Holdfast) -> None:
    status = memory_of(hf, "ada").status()

    assert (status.mode, status.reason) == ("lexical", None)


def test_a_key_in_the_environment_is_enough(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    assert memory_of(hf, "ada").status().mode == "hybrid"


def test_with_credentials_the_environment_is_not_asked_for_keys(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the process's own")
    ltm = memory_of(hf, "ada", options=LongTermOptions(credentials=no_keys))

    assert (ltm.status().mode, ltm.context.embedder) == ("lexical", None)


def test_credentials_are_asked_for_the_users_own(hf: Holdfast) -> None:
    asked: list[tuple[str, str]] = []

    def keys(user: str, name: str) -> str | None:
        asked.append((user, name))
        return "k" if (user, name) == ("ada", "GEMINI_API_KEY") else None

    options = LongTermOptions(credentials=keys)

    assert memory_of(hf, "ada", options=options).status().mode == "hybrid"
    assert memory_of(hf, "bob", options=options).status().mode == "lexical"
    assert {user for user, _ in asked} == {"ada", "bob"}


def test_a_model_that_cannot_be_used_is_told_of_once(hf: Holdfast) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append, types=["longterm.degraded"])
    options = LongTermOptions(credentials=no_keys)

    memories = [memory_of(hf, "ada", embedder="openai:m", options=options) for _ in range(3)]

    reason = memories[0].status().reason
    assert reason == "openai:m needs OPENAI_API_KEY, which is not set"
    assert [event.data for event in heard] == [{"reason": reason}]


def test_off_asks_for_no_keys(hf: Holdfast) -> None:
    asked: list[str] = []

    def keys(user: str, name: str) -> None:
        asked.append(f"{user} {name}")

    assert hf.longterm("ada", enabled=False, options=LongTermOptions(credentials=keys)) is None
    assert asked == []


def test_the_keeper_may_be_set_by_a_variable(
    hf: Holdfast, sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_VECTOR_PROVIDER", "sqlite-vec")
    ltm = memory_of(hf, "ada", embedder=WordEmbedder(means={"automobile": "car"}))
    kept(ltm, "Drives an automobile")
    ltm.flush(SECONDS)

    assert texts(ltm.recall("car", min_relevance=0.1)) == ["Drives an automobile"]
    assert ltm.status().vector_provider == "sqlite-vec"
    assert sqlite_file.with_name("h.db.vec").exists()


def test_a_keeper_that_nobody_knows_is_refused(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_VECTOR_PROVIDER", "no_such")

    with pytest.raises(InvalidInput, match="sqlite-vec, pgvector, chroma, qdrant, pinecone"):
        memory_of(hf, "ada", embedder=WordEmbedder())


def test_pgvector_is_refused_on_sqlite(hf: Holdfast) -> None:
    options = LongTermOptions(vector_provider="pgvector")

    with pytest.raises(InvalidInput):
        memory_of(hf, "ada", embedder=WordEmbedder(), options=options)


def test_a_keeper_that_is_down_is_no_error(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMA_URL", "http://127.0.0.1:9")
    options = LongTermOptions(vector_provider="chroma")

    ltm = memory_of(hf, "ada", embedder=WordEmbedder(), options=options)
    kept(ltm, "Drives a car")

    assert texts(ltm.recall("car")) == ["Drives a car"]
    assert "chroma could not be opened" in str(ltm.status().reason)


def test_without_the_extension_postgres_compares_in_process(fresh_postgres_url: str) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        ltm = memory_of(hf, "ada", embedder=WordEmbedder(means={"automobile": "car"}))
        kept(ltm, "Drives an automobile")

        assert texts(ltm.recall("car", min_relevance=0.1)) == ["Drives an automobile"]
        assert ltm.status().vector_provider == "sqlite"


def test_pgvector_by_name_without_the_extension_goes_by_words_and_says_why(
    fresh_postgres_url: str,
) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        options = LongTermOptions(vector_provider="pgvector")
        status = memory_of(hf, "ada", embedder=WordEmbedder(), options=options).status()

        assert status.mode == "lexical"
        assert status.reason == "pgvector needs, in this database: create extension vector"
