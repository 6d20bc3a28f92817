"""What an embedder is asked, and what is believed of its answers."""

import math
from collections.abc import Sequence

import pytest

from holdfast.memories.longterm.vectors.embedder import (
    LONGEST,
    MOST_BYTES,
    EmbeddingFailed,
    InputType,
    batches,
    embedded,
    unit,
)
from holdfast.testing.embedders import WordEmbedder


class Answering:
    """An embedder that answers what it is told to, whatever it is asked."""

    model = "test:answering"

    def __init__(self, *vectors: Sequence[float]) -> None:
        self.vectors = vectors

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> Sequence[Sequence[float]]:
        del texts, input_type
        return self.vectors


def test_vectors_arrive_at_unit_length() -> None:
    vector, *_ = embedded(Answering([3.0, 4.0]), ["a"], "document")

    assert list(vector) == pytest.approx([0.6, 0.8])


def test_nothing_is_asked_for_no_texts() -> None:
    embedder = WordEmbedder()

    assert embedded(embedder, [], "query") == []
    assert embedder.calls == []


@pytest.mark.parametrize(
    "vector", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [], ["x"], [1e300, 1e300, math.inf]]
)
def test_a_vector_of_no_use_is_a_failed_embedding(vector: list[float]) -> None:
    with pytest.raises(EmbeddingFailed):
        embedded(Answering(vector), ["a"], "document")


def test_a_vector_of_another_size_is_a_failed_embedding() -> None:
    with pytest.raises(EmbeddingFailed, match="2 numbers came, not of 3"):
        embedded(Answering([1.0, 0.0]), ["a"], "document", dimension=3)


def test_two_sizes_in_one_answer_are_a_failed_embedding() -> None:
    with pytest.raises(EmbeddingFailed):
        embedded(Answering([1.0, 0.0], [1.0]), ["a", "b"], "document")


def test_too_few_vectors_are_a_failed_embedding() -> None:
    with pytest.raises(EmbeddingFailed, match="1 vectors came for 2 texts"):
        embedded(Answering([1.0, 0.0]), ["a", "b"], "document")


def test_what_an_embedder_raises_is_told_by_its_type_alone() -> None:
    embedder = WordEmbedder()
    embedder.fails = ValueError("key abc for text tabs")

    with pytest.raises(EmbeddingFailed) as failed:
        embedded(embedder, ["tabs"], "document")

    assert failed.value.reason == "the embedder raised ValueError"


def test_a_call_has_at_most_64_texts() -> None:
    embedder = WordEmbedder()

    vectors = embedded(embedder, [f"text {n}" for n in range(130)], "document")

    assert [len(call) for call in embedder.calls] == [64, 64, 2]
    assert len(vectors) == 130


def test_a_call_has_at_most_256_kibibytes() -> None:
    texts = ["é" * (LONGEST // 2)] * 20

    sizes = [sum(len(text.encode()) for text in batch) for batch in batches(texts)]

    assert sizes == [MOST_BYTES, 4 * LONGEST]


def test_a_long_text_is_embedded_from_its_start_between_characters() -> None:
    embedder = WordEmbedder()

    embedded(embedder, ["a" + "é" * LONGEST], "document")

    assert embedder.calls == [("a" + "é" * (LONGEST // 2 - 1),)]


def test_secrets_do_not_leave() -> None:
    embedder = WordEmbedder()

    embedded(embedder, ["my password is hunter2, and I like tea"], "query")

    assert embedder.calls == [("my password is [redacted prose], and I like tea",)]


def test_a_unit_vector_stays_what_it_is() -> None:
    once = unit([1.0, 2.0, 2.0])

    assert unit(once) == once
