"""What makes a vector of a text, and what we ask of its vectors before we believe them.

Whatever an embedder raises or returns, its caller sees vectors of unit length or EmbeddingFailed,
so that one bad answer neither loses a write nor spoils a comparison.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from holdfast.ground.secrets import redact
from holdfast.memories.longterm.metrics import counts

InputType = Literal["query", "document"]
Vector: TypeAlias = "array[float]"
"""Float32 numbers, of unit length together."""

MOST_TEXTS: Final = 64
"""Texts that go to an embedder in one call."""
MOST_BYTES: Final = 256 * 1024
"""Bytes of UTF-8 that go to an embedder in one call."""
LONGEST: Final = 16 * 1024
"""Bytes of one text that are embedded, from its start: models of 2026 refuse or cut off what is
beyond some 8,000 tokens, and one refused text would be refused for ever."""


@runtime_checkable
class Embedder(Protocol):
    """Gives texts vectors, near to each other where their meanings are."""

    model: str
    """Who makes the vectors, as `provider:model`; vectors of two models are never compared."""

    def embed(self, texts: Sequence[str], *, input_type: InputType) -> Sequence[Sequence[float]]:
        """Return a vector for each of *texts*, in order, all of one size."""
        ...


class EmbeddingFailed(Exception):
    """No vectors came, or none that can be used. *reason* holds nothing of the texts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def embedded(
    embedder: Embedder,
    texts: Sequence[str],
    input_type: InputType,
    *,
    dimension: int | None = None,
) -> list[Vector]:
    """Return a unit vector for each of *texts*, which go out without the secrets in them.

    All are of *dimension* numbers if it is given, else of as many as the first. Raises
    EmbeddingFailed if that cannot be had.
    """
    vectors: list[Vector] = []
    for batch in batches([sendable(text) for text in texts]):
        for given in _asked(embedder, batch, input_type):
            vectors.append(unit(given, dimension=dimension))
            dimension = len(vectors[0])
    return vectors


def sendable(text: str) -> str:
    """Return *text* as it goes to an embedder: without secrets, and no longer than it reads."""
    return _start(redact(text), LONGEST)


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Give *texts* in order, in as few calls as the limits of one allow."""
    batch: list[str] = []
    size = 0
    for text in texts:
        more = len(text.encode())
        if batch and (len(batch) == MOST_TEXTS or size + more > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += more
    if batch:
        yield batch


def unit(given: Sequence[float], *, dimension: int | None = None) -> Vector:
    """Return *given* at unit length; EmbeddingFailed if it has none, or another size."""
    numbers = _numbers(given)
    if dimension is not None and len(numbers) != dimension:
        raise EmbeddingFailed(f"a vector of {len(numbers)} numbers came, not of {dimension}")
    length = math.hypot(*numbers)
    if not numbers or not math.isfinite(length) or length == 0:
        raise EmbeddingFailed("a vector came that is empty, all zero or not finite")
    return array("f", [number / length for number in numbers])


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two unit vectors."""
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(one, other, strict=True))))


def _asked(
    embedder: Embedder, texts: list[str], input_type: InputType
) -> Sequence[Sequence[float]]:
    started = perf_counter()
    try:
        given = embedder.embed(texts, input_type=input_type)
        count = len(given)
    except EmbeddingFailed:
        raise
    except Exception as error:
        # Anybody's code: what it raises may hold the text or a key, so its type alone is told.
        raise EmbeddingFailed(f"the embedder raised {type(error).__name__}") from error
    counts.took("embedding_seconds", perf_counter() - started)
    if count != len(texts):
        raise EmbeddingFailed(f"{count} vectors came for {len(texts)} texts")
    return given


def _numbers(given: Any) -> list[float]:
    try:
        return [float(number) for number in given]
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbeddingFailed("a vector came that is no sequence of numbers") from error


def _start(text: str, most: int) -> str:
    """Return the start of *text* in at most *most* bytes, cut between characters."""
    if len(text) <= most // 4:
        return text
    return text.encode()[:most].decode(errors="ignore")
