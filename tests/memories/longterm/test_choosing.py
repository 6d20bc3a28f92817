"""Which embedder is chosen, by what was given and what is set."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai.embeddings import Embedder as AgentsEmbedder
from pydantic_ai.embeddings import TestEmbeddingModel

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.vectors import embedder as providers
from holdfast.memories.longterm.vectors.embedder import (
    EMBEDDING_MODEL,
    EMBEDDING_PROVIDER,
    Choice,
    ModelThread,
    choose,
    local,
    model_in,
    recorded,
)
from holdfast.testing.embedders import WordEmbedder

OPENAI, GOOGLE, OLLAMA = (
    "openai:text-embedding-3-small",
    "google:gemini-embedding-001",
    "ollama:nomic-embed-text",
)


@pytest.fixture
def models() -> Iterator[ModelThread]:
    thread = ModelThread()
    yield thread
    thread.close()


def no_keys(name: str) -> None:
    del name


def chosen(
    models: ModelThread, given: object = None, keys: str = "", **variables: str
) -> str | None:
    choice = choose(given, variables, dict.fromkeys(keys.split(), "k").get, models)
    return choice.embedder.model if choice.embedder else None


@pytest.mark.parametrize(
    ("keys", "model"),
    [
        ("", None),
        ("OPENAI_API_KEY", OPENAI),
        ("GEMINI_API_KEY", GOOGLE),
        ("GOOGLE_API_KEY", GOOGLE),
        ("OLLAMA_API_URL", OLLAMA),
        ("OLLAMA_BASE_URL", OLLAMA),
        ("OLLAMA_BASE_URL GOOGLE_API_KEY", GOOGLE),
        ("OLLAMA_BASE_URL GOOGLE_API_KEY OPENAI_API_KEY", OPENAI),
    ],
)
def test_the_automatic_choice_goes_by_the_keys_there_are(
    keys: str, model: str | None, models: ModelThread
) -> None:
    assert chosen(models, keys=keys) == model


def test_a_variable_stands_before_the_automatic_choice(models: ModelThread) -> None:
    assert chosen(models, None, "OPENAI_API_KEY", **{EMBEDDING_MODEL: "openai:m"}) == "openai:m"


def test_what_is_given_stands_before_a_variable(models: ModelThread) -> None:
    given = WordEmbedder("ours:words")

    assert chosen(models, given, **{EMBEDDING_MODEL: "openai:m"}) == "ours:words"


@pytest.mark.parametrize("none", ["none", "NONE", " none "])
def test_none_in_the_variable_is_lexical_whatever_the_keys(none: str, models: ModelThread) -> None:
    assert chosen(models, None, "OPENAI_API_KEY", **{EMBEDDING_MODEL: none}) is None


def test_false_is_lexical_whatever_the_variable(models: ModelThread) -> None:
    assert chosen(models, False, "OPENAI_API_KEY", **{EMBEDDING_MODEL: "openai:m"}) is None


@pytest.mark.parametrize(
    ("model", "provider", "means"),
    [
        ("openai:m", "", "openai:m"),
        ("m", "openai", "openai:m"),
        ("openai:m", "openai", "openai:m"),
        ("nomic-embed-text:v1", "ollama", "ollama:nomic-embed-text:v1"),
        ("", "", None),
    ],
)
def test_a_model_may_stand_in_two_variables(model: str, provider: str, means: str | None) -> None:
    assert model_in({EMBEDDING_MODEL: model, EMBEDDING_PROVIDER: provider}) == means


@pytest.mark.parametrize(
    ("model", "provider", "field"),
    [
        ("", "openai", EMBEDDING_PROVIDER),
        ("m", "", EMBEDDING_MODEL),
        (":m", "", EMBEDDING_MODEL),
        ("openai:", "", EMBEDDING_MODEL),
    ],
)
def test_half_a_name_is_refused(model: str, provider: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        model_in({EMBEDDING_MODEL: model, EMBEDDING_PROVIDER: provider})

    assert refused.value.field == field


@pytest.mark.parametrize("given", [3, object(), True, "m", "", WordEmbedder("m")])
def test_what_is_no_embedder_is_refused(given: object, models: ModelThread) -> None:
    with pytest.raises(InvalidInput):
        chosen(models, given)


def test_a_model_without_its_key_is_not_used_and_says_why(models: ModelThread) -> None:
    choice = choose("openai:m", {}, no_keys, models)

    assert choice == Choice(reason="openai:m needs OPENAI_API_KEY, which is not set")


def test_a_model_without_the_extra_is_not_used_and_says_why(
    models: ModelThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "find_spec", no_keys)

    choice = choose("openai:m", {}, {"OPENAI_API_KEY": "k"}.get, models)

    assert choice == Choice(reason="openai:m needs: pip install 'holdfast[embeddings]'")


def test_an_embedder_of_pydantic_ai_is_taken_as_it_is(models: ModelThread) -> None:
    assert chosen(models, AgentsEmbedder(TestEmbeddingModel())) == "test:test"
    assert chosen(models, AgentsEmbedder("openai:m")) == "openai:m"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder that looks like one of a model."""
    found = tmp_path / "model"
    found.mkdir()
    (found / "config.json").write_text("{}")
    (found / "model.safetensors").write_bytes(bytes(200_000))
    return found


def test_a_local_model_is_recorded_by_its_name_and_needs_no_key(models: ModelThread) -> None:
    assert local("embedder", "sentence-transformers:m", models).model == "sentence-transformers:m"
    assert choose("sentence-transformers:m", {}, no_keys, models).reason in (
        None,
        "sentence-transformers needs: pip install 'holdfast[local]'",
    )


def test_a_model_in_a_folder_is_recorded_by_a_hash_wherever_it_is(
    folder: Path, models: ModelThread
) -> None:
    model = local("embedder", f"sentence-transformers:{folder}", models).model
    moved = folder.rename(folder.with_name("moved"))

    assert model.startswith("sentence-transformers:sha256-")
    assert recorded("embedder", f"sentence-transformers:{moved}") == model
    with (moved / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert recorded("embedder", f"sentence-transformers:{moved}") != model


def test_a_folder_without_a_model_is_refused_in_one_line_without_its_path(
    tmp_path: Path, models: ModelThread
) -> None:
    for field, given, variables in (
        ("embedder", f"sentence-transformers:{tmp_path}", {}),
        (EMBEDDING_MODEL, None, {EMBEDDING_MODEL: f"sentence-transformers:{tmp_path}"}),
    ):
        with pytest.raises(InvalidInput, match="without a model") as refused:
            choose(given, variables, no_keys, models)

        assert refused.value.field == field
        assert "\n" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


def test_a_hash_stands_for_the_folder_that_is_configured(folder: Path, models: ModelThread) -> None:
    configured = f"sentence-transformers:{folder}"
    model = recorded("embedder", configured)

    here = choose(model, {EMBEDDING_MODEL: configured}, no_keys, models)
    elsewhere = choose(model, {}, no_keys, models)

    assert here.reason == choose(configured, {}, no_keys, models).reason
    assert elsewhere.reason == f"{model} was loaded from a folder: name that folder"
