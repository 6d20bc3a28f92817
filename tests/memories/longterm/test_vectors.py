"""The contract of vectors, on each of its keepers, for real."""

import threading
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from memories.longterm.spoken import row, talk

import holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background.worker import JobThread, bounded
from holdfast.memories.longterm.recall.index import Postings
from holdfast.memories.longterm.vectors import registry
from holdfast.memories.longterm.vectors.base import (
    MOST_COMPARED,
    VectorProvider,
    WithRows,
    in_order,
)
from holdfast.memories.longterm.vectors.chroma import ChromaVectors
from holdfast.memories.longterm.vectors.embedder import unit
from holdfast.memories.longterm.vectors.registry import (
    Following,
    PgVectors,
    SqliteVec,
    schema_of_extension,
)
from holdfast.memories.longterm.vectors.table import (
    ComputedCosines,
    ListedCosines,
    Matrices,
    TableVectors,
    among,
    matrix_of,
)
from holdfast.testing.contracts.vectors import SIZE, A, B, VectorsContract, some
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import new_workspace

Opening = Callable[[], VectorProvider]


def opening(make: Opening) -> Iterator[Opening]:
    """Give what opens a keeper, closing the one before it; and close the last at the end."""
    made: list[VectorProvider] = []

    def again() -> VectorProvider:
        if made:
            made[-1].close()
        made.append(make())
        return made[-1]

    yield again
    if made:
        made[-1].close()


def scoped(hf: Holdfast, workspace: str) -> Engine:
    return hf.engine.scoped(Scope(workspace=workspace, user="ada"))


@contextmanager
def collections_of(hf: Holdfast, workspace: str) -> Generator[Engine]:
    """Give *hf*'s engine as that of a user who has the contract's collections, and take both away.

    Vectors are in tables of all users: row-level security admits those of a user's collections.
    """
    engine = scoped(hf, workspace)
    sql = engine.queries("holdfast.memories.longterm")

    def make(tx: Transaction) -> list[int]:
        numbers = tx.numbers(2)
        for number, id in zip(numbers, (A, B), strict=True):
            named = {"namespace": id, "workspace_id": "", "analyzer": 1, "now": 0}
            tx.run(sql.make_collection, number=number, id=id, **named)
        return numbers

    made = engine.write(make)
    yield engine
    for id in (A, B):
        TableVectors(engine, workspace, Matrices()).drop(id)
    for number in made:
        engine.write(lambda tx, number=number: tx.run(sql.drop_collection, collection=number))


@pytest.fixture(scope="module")
def extended(postgres_server: PostgresServer) -> Iterator[Holdfast]:
    """Give a database that has the extension, elsewhere than our tables are."""
    name = postgres_server.new_database(TEMPLATE)
    postgres_server.execute("create extension vector schema public", database=name)
    with holdfast.open(postgres_server.url(name)) as hf:
        yield hf


@pytest.fixture
def vectors(reopened: Opening) -> VectorProvider:
    return reopened()


class TestInATable(VectorsContract):
    @pytest.fixture(params=[False, True], ids=["numpy", "plain"])
    def reopened(self, request: pytest.FixtureRequest, sqlite_file: Path) -> Iterator[Opening]:
        with holdfast.open(sqlite_file) as hf:
            engine = scoped(hf, "w")
            yield from opening(lambda: TableVectors(engine, "w", Matrices(), plain=request.param))

    def test_both_ways_of_comparing_give_the_same_numbers(self, sqlite_file: Path) -> None:
        with holdfast.open(sqlite_file) as hf:
            plain = TableVectors(scoped(hf, "w"), "w", Matrices(), plain=True)
            fast = TableVectors(scoped(hf, "w"), "w", Matrices())
            fast.upsert(A, SIZE, some(300))
            asked = some(1, seed=9)[0][1]

            assert fast.nearest(A, asked, 300) == plain.nearest(A, asked, 300)

    def test_a_write_elsewhere_is_seen(self, sqlite_file: Path) -> None:
        with holdfast.open(sqlite_file) as one, holdfast.open(sqlite_file) as other:
            ours = TableVectors(scoped(one, "w"), "w", Matrices())
            theirs = TableVectors(scoped(other, "w"), "w", Matrices())
            rows = some(3)
            ours.upsert(A, SIZE, rows)
            assert len(theirs.nearest(A, rows[0][1], 9)) == 3

            ours.drop(A)
            ours.upsert(A, SIZE, rows[:1])

            assert len(theirs.nearest(A, rows[0][1], 9)) == 1

    def test_a_write_that_is_undone_leaves_nothing(self, sqlite_file: Path) -> None:
        with holdfast.open(sqlite_file) as hf:
            engine = scoped(hf, "w")
            vectors = TableVectors(engine, "w", Matrices())

            def work(tx: Transaction) -> None:
                vectors.upsert_in(tx, A, SIZE, some(1))
                raise KeyError("undone")

            with pytest.raises(KeyError):
                engine.write(work)

            assert list(vectors.ids(A)) == []

    def test_another_workspace_sees_nothing(self, sqlite_file: Path) -> None:
        with holdfast.open(sqlite_file) as hf:
            TableVectors(scoped(hf, "w"), "w", Matrices()).upsert(A, SIZE, some(1))

            theirs = TableVectors(scoped(hf, "v"), "v", Matrices())

            assert theirs.nearest(A, some(1)[0][1], 5) == []


class TestInATableOfPostgres(VectorsContract):
    @pytest.fixture
    def reopened(self, extended: Holdfast) -> Iterator[Opening]:
        workspace = new_workspace()
        with collections_of(extended, workspace) as engine:
            yield from opening(lambda: TableVectors(engine, workspace, Matrices()))


class TestWithPgvector(VectorsContract):
    @pytest.fixture
    def reopened(self, extended: Holdfast) -> Iterator[Opening]:
        workspace = new_workspace()
        with collections_of(extended, workspace) as engine:
            schema = schema_of_extension(engine)
            assert schema == "public"
            yield from opening(lambda: PgVectors(engine, workspace, schema))

    def test_it_finds_what_was_compared_in_process(self, extended: Holdfast) -> None:
        workspace = new_workspace()
        with collections_of(extended, workspace) as engine:
            table = TableVectors(engine, workspace, Matrices())
            table.upsert(A, SIZE, some(20))

            found = PgVectors(engine, workspace, "public").nearest(A, some(1)[0][1], 20)

            expected = table.nearest(A, some(1)[0][1], 20)
            assert dict(found) == pytest.approx(dict(expected), abs=1e-5)


class TestWithSqliteVec(VectorsContract):
    @pytest.fixture
    def reopened(self, tmp_path: Path) -> Iterator[Opening]:
        yield from opening(lambda: SqliteVec(tmp_path / "vectors.db"))


class TestWithSqliteVecInMemory:
    def test_it_needs_no_file(self) -> None:
        vectors = SqliteVec(":memory:")
        vectors.upsert(A, SIZE, some(2))

        assert len(vectors.nearest(A, some(1)[0][1], 5)) == 2
        vectors.close()


class TestWithChroma(VectorsContract):
    @pytest.fixture
    def reopened(self, tmp_path: Path) -> Iterator[Opening]:
        yield from opening(lambda: ChromaVectors(tmp_path / "chroma"))


def test_a_database_without_the_extension_says_so(fresh_postgres_url: str) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        assert schema_of_extension(hf.engine) is None


def test_keepers_beside_the_rows_write_with_them() -> None:
    assert issubclass(TableVectors, WithRows)
    assert issubclass(PgVectors, WithRows)
    assert not issubclass(SqliteVec, WithRows)
    assert not issubclass(ChromaVectors, WithRows)


class BusyOnce(TableVectors):
    """A provider whose first deletion fails, and whose second one leaves something."""

    def __init__(self) -> None:
        self.calls = 0
        self.empty = threading.Event()

    def drop(self, collection: str) -> None:
        self.calls += 1
        if self.calls == 1:
            raise OSError(f"{collection} is busy")
        if self.calls == 3:
            self.empty.set()


def test_vectors_that_a_busy_provider_did_not_delete_are_deleted_later() -> None:
    provider, worker = BusyOnce(), JobThread()
    deletion = Following(provider, "ltm_1", None)

    assert deletion.tend() == 1.0
    assert not provider.empty.is_set()
    worker.wake("deletion", deletion)

    assert provider.empty.wait(60)
    worker.close()
    assert provider.calls >= 3


def test_a_collection_is_dropped_again_while_a_provider_may_still_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(registry, "monotonic", lambda: now[0])
    provider, waits = Counting.__new__(Counting), list[float]()
    provider.calls = 0
    deletion = Following(provider, "ltm_1", None)

    while (wait := deletion.tend()) is not None:
        waits.append(wait)
        now[0] += wait

    assert waits == [1.0, 4.0, 16.0]
    assert provider.calls == 4


def test_single_vectors_are_deleted_once() -> None:
    vectors = TableVectors.__new__(Counting)
    vectors.calls = 0

    assert Following(vectors, "ltm_1", ("a",)).tend() is None
    assert vectors.calls == 1


class Counting(TableVectors):
    """A provider that counts deletions."""

    calls: int

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        del collection, ids
        self.calls += 1

    def drop(self, collection: str) -> None:
        del collection
        self.calls += 1


def test_the_vectors_of_a_large_collection_take_half_the_memory_and_find_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random, dimension, most, large = Random(5), 8, 10, 2_000
    monkeypatch.setattr("holdfast.memories.longterm.vectors.table.HALF_ABOVE", large)

    def any_unit() -> "array[float]":
        return unit([random.gauss(0, 1) for _ in range(dimension)])

    rows = [(f"turn_{number}", any_unit()) for number in range(large + 1_500)]
    whole, half = matrix_of(rows, dimension, plain=True), matrix_of(rows, dimension)
    assert whole.size_bytes - half.size_bytes == 2 * dimension * len(rows)
    assert half.ids == whole.ids
    assert matrix_of(rows[:large], dimension).numbers.typecode == "f"

    for _ in range(5):
        query = any_unit()
        exact = whole.cosines(query, plain=True)
        found = half.nearest(query, most)
        assert [id for id, _ in found] == [id for id, _ in half.nearest(query, most, plain=True)]
        assert all(abs(cosine - exact[id]) < 0.0005 for id, cosine in found)
        least = sorted(exact.values(), reverse=True)[most - 1]
        surely = {id for id, cosine in exact.items() if cosine > least + 0.001}
        assert surely <= {id for id, _ in found}
        assert min(exact[id] for id, _ in found) > least - 0.001


def test_cosines_that_are_computed_when_needed_are_those_of_plain_python() -> None:
    random, dimension, count = Random(7), 16, MOST_COMPARED + 40
    rows = [
        (f"turn_{number:05}", unit([random.gauss(0, 1) for _ in range(dimension)]))
        for number in range(count)
    ]
    matrix, query = matrix_of(rows, dimension), rows[3][1]
    exact = matrix.cosines(query, plain=True)
    found = matrix.cosines(query)

    assert isinstance(found, ComputedCosines)
    assert (len(exact), len(found), set(found) - set(exact)) == (count, MOST_COMPARED, set())
    assert found["turn_00003"] == exact["turn_00003"] == pytest.approx(1)
    ordered = in_order(list(exact.items()), count)
    near, far = [id for id, _ in ordered[:50]], [id for id, _ in ordered[-20:]]
    assert among(found, [*near, *far, "turn_gone"]) == {id: exact[id] for id in near}
    assert found.nearest(200) == matrix.nearest(query, 200, plain=True) == ordered[:200]
    assert found.nearest(count + 1) == ordered


def test_a_row_of_postings_gets_the_cosine_of_its_id_whatever_the_matrix_holds() -> None:
    ids = ["turn_0002", "turn_gone", "turn_0000"]
    postings = Postings(talk("tea", "rain", "boats"))
    one, two = ListedCosines(ids, [0.5, 0.9, 0.25]), ListedCosines(ids, [0.75, 0.1, 0.125])

    assert postings.numbered(one) == {2: 0.5, 0: 0.25} == postings.numbered(dict(one))
    assert postings.numbered(two) == {2: 0.75, 0: 0.125}
    postings.add([row(9, "late", id="turn_gone")])
    assert postings.numbered(two) == {2: 0.75, 3: 0.1, 0: 0.125}


def test_work_within_a_time_limit_has_a_thread_that_is_used_again() -> None:
    free = threading.Event()
    threads: dict[str, threading.Thread] = {}

    def asked(name: str, seconds: float = 60, *, waits: bool = False) -> str:
        def work() -> str:
            threads[name] = threading.current_thread()
            if waits:
                free.wait(60)
            return threads[name].name

        return bounded(work, seconds, name=name)

    assert (asked("one"), asked("two")) == ("one", "two")
    assert threads["one"] is threads["two"]

    with pytest.raises(TimeoutError, match="three took longer than 0 s"):
        asked("three", 0, waits=True)
    assert asked("four") == "four"
    assert threads["four"] is not threads["one"]
    free.set()
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 / 0, 60, name="five")
