"""Writes of many callers to one store in one pass: each ends as if it were made alone."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import apsw
import pytest
from contracts.stores import sha256_of, still
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memories.durable.faults import FailingSQLite
from memories.groups import Call, together

import holdfast
from holdfast.engines.base import BatchedWork, Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    StoreFull,
    Unavailable,
)
from holdfast.ground.scope import Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Memory
from holdfast.testing.serving import new_workspace
from holdfast.testing.strategies import plain_paths

Outcome = tuple[object, ...]


class Gathering:
    """An engine that keeps the works of writes instead of running them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.works: list[BatchedWork[Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def write(self, work: BatchedWork[Any, Any]) -> None:
        """Keep *work*."""
        self.works.append(work)


def gathered(hf: Holdfast, calls: Sequence[Call]) -> Gathering:
    """Return the writes of *calls*, all of one kin."""
    made: list[Gathering] = []

    def through(engine: Engine) -> Engine:
        made.append(Gathering(engine))
        return cast("Engine", made[-1])

    through_it = hf.acting(through=through)
    for call in calls:
        call(through_it)
    assert len({work.kin for work in made[0].works}) == 1
    return made[0]


def in_one_pass(
    hf: Holdfast, calls: Sequence[Call], tx_of: Callable[[Transaction], Transaction] | None = None
) -> list[Any]:
    """Make the writes of *calls* in one pass; return the result or error of each."""
    there = gathered(hf, calls)
    work, items = there.works[0].work, [each.item for each in there.works]
    return list(there.engine.write(lambda tx: work(tx_of(tx) if tx_of else tx, items)))


def one_by_one(hf: Holdfast, calls: Sequence[Call]) -> list[Any]:
    """Make the same writes one after the other."""
    done: list[Any] = []
    for call in calls:
        try:
            done.append(call(hf))
        except HoldfastError as error:
            done.append(error)
    return done


def brief(outcomes: Sequence[Any], places: dict[str, str]) -> list[Outcome]:
    """Return what is the same of outcomes in two stores; *places* are the paths of ids."""
    found: list[Outcome] = []
    for each in outcomes:
        if isinstance(each, Memory):
            places[each.id] = each.path
            found.append((each.path, each.content_sha256, each.content_size_bytes, each.content))
        elif isinstance(each, PathTaken):
            found.append((PathTaken, each.conflicting_path, places.get(each.conflicting_memory_id)))
        elif isinstance(each, HoldfastError):
            found.append((type(each),))
        else:
            found.append((each.type, places.get(each.id)))
    return found


def state(hf: Holdfast, store: str) -> list[Outcome]:
    """Return the memories of a store and its versions, oldest first, without ids and times."""
    memories, versions = hf.memory_stores.memories, hf.memory_stores.memory_versions
    heads = [each for each in memories.list(store, view="full").all() if isinstance(each, Memory)]
    history = list(versions.list(store, view="full").all())[::-1]
    return [
        *((each.path, each.content) for each in heads),
        *((each.operation, each.path, each.content) for each in history),
        *((match.memory.path, match.score) for match in memories.search(store, "x y")),
    ]


def check_whole(hf: Holdfast) -> None:
    """Demand that rows and chains are whole; tests share a database, and not its schema."""
    assert [each for each in hf.verify().findings if each.check != "schema"] == []


def creating(store: str, path: str, content: str = "x") -> Call:
    return lambda hf: hf.memory_stores.memories.create(store, path=path, content=content)


def updating(store: str, memory: str, content: str, expected: str | None = None) -> Call:
    return lambda hf: hf.memory_stores.memories.update(
        memory,
        memory_store_id=store,
        content=content,
        precondition=still(expected) if expected is not None else None,
        view="full",
    )


def deleting(store: str, memory: str, expected: str | None = None) -> Call:
    return lambda hf: hf.memory_stores.memories.delete(
        memory,
        memory_store_id=store,
        expected_content_sha256=sha256_of(expected) if expected is not None else None,
    )


@pytest.fixture(scope="module")
def shared_hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf
        assert hf.verify().findings == ()


@pytest.fixture
def hf(shared_hf: Holdfast) -> Holdfast:
    return shared_hf.acting(workspace=new_workspace())


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Notes").id


shared = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
contents = st.sampled_from(["x", "y", "x y", ""])


@shared
@given(there=st.lists(plain_paths(), max_size=3), new=st.lists(plain_paths(), max_size=12))
def test_creates_in_one_pass_end_as_they_do_one_by_one(
    hf: Holdfast, there: list[str], new: list[str]
) -> None:
    found: list[list[Outcome]] = []
    for make in (one_by_one, in_one_pass):
        store = hf.memory_stores.create(name="Notes").id
        places: dict[str, str] = {}
        brief(one_by_one(hf, [creating(store, path, "old") for path in there]), places)
        calls = [creating(store, path, f"x {number}") for number, path in enumerate(new)]
        found.append([*brief(make(hf, calls) if calls else [], places), *state(hf, store)])

    assert found[0] == found[1]


@shared
@given(
    st.lists(
        st.tuples(st.sampled_from(["/a", "/b", "/c"]), contents, st.none() | contents),
        min_size=1,
        max_size=12,
    )
)
def test_updates_in_one_pass_end_as_they_do_one_by_one(
    hf: Holdfast, changes: list[tuple[str, str, str | None]]
) -> None:
    found: list[list[Outcome]] = []
    for make in (one_by_one, in_one_pass):
        store = hf.memory_stores.create(name="Notes").id
        places: dict[str, str] = {}
        there = one_by_one(hf, [creating(store, path) for path in ("/a", "/b")])
        ids = {each.path: each.id for each in there}
        calls = [
            updating(store, ids.get(path, "mem_" + "0" * 24), content, expected)
            for path, content, expected in changes
        ]
        found.append([*brief(make(hf, calls), places), *state(hf, store)])

    assert found[0] == found[1]


@shared
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | contents), min_size=1, max_size=8))
def test_deletes_in_one_pass_end_as_they_do_one_by_one(
    hf: Holdfast, removals: list[tuple[str, str | None]]
) -> None:
    found: list[list[Outcome]] = []
    for make in (one_by_one, in_one_pass):
        store = hf.memory_stores.create(name="Notes").id
        there = one_by_one(hf, [creating(store, f"/{name}") for name in "abc"])
        places = {each.id: each.path for each in there}
        ids = {path: id for id, path in places.items()}
        calls = [
            deleting(store, ids.get(f"/{name}", "mem_" + "0" * 24), expected)
            for name, expected in removals
        ]
        found.append([*brief(make(hf, calls), places), *state(hf, store)])

    assert found[0] == found[1]


def test_each_version_of_a_pass_has_an_instant_of_its_own(hf: Holdfast, store: str) -> None:
    made = in_one_pass(hf, [creating(store, f"/{number}") for number in range(5)])

    instants = [each.created_at for each in made]
    assert sorted(set(instants)) == instants
    versions = list(hf.memory_stores.memory_versions.list(store).all())[::-1]
    assert [each.memory_id for each in versions] == [each.id for each in made]
    assert [each.created_at for each in versions] == instants


def test_a_moment_within_a_pass_divides_its_versions(kept: Holdfast) -> None:
    stores = kept.memory_stores
    store = stores.create(name="Notes").id
    made = in_one_pass(kept, [creating(store, f"/{number}") for number in range(4)])
    stores.memories.create(store, path="/4", content="x")
    in_one_pass(kept, [updating(store, each.id, "y") for each in made[:3]])
    every = list(stores.memory_versions.list(store).all())
    instants = sorted({each.created_at for each in every})

    for first, last in combinations_with_replacement(instants, 2):
        found = stores.memory_versions.list(
            store, created_at_gte=first, created_at_lte=last, limit=2
        )
        within = [each.id for each in every if first <= each.created_at <= last]
        assert [each.id for each in found.all()] == within
        of_one = stores.memory_versions.list(
            store, memory_id=made[0].id, created_at_gte=first, created_at_lte=last, limit=1
        )
        assert {each.id for each in of_one.all()} == {
            each.id for each in every if each.id in within and each.memory_id == made[0].id
        }
    for instant in instants:
        there = {each.memory_id for each in every if each.created_at <= instant}
        then = stores.memories.list(store, at=instant).all()
        assert {each.id for each in then if isinstance(each, Memory)} == there


@pytest.mark.parametrize("count", [1, 2, 64])
def test_a_pass_of_creates_is_five_statements_for_any_number(
    hf: Holdfast, store: str, count: int
) -> None:
    engine = cast("SQLiteEngine", hf.engine)
    there = gathered(hf, [creating(store, f"/{number}") for number in range(count)])
    work, items = there.works[0].work, [each.item for each in there.works]
    counted: list[int] = []

    def write(tx: Transaction) -> None:
        before = engine.statements
        work(tx, items)
        counted.append(engine.statements - before)

    there.engine.write(write)
    assert counted[0] <= 5


def test_who_comes_after_the_last_place_is_refused_and_the_others_are_not(
    hf: Holdfast, store: str
) -> None:
    hf.memory_stores.configure(memories_cap=3)
    done = in_one_pass(hf, [creating(store, f"/{number}") for number in range(5)])

    assert [type(each) for each in done] == [Memory] * 3 + [StoreFull] * 2


def test_every_write_of_a_pass_has_an_error_of_its_own(hf: Holdfast, store: str) -> None:
    hf.memory_stores.archive(store)
    done = in_one_pass(hf, [creating(store, f"/{number}") for number in range(3)])

    assert [type(each) for each in done] == [StoreArchived] * 3
    assert len({id(each) for each in done}) == 3


class Failing:
    """A transaction whose statements fail from one on."""

    def __init__(self, tx: Transaction, at: int) -> None:
        self._tx, self._left = tx, at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name in {"first", "all", "send", "run", "run_many", "each"}:
            self._left -= 1
            if self._left < 0:
                raise Unavailable("It failed.", reason="io")
        return found


@pytest.mark.parametrize("count", [1, 2, 64])
@pytest.mark.parametrize("kind", ["create", "update", "delete"])
def test_a_failure_at_any_statement_leaves_the_store_as_it_was(
    hf: Holdfast, store: str, count: int, kind: str
) -> None:
    there = in_one_pass(hf, [creating(store, f"/{number}") for number in range(count)])
    calls = {
        "create": [creating(store, f"/new/{number}") for number in range(count)],
        "update": [updating(store, each.id, "y") for each in there],
        "delete": [deleting(store, each.id) for each in there],
    }[kind]
    before, failed = state(hf, store), 0
    for at in range(20):
        try:
            in_one_pass(hf, calls, lambda tx, at=at: cast("Transaction", Failing(tx, at)))
        except Unavailable:
            failed += 1
            assert state(hf, store) == before
        else:
            break

    assert 5 <= failed < 20
    assert state(hf, store) != before


def test_of_many_callers_each_gets_its_own_answer(target: str) -> None:
    workspace, start = new_workspace(), Barrier(16)
    with holdfast.open(target, workspace=workspace) as hf:
        store = hf.memory_stores.create(name="Notes").id
        memories = hf.memory_stores.memories
        memories.create(store, path="/taken", content="x")

        def one(caller: int) -> list[str]:
            start.wait()
            ended: list[str] = []
            for turn in range(10):
                path = "/taken" if (caller + turn) % 10 == 0 else f"/{caller}/{turn}"
                try:
                    made = memories.create(store, path=path, content=f"{caller} {turn}")
                    memories.update(made.id, memory_store_id=store, content=f"{caller} {turn}!")
                    read = memories.retrieve(made.id, memory_store_id=store)
                    ended.append(f"{read.path} {read.content}")
                except Conflict as error:
                    ended.append(type(error).__name__)
            return ended

        with ThreadPoolExecutor(16) as pool:
            ended = list(pool.map(one, range(16)))

        for caller, answers in enumerate(ended):
            assert answers == [
                "PathTaken" if (caller + turn) % 10 == 0 else f"/{caller}/{turn} {caller} {turn}!"
                for turn in range(10)
            ]
        check_whole(hf)


class Wanted(Exception):
    """Raised by a write after its first change."""


def test_each_of_64_callers_gets_its_own_outcome(kept: Holdfast) -> None:
    memories, store = kept.memory_stores.memories, kept.memory_stores.create(name="Notes").id
    memories.create(store, path="/taken", content="x")

    engine = kept.engine.scoped(Scope(workspace=kept.workspace))

    def late(tx: Transaction) -> None:
        tx.run("update stores set name = name")
        raise Wanted

    def caller(me: int) -> dict[str, str]:
        kept_here: dict[str, str] = {}
        for turn in range(6):
            path, text, mark = f"/{me}/{turn}", f"{me} {turn}", me * 6 + turn
            if mark % 50 == 7:
                with pytest.raises(Wanted):
                    engine.write(late)
            elif mark % 10 == 0:
                with pytest.raises(PathTaken):
                    memories.create(store, path="/taken", content=text)
            elif mark % 3 == 0:
                edit = Save(path=path, content=text)
                (applied,) = memories.apply(store, [edit], edit_id=f"edit_{mark}")
                assert applied.memories[0].path == path
                kept_here[path] = text
            else:
                made = memories.create(store, path=path, content="first")
                changed = memories.update(made.id, memory_store_id=store, content=text)
                assert changed.content_sha256 == sha256_of(text)
                kept_here[path] = text
        return kept_here

    with ThreadPoolExecutor(64) as pool:
        written = {
            path: text for each in pool.map(caller, range(64)) for path, text in each.items()
        }

    assert contents_of(kept, store) == written | {"/taken": "x"}
    check_whole(kept)


@pytest.fixture
def alone(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


KINDS = ("create", "update", "save", "save new", "delete")


@pytest.mark.parametrize(("callers", "step"), [(1, 1), (2, 2), (64, 29)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_a_statement_of_a_group_leaves_no_half_write(
    alone: Holdfast, kind: str, callers: int, step: int
) -> None:
    hf, stores = alone, alone.memory_stores
    failing = FailingSQLite(cast("SQLiteEngine", hf.engine), apsw.SQLITE_FULL)
    wanted: dict[str, dict[str, str]] = {}
    statement, fired = 1, ["none yet"]

    while fired:
        store = stores.create(name="Notes").id
        there = in_one_pass(hf, [creating(store, f"/{number}") for number in range(callers)])
        expected = wanted[store] = dict.fromkeys((each.path for each in there), "x")
        calls = [act_on(kind, store, each, f"{statement}") for each in there]
        with failing.at(statement) as fired:
            results = together(hf, calls)
        for each, result in zip(there, results, strict=True):
            if isinstance(result, Unavailable):
                assert result.written is False
            elif kind == "delete":
                del expected[each.path]
            else:
                name = f"{each.path} new" if kind in ("create", "save new") else each.path
                expected[name] = f"y {statement}"
        assert contents_of(hf, store) == expected
        statement += step

    assert statement > 6
    assert {store: contents_of(hf, store) for store in wanted} == wanted
    assert hf.verify().findings == ()


def contents_of(hf: Holdfast, store: str) -> dict[str, str | None]:
    """Return the content of each memory of *store*, by its path."""
    heads = hf.memory_stores.memories.list(store, view="full").all()
    return {each.path: each.content for each in heads if isinstance(each, Memory)}


def act_on(kind: str, store: str, there: Memory, mark: str) -> Call:
    text = f"y {mark}"
    match kind:
        case "create":
            return creating(store, f"{there.path} new", text)
        case "update":
            return updating(store, there.id, text)
        case "delete":
            return deleting(store, there.id)
        case "save":
            edit = Save(path=there.path, content=text, memory_id=there.id)
        case _:
            edit = Save(path=f"{there.path} new", content=text)
    id = f"edit_{mark}x{there.id.removeprefix('mem_')}"
    return lambda hf: hf.memory_stores.memories.apply(store, [edit], edit_id=id)


SAVES = st.lists(
    st.tuples(
        st.sampled_from(["/a", "/b", "/c", "/c/d", "/e"]),
        contents,
        st.sampled_from(["path", "id", "base", "append", "new", "again"]),
    ),
    min_size=1,
    max_size=16,
)


def saving(
    store: str, ids: dict[str, str], number: int, save: tuple[str, str, str], first: str
) -> Call:
    path, content, how = save
    known = ids.get(path, "mem_" + "0" * 24)
    edit = Save(
        path=path,
        content=content,
        memory_id=known if how in ("id", "append") else None,
        base_sha256=sha256_of(first) if how in ("base", "append") else None,
        appended="z" if how == "append" else None,
        new=how == "new",
    )
    id = "edit_0" if how == "again" else f"edit_{number}"
    return lambda hf: hf.memory_stores.memories.apply(store, [edit], edit_id=id)


@shared
@given(saves=SAVES)
def test_saves_that_wait_together_end_as_they_do_one_by_one(
    hf: Holdfast, saves: list[tuple[str, str, str]]
) -> None:
    found: list[object] = []
    for make in (one_by_one, together):
        store = hf.memory_stores.create(name="Notes").id
        there = one_by_one(hf, [creating(store, path, "x") for path in ("/a", "/b")])
        ids = {each.path: each.id for each in there}
        calls = [saving(store, ids, at, save, "x") for at, save in enumerate(saves)]
        ended = make(hf, calls)
        found.append(
            [
                type(each)
                if isinstance(each, Exception)
                else [
                    (one.changed, [(m.path, m.content_sha256) for m in one.memories])
                    for one in each
                ]
                for each in ended
            ]
        )
        found.append(sorted(map(str, state(hf, store))))

    assert found[:2] == found[2:]


@pytest.mark.parametrize("count", [2, 64])
@pytest.mark.parametrize("how", ["id", "path"])
def test_a_pass_of_saves_is_seven_statements_for_any_number(
    hf: Holdfast, store: str, count: int, how: str
) -> None:
    engine = cast("SQLiteEngine", hf.engine)
    paths = [f"/{number}" for number in range(count)]
    there = one_by_one(hf, [creating(store, path) for path in paths]) if how == "id" else []
    ids = {each.path: each.id for each in there}
    calls = [saving(store, ids, at, (path, "y", how), "x") for at, path in enumerate(paths)]
    kept_back = gathered(hf, calls)
    work, items = kept_back.works[0].work, [each.item for each in kept_back.works]
    counted: list[int] = []

    def write(tx: Transaction) -> None:
        before = engine.statements
        work(tx, items)
        counted.append(engine.statements - before)

    kept_back.engine.write(write)
    assert counted[0] <= 7


def test_another_process_reads_what_a_pass_wrote(alone: Holdfast, sqlite_file: Path) -> None:
    store = alone.memory_stores.create(name="Notes").id
    together(alone, [creating(store, f"/{number}", f"word{number}") for number in range(9)])

    program = (
        "import sys, holdfast\n"
        "memories = holdfast.open(sys.argv[1]).memory_stores.memories\n"
        "store = sys.argv[2]\n"
        "heads = list(memories.list(store).all())\n"
        "print(*sorted(each.path for each in heads))\n"
        "print(memories.retrieve(heads[0].id, memory_store_id=store).content)\n"
        "print(*(each.memory.path for each in memories.search(store, 'word7')))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(sqlite_file), store],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )

    paths = " ".join(f"/{number}" for number in range(9))
    assert found.stdout.splitlines() == [paths, "word0", "/7"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "update", "delete", "save"]),
        st.integers(0, 2),
        st.integers(0, 99),
    ),
    min_size=1,
    max_size=30,
)


@shared
@given(steps=STEPS)
def test_the_writes_of_one_caller_take_effect_in_their_order(
    hf: Holdfast, steps: list[tuple[str, int, int]]
) -> None:
    store = hf.memory_stores.create(name="Notes").id
    there = one_by_one(hf, [creating(store, f"/{number}") for number in range(3)])
    model: dict[str, str | None] = {each.path: "x" for each in there}
    calls: list[Call] = []
    expected: list[bool] = []
    for place, (kind, number, text) in enumerate(steps):
        path, id, content = f"/{number}", there[number].id, f"{text}"
        if kind == "create":
            path = f"/new {number}"
            calls.append(creating(store, path, content))
            done = path not in model
        elif kind == "save":
            path = f"/new {number}"
            calls.append(saving(store, {}, place, (path, content, "path"), "x"))
            done = True
        else:
            done = path in model
            update = kind == "update"
            calls.append(updating(store, id, content) if update else deleting(store, id))
        expected.append(done)
        if kind == "delete":
            model.pop(path, None)
        elif done:
            model[path] = content

    results = together(hf, calls)

    assert [not isinstance(each, Exception) for each in results] == expected
    assert contents_of(hf, store) == model


def test_a_pass_is_the_same_on_every_engine(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes").id
    paths = ("/a", "/b", "/a/c", "/c")
    made = in_one_pass(kept, [creating(store, path) for path in paths])
    ids = [each.id for each in made if isinstance(each, Memory)]

    assert [type(each) for each in made] == [Memory, Memory, PathTaken, Memory]
    changed = in_one_pass(
        kept,
        [
            updating(store, ids[0], "y"),
            updating(store, ids[0], "z", "y"),
            *(updating(store, id, "z", "q") for id in ids[1:]),
        ],
    )
    assert [type(each) for each in changed] == [Memory, Memory, *[PreconditionFailed] * 2]
    gone = in_one_pass(kept, [deleting(store, ids[1]), deleting(store, ids[1])])
    assert isinstance(gone[1], NotFound)
    again = in_one_pass(kept, [creating(store, "/b"), creating(store, "/a/d")])
    assert [type(each) for each in again] == [Memory, PathTaken]
    found = [match.memory.path for match in kept.memory_stores.memories.search(store, "z")]
    assert found == ["/a"]
    check_whole(kept)
