"""Contract of a vector provider, independent of its storage."""

import math
import random
from collections.abc import Callable, Sequence

import pytest

from holdfast.memories.longterm.vectors.base import VectorProvider
from holdfast.memories.longterm.vectors.embedder import unit

SIZE = 32
A, B = "coll_0000000000000000000000aa", "coll_0000000000000000000000bb"


def some(count: int, *, seed: int = 1, size: int = SIZE) -> list[tuple[str, Sequence[float]]]:
    """Return rows of random unit vectors, the same for the same *seed*."""
    chance = random.Random(seed)  # noqa: S311 - the same numbers each time are the point
    return [
        (f"item_{number:04}", unit([chance.gauss(0, 1) for _ in range(size)]))
        for number in range(count)
    ]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine as it is by definition."""
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return dot / (math.hypot(*one) * math.hypot(*other))


class VectorsContract:
    """A subclass provides `vectors`, and `reopened`, which closes and reopens them."""

    def test_cosines_are_true_to_five_places(self, vectors: VectorProvider) -> None:
        rows = some(60)
        vectors.upsert(A, SIZE, rows)
        query = some(1, seed=7)[0][1]

        found = dict(vectors.nearest(A, query, 60))

        assert found == pytest.approx({id: cosine(row, query) for id, row in rows}, abs=1e-5)

    def test_the_same_and_the_opposite_are_one_and_minus_one(self, vectors: VectorProvider) -> None:
        (_, vector), *_ = some(1)
        vectors.upsert(A, SIZE, [("item_a", vector), ("item_b", [-each for each in vector])])

        assert dict(vectors.nearest(A, vector, 2)) == pytest.approx(
            {"item_a": 1.0, "item_b": -1.0}, abs=1e-5
        )

    def test_the_nearest_come_first(self, vectors: VectorProvider) -> None:
        rows = some(50)
        vectors.upsert(A, SIZE, rows)
        query = some(1, seed=7)[0][1]

        found = vectors.nearest(A, query, 10)

        truth = sorted(rows, key=lambda row: -cosine(row[1], query))
        assert [id for id, _ in found] == [id for id, _ in truth[:10]]
        assert [near for _, near in found] == sorted((near for _, near in found), reverse=True)

    def test_of_equal_ones_the_older_id_comes_first(self, vectors: VectorProvider) -> None:
        (_, vector), *_ = some(1)
        vectors.upsert(A, SIZE, [("item_b", vector), ("item_c", vector), ("item_a", vector)])

        assert [id for id, _ in vectors.nearest(A, vector, 3)] == ["item_a", "item_b", "item_c"]

    def test_a_second_vector_of_an_id_replaces_the_first(self, vectors: VectorProvider) -> None:
        (_, old), (_, new) = some(2)
        vectors.upsert(A, SIZE, [("item_a", old)])
        vectors.upsert(A, SIZE, [("item_a", new)])

        assert vectors.nearest(A, new, 5) == [("item_a", pytest.approx(1.0, abs=1e-5))]

    def test_what_was_deleted_is_never_near(self, vectors: VectorProvider) -> None:
        rows = some(20)
        vectors.upsert(A, SIZE, rows)

        vectors.delete(A, [rows[3][0], rows[4][0]])

        left = [id for id, _ in rows if id not in (rows[3][0], rows[4][0])]
        assert sorted(id for id, _ in vectors.nearest(A, rows[3][1], 20)) == left
        assert list(vectors.ids(A)) == left

    def test_deleting_what_is_not_there_is_no_error(self, vectors: VectorProvider) -> None:
        vectors.delete(A, ["item_x"])
        vectors.upsert(A, SIZE, some(1))
        vectors.delete(A, ["item_x"])
        vectors.delete(A, [])

        assert list(vectors.ids(A)) == ["item_0000"]

    def test_what_was_deleted_may_come_back(self, vectors: VectorProvider) -> None:
        rows = some(1)
        vectors.upsert(A, SIZE, rows)
        vectors.delete(A, [rows[0][0]])
        vectors.upsert(A, SIZE, rows)

        assert [id for id, _ in vectors.nearest(A, rows[0][1], 1)] == [rows[0][0]]

    def test_collections_do_not_mix(self, vectors: VectorProvider) -> None:
        ours, theirs = some(5, seed=1), some(5, seed=2)
        vectors.upsert(A, SIZE, ours)
        vectors.upsert(B, SIZE, theirs)

        assert vectors.nearest(A, theirs[0][1], 1)[0][1] < 0.99
        assert vectors.nearest(B, theirs[0][1], 1) == [(theirs[0][0], pytest.approx(1.0, abs=1e-5))]

        vectors.delete(A, [id for id, _ in ours])
        assert len(vectors.nearest(B, theirs[0][1], 9)) == 5

    def test_collections_may_have_other_dimensions(self, vectors: VectorProvider) -> None:
        small = some(3, size=8)
        vectors.upsert(A, SIZE, some(3))
        vectors.upsert(B, 8, small)

        assert len(vectors.nearest(B, small[0][1], 9)) == 3

    @pytest.mark.parametrize("k", [0, 1, 4, 5, 50, 5_000])
    def test_k_may_be_any_number(self, k: int, vectors: VectorProvider) -> None:
        rows = some(5)
        vectors.upsert(A, SIZE, rows)

        assert len(vectors.nearest(A, rows[0][1], k)) == min(k, 5)

    def test_an_unknown_collection_holds_nothing(self, vectors: VectorProvider) -> None:
        assert vectors.nearest(A, some(1)[0][1], 5) == []
        assert list(vectors.ids(A)) == []

    def test_a_dropped_collection_holds_nothing_and_begins_anew(
        self, vectors: VectorProvider
    ) -> None:
        vectors.upsert(A, SIZE, some(5))
        vectors.upsert(B, SIZE, some(2))
        vectors.drop(A)
        vectors.drop(A)

        assert vectors.nearest(A, some(1)[0][1], 5) == []
        assert list(vectors.ids(A)) == []
        assert len(list(vectors.ids(B))) == 2
        vectors.upsert(A, 8, some(3, size=8))
        assert len(vectors.nearest(A, some(1, size=8)[0][1], 5)) == 3

    def test_ids_come_in_order(self, vectors: VectorProvider) -> None:
        vectors.upsert(A, SIZE, some(30)[::-1])

        assert list(vectors.ids(A)) == [id for id, _ in some(30)]

    def test_vectors_outlive_their_keeper(
        self, vectors: VectorProvider, reopened: Callable[[], VectorProvider]
    ) -> None:
        rows = some(10)
        vectors.upsert(A, SIZE, rows)
        vectors.delete(A, [rows[0][0]])

        again = reopened()

        assert list(again.ids(A)) == [id for id, _ in rows[1:]]
        assert again.nearest(A, rows[1][1], 1) == [(rows[1][0], pytest.approx(1.0, abs=1e-5))]
