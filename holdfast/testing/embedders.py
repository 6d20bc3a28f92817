"""Fake embedders for tests: deterministic vectors, and failures on request."""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal


class WordEmbedder:
    """Embedder by words: texts with the same words are near.

    `means` maps words to synonyms. Set `fails` to an exception to raise; `calls` has the texts of
    all calls.
    """

    def __init__(
        self, model: str = "test:words", *, size: int = 64, means: dict[str, str] | None = None
    ) -> None:
        self.model, self.size = model, size
        self.means = means or {}
        self.calls: list[tuple[str, ...]] = []
        self.fails: Exception | None = None

    def embed(
        self, texts: Sequence[str], *, input_type: Literal["query", "document"]
    ) -> list[list[float]]:
        """Return a vector for each of *texts*; *input_type* makes no difference."""
        del input_type
        self.calls.append(tuple(texts))
        if self.fails is not None:
            raise self.fails
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.size
        for each in text.lower().split():
            word = each.strip(".,;:!?'\"")
            word = self.means.get(word, word)
            digest = blake2b(f"{self.model} {word}".encode(), digest_size=32).digest()
            for number, byte in enumerate(digest):
                vector[(byte * 31 + number) % self.size] += 1.0 if byte & 1 else -1.0
        length = math.hypot(*vector)
        return [number / length for number in vector] if length else [1.0, *vector[1:]]
