"""The contract of vectors on Qdrant and Pinecone, and what happens while they are away."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contracts.longterm_items import kept, memory_of, texts
from contracts.longterm_vectors import SECONDS, LongTermMeaningContract, until, vector_ids
from memories.longterm.vector_servers import (
    KEY,
    PineconeServer,
    QdrantServer,
    VectorServer,
    serving,
)

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.memories.longterm.vectors.base import VectorProvider, WithRows
from holdfast.memories.longterm.vectors.compare import standing_of
from holdfast.memories.longterm.vectors.embedder import EmbeddingFailed, embedded
from holdfast.memories.longterm.vectors.pinecone import PineconeVectors
from holdfast.memories.longterm.vectors.qdrant import IN_MEMORY, QdrantVectors
from holdfast.testing.contracts.vectors import SIZE, A, B, VectorsContract, some
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.fakes import FrozenClock

VARIABLES = ("QDRANT_URL", "QDRANT_API_KEY", "PINECONE_API_KEY", "PINECONE_INDEX_HOST")
WIDE = 2 * SIZE
"""Dimension of the index of Pinecone: vectors of the tests are padded."""
Opening = Callable[[], VectorProvider]

# The client warns of a key without TLS, which is loopback here.
pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def qdrant(tmp_path: Path) -> Iterator[VectorServer]:
    with serving(QdrantServer(tmp_path / "qdrant")) as server:
        yield server


@pytest.fixture
def pinecone() -> Iterator[VectorServer]:
    with serving(PineconeServer(WIDE)) as server:
        yield server


def reopening(make: Opening) -> Iterator[Opening]:
    """Give what opens a provider, closing the one before it; and close the last at the end."""
    made: list[VectorProvider] = []

    def again() -> VectorProvider:
        if made:
            made[-1].close()
        made.append(make())
        return made[-1]

    yield again
    made[-1].close()


@pytest.fixture
def vectors(reopened: Opening) -> VectorProvider:
    return reopened()


class TestWithQdrant(VectorsContract):
    @pytest.fixture
    def reopened(self, qdrant: VectorServer) -> Iterator[Opening]:
        yield from reopening(lambda: QdrantVectors(qdrant.url, api_key=KEY))

    def test_its_users_share_one_collection_of_qdrant(
        self, vectors: VectorProvider, qdrant: VectorServer
    ) -> None:
        for name in (A, B):
            vectors.upsert(name, SIZE, some(2))

        made = [(path, body) for verb, path, body in qdrant.received if verb == "PUT"]
        collections = [path for path, _ in made if path.count("/") == 2]
        indexes = [body for path, body in made if path.endswith("/index")]
        assert collections == [f"/collections/holdfast_{SIZE}"]
        assert [index["field_schema"]["is_tenant"] for index in indexes] == [True]

    def test_it_receives_ids_and_vectors_alone(
        self, vectors: VectorProvider, qdrant: VectorServer
    ) -> None:
        vectors.upsert(A, SIZE, some(1))

        (points,) = [body for _, path, body in qdrant.received if path.endswith("/points")]
        assert points["points"][0]["payload"] == {"collection": A, "id": "item_0000"}

    def test_queries_are_exact(self, vectors: VectorProvider, qdrant: VectorServer) -> None:
        vectors.upsert(A, SIZE, some(1))
        vectors.nearest(A, some(1)[0][1], 1)

        assert qdrant.received[-1][2]["params"]["exact"] is True

    def test_a_collection_deleted_at_the_server_is_made_at_the_next_try(
        self, vectors: VectorProvider, qdrant: VectorServer
    ) -> None:
        assert isinstance(qdrant, QdrantServer)
        vectors.upsert(A, SIZE, some(1))
        with qdrant.lock:
            qdrant.client.delete_collection(f"holdfast_{SIZE}")

        with pytest.raises(Exception, match="404"):
            vectors.upsert(A, SIZE, some(2))
        vectors.upsert(A, SIZE, some(2))

        assert len(list(vectors.ids(A))) == 2

    def test_other_collections_of_the_server_are_left_alone(
        self, vectors: VectorProvider, qdrant: VectorServer
    ) -> None:
        vectors.upsert(A, SIZE, some(1))
        with qdrant.lock:
            assert isinstance(qdrant, QdrantServer)
            size = qdrant.client.get_collection(f"holdfast_{SIZE}").config.params.vectors
            assert size is not None
            qdrant.client.create_collection("holdfast_of_others", vectors_config=size)
        before = len(qdrant.received)

        vectors.drop(A)

        assert not any("of_others" in path for _, path, _ in qdrant.received[before:])

    def test_many_vectors_go_in_several_requests(self, vectors: VectorProvider) -> None:
        rows = some(1_010, size=8)
        vectors.upsert(A, 8, rows)

        assert list(vectors.ids(A)) == [id for id, _ in rows]


class TestWithQdrantInMemory(VectorsContract):
    @pytest.fixture
    def reopened(self) -> Iterator[Opening]:
        made = QdrantVectors(IN_MEMORY)
        yield lambda: made
        made.close()


class TestWithPinecone(VectorsContract):
    @pytest.fixture
    def reopened(self, pinecone: VectorServer) -> Iterator[Opening]:
        yield from reopening(lambda: PineconeVectors(pinecone.url, api_key=KEY))

    def test_requests_stay_within_the_limits_of_the_service(self, pinecone: VectorServer) -> None:
        with serving(PineconeServer(3_072)) as wide:
            vectors = PineconeVectors(wide.url, api_key=KEY)
            vectors.upsert(A, 3_072, some(64, size=3_072))
            vectors.close()

            assert len([path for _, path, _ in wide.received if path.endswith("upsert")]) > 1
        narrow = PineconeVectors(pinecone.url, api_key=KEY)
        rows = some(1_100, size=2)
        narrow.upsert(A, 2, rows)
        narrow.delete(A, [id for id, _ in rows[:1_050]])

        assert list(narrow.ids(A)) == [id for id, _ in rows[1_050:]]
        narrow.close()

    def test_it_receives_ids_and_vectors_alone(
        self, vectors: VectorProvider, pinecone: VectorServer
    ) -> None:
        vectors.upsert(A, SIZE, some(1))

        assert set(pinecone.received[-1][2]) == {"vectors", "namespace"}
        assert set(pinecone.received[-1][2]["vectors"][0]) == {"id", "values"}

    def test_a_vector_longer_than_the_index_is_refused_with_both_dimensions(
        self, vectors: VectorProvider
    ) -> None:
        with pytest.raises(EmbeddingFailed, match="has 64 dimensions, the embedder 96"):
            vectors.upsert(A, 96, some(1, size=96))

    def test_an_index_with_another_metric_is_refused(self) -> None:
        with serving(PineconeServer(SIZE, metric="euclidean")) as server:
            vectors = PineconeVectors(server.url, api_key=KEY)

            with pytest.raises(EmbeddingFailed, match="euclidean"):
                vectors.upsert(A, SIZE, some(1))
            vectors.close()

    def test_a_dropped_collection_is_empty_though_reads_come_late(self) -> None:
        with serving(PineconeServer(SIZE, lag=3)) as server:
            waits: list[float] = []
            vectors = PineconeVectors(server.url, api_key=KEY, pause=waits.append)
            vectors.upsert(A, SIZE, some(5))
            until(lambda: len(list(vectors.ids(A))) == 5)

            vectors.drop(A)

            assert list(vectors.ids(A)) == []
            assert waits == [0.25, 0.5, 1.0]
            vectors.close()

    def test_a_collection_that_stays_visible_is_reported(self) -> None:
        with serving(PineconeServer(SIZE, lag=99)) as server:
            vectors = PineconeVectors(server.url, api_key=KEY, pause=lambda _: None)
            vectors.upsert(A, SIZE, some(5))
            until(lambda: len(list(vectors.ids(A))) == 5)

            with pytest.raises(EmbeddingFailed, match="still lists"):
                vectors.drop(A)
            vectors.close()


def test_services_follow_the_rows() -> None:
    assert not issubclass(QdrantVectors, WithRows)
    assert not issubclass(PineconeVectors, WithRows)


class OnSQLite(LongTermMeaningContract):
    @pytest.fixture
    def hf(self, sqlite_file: Path, clock: FrozenClock) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file, clock=clock) as hf:
            yield hf


class TestMeaningWithQdrant(OnSQLite):
    @pytest.fixture
    def provider(self, qdrant: VectorServer, monkeypatch: pytest.MonkeyPatch) -> str:
        use(monkeypatch, qdrant)
        return "qdrant"


class TestMeaningWithPinecone(OnSQLite):
    @pytest.fixture
    def provider(self, pinecone: VectorServer, monkeypatch: pytest.MonkeyPatch) -> str:
        use(monkeypatch, pinecone)
        return "pinecone"


def use(monkeypatch: pytest.MonkeyPatch, server: VectorServer) -> str:
    """Set the variables for *server*; return the provider's name."""
    if isinstance(server, QdrantServer):
        monkeypatch.setenv("QDRANT_URL", server.url)
        monkeypatch.setenv("QDRANT_API_KEY", KEY)
        return "qdrant"
    monkeypatch.setenv("PINECONE_INDEX_HOST", server.url)
    monkeypatch.setenv("PINECONE_API_KEY", KEY)
    return "pinecone"


@pytest.fixture(params=["qdrant", "pinecone"])
def server(request: pytest.FixtureRequest) -> VectorServer:
    return request.getfixturevalue(request.param)


@pytest.fixture
def hf(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast, server: VectorServer, monkeypatch: pytest.MonkeyPatch) -> LongTermMemory:
    """Give the memory of a user with its vectors at *server*."""
    options = LongTermOptions(vector_provider=use(monkeypatch, server))
    embedder = WordEmbedder(means={"automobile": "car", "vehicle": "car"})
    return memory_of(hf, "ada", embedder=embedder, options=options)


def test_recall_goes_by_words_while_a_service_fails(
    ltm: LongTermMemory, server: VectorServer
) -> None:
    kept(ltm, "Drives an automobile")
    assert ltm.flush(SECONDS).pending == 0
    assert ltm.recall("vehicle", min_relevance=0.1)[0].why["mode"] == "hybrid"

    server.status = 403

    assert texts(ltm.recall("automobile")) == ["Drives an automobile"]
    assert ltm.recall("automobile")[0].why["mode"] == "lexical"
    assert "the vector provider raised" in str(ltm.status().reason)
    server.status = 200
    assert ltm.recall("vehicle", min_relevance=0.1)[0].why["mode"] == "hybrid"


def test_what_is_forgotten_while_a_service_fails_is_deleted_once_it_works(
    ltm: LongTermMemory, server: VectorServer
) -> None:
    item = kept(ltm, "Drives an automobile")
    assert ltm.flush(SECONDS).pending == 0
    server.status = 403
    before = len(server.received)
    ltm.forget(item.id)
    until(lambda: len(server.received) > before)

    server.status = 200

    until(lambda: vector_ids(ltm) == [])


def test_vectors_of_an_earlier_model_are_replaced_though_the_service_failed_meanwhile(
    hf: Holdfast, ltm: LongTermMemory, server: VectorServer
) -> None:
    item = kept(ltm, "Drives an automobile")
    assert ltm.flush(SECONDS).pending == 0
    embedder = WordEmbedder("test:other")
    server.status = 403
    before = len(server.received)
    again = memory_of(hf, "ada", embedder=embedder, options=ltm.context.options)
    until(lambda: len(server.received) > before)

    server.status = 200

    assert again.flush(SECONDS).pending == 0
    standing = standing_of(again.context)
    assert standing is not None
    assert again.context.vectors is not None
    (vector,) = embedded(embedder, [item.text], "document")
    found = again.context.vectors.nearest(standing.id, vector, 5)
    assert found == [(item.id, pytest.approx(1.0, abs=1e-5))]


@pytest.mark.parametrize(
    ("provider", "given", "reason"),
    [
        ("qdrant", {}, "qdrant needs QDRANT_URL"),
        ("pinecone", {}, "pinecone needs PINECONE_API_KEY, PINECONE_INDEX_HOST"),
        ("pinecone", {"PINECONE_API_KEY": "k"}, "pinecone needs PINECONE_INDEX_HOST"),
        (
            "pinecone",
            {"PINECONE_API_KEY": "k", "PINECONE_INDEX_HOST": "nohost"},
            "pinecone could not be opened: PineconeValueError",
        ),
    ],
)
def test_a_service_without_its_variables_is_no_error(
    sqlite_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    given: dict[str, str],
    reason: str,
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with holdfast.open(sqlite_file) as hf:
        options = LongTermOptions(vector_provider=provider)
        ltm = memory_of(hf, "ada", embedder=WordEmbedder(), options=options)
        kept(ltm, "Drives a car")

        assert texts(ltm.recall("car")) == ["Drives a car"]
        assert ltm.status().reason == reason
