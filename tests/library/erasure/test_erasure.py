"""An erased person is in no table, file, vector or answer, whatever happens on the way."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Conflict, HoldfastError
from holdfast.library.erasure.proof import copies_beside, purge_copies
from holdfast.library.erasure.records import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import resume_erasures
from holdfast.library.upkeep.reapply import write_ledger
from holdfast.library.upkeep.restore import restore
from holdfast.memories.longterm.records import LongTermOptions, Turn
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer

MARK = "Kq9fPrivateSentence"
"""In every text of the person who is erased."""
STAYS = "Zw3xSentenceOfOthers"


def fill(hf: Holdfast, **options: object) -> None:
    """Give *hf* something of ada in each place, and of bob."""
    chosen = LongTermOptions(**options)  # pyright: ignore[reportArgumentType] - names of fields
    embedder = WordEmbedder() if options else None
    for user, text in (("ada", MARK), ("bob", STAYS)):
        memory = hf.longterm(user, enabled=True, embedder=embedder, options=chosen)
        assert memory is not None
        memory.remember(f"{text} of an item")
        memory.record([Turn(role="user", text=f"{text} of a turn")])
        memory.recall("sentence")
        assert memory.flush(30).done
        store = hf.memory_stores.create(name=f"Of {user}", metadata={"holdfast.user": user})
        hf.memory_stores.memories.create(store.id, path="/a.md", content=f"{text} of a file")
        entry = hf.durable("agent_7").set(user, f"{text} of an entry", category="core")
        hf.subjects.link("durable_entry", entry.id, user=user)


def files_with(folder: Path, mark: str) -> list[str]:
    """Return the files below *folder* that hold *mark*, but for backups and replaced files."""
    return [
        each.name
        for each in folder.rglob("*")
        if each.is_file() and ".replaced-" not in each.name and mark.encode() in each.read_bytes()
    ]


def dump(hf: Holdfast) -> str:
    """Return everything that the memories of *hf* answer."""
    people = list(hf.longterm_people())
    data = [hf.longterm_data(each.user, namespace=each.namespace) for each in people]
    stores = [each.id for each in hf.memory_stores.list()]
    versions = [
        [*hf.memory_stores.memory_versions.list(store, view="full").all()] for store in stores
    ]
    durable = hf.durable("agent_7")
    activity = list(hf.activity(limit=1000))
    seen = [people, [[*each.list()] for each in data], versions, [*durable.list()], activity]
    return str([*seen, [*durable.history().all()], [*hf.subjects.list()]])


def nothing_of_ada(hf: Holdfast) -> None:
    seen = dump(hf)
    assert MARK not in seen
    assert "'ada'" not in seen
    assert STAYS in seen
    assert hf.verify().findings == ()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        (tmp_path / "db").mkdir()
        return str(tmp_path / "db" / "h.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))


@pytest.fixture
def empty(request: pytest.FixtureRequest, target: str, tmp_path: Path) -> str:
    """Give another target, which is empty, on the engine of *target*."""
    if not target.startswith("postgres"):
        return str(tmp_path / "db" / "other.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))


def test_no_restore_brings_an_erased_person_back(
    target: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    backup, ledger = tmp_path / "b.db", tmp_path / "ledger.json"
    with holdfast.open(target) as hf:
        fill(hf, vector_provider="chroma")
        hf.backup(backup)

        report = hf.forget_user("ada")

        receipt = report.receipt
        assert receipt is not None, report.pending
        assert ("backup", 1) in [(each.what, each.count) for each in report.unreached]
        nothing_of_ada(hf)
        assert hf.erasures.verify(receipt, user="ada").ok
        write_ledger(hf.engine, ledger)

    over = restore(backup, target, replace=True)
    into = restore(backup, empty, erasures=ledger)

    assert (over.erased, into.erased) == (1, 1)
    assert (over.warning is None) == (over.kept is None)
    for place in (target, empty):
        with holdfast.open(place) as hf:
            nothing_of_ada(hf)
            assert hf.erasures.verify(receipt, user="ada").ok
            assert hf.erasures.receipt(receipt["id"]) == receipt
    assert MARK not in ledger.read_text()
    assert '"ada"' not in ledger.read_text()
    for folder in (tmp_path / "db", data):
        if folder.exists():
            assert files_with(folder, MARK) == []


def test_no_restore_brings_a_redacted_mention_back(target: str, tmp_path: Path) -> None:
    backup = tmp_path / "b.db"
    with holdfast.open(target) as hf:
        durable = hf.durable("agent_7")
        for key, text in (("note", f"Ask {MARK} about it"), ("other", STAYS)):
            durable.set(key, text, category="core")
        memory = hf.longterm("ada", enabled=True)
        assert memory is not None
        memory.remember("Has a dog")
        durable.redact(durable.set("other", f"{STAYS}, again", category="core").seq)
        hf.backup(backup)

        report = hf.forget_user("ada", names=[MARK], mentions="redact")

        assert report.mentions["durable_entries"].redacted == 1

    done = restore(backup, target, replace=True)

    with holdfast.open(target) as hf:
        durable = hf.durable("agent_7")
        assert MARK not in str([[*durable.list()], [*durable.history()]])
        assert [each.content for each in durable.list()] == [f"{STAYS}, again"]
        assert hf.verify().ok
    assert done.forgotten == 2


def test_who_came_back_before_a_backup_stays(tmp_path: Path) -> None:
    target, backup = str(tmp_path / "h.db"), tmp_path / "b.db"
    with holdfast.open(target) as hf:
        fill(hf)
        hf.forget_user("ada")
        memory = hf.longterm("ada", enabled=True)
        assert memory is not None
        memory.remember("Ada is here again")
        hf.backup(backup)

    report = restore(backup, target, replace=True)

    assert report.erased == 0
    with holdfast.open(target) as hf:
        assert [each.text for each in hf.longterm_data("ada").list()] == ["Ada is here again"]


@contextmanager
def crashed_at(hf: Holdfast, number: int) -> Generator[list[str]]:
    """Let the statement *number* of the writes fail, and all after it."""
    engine = hf.engine
    assert isinstance(engine, SQLiteEngine)
    raw = engine.core.writer.group.connection().raw
    seen: list[str] = []

    def trace(_: object, sql: str, __: object) -> bool:
        if sql != "rollback":
            seen.append(sql)
            if len(seen) >= number:
                raise apsw.FullError
        return True

    raw.exec_trace = trace
    try:
        yield seen
    finally:
        raw.exec_trace = None


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("filled") / "h.db"
    with holdfast.open(place) as hf:
        fill(hf)
    return place


def crashes(filled: Path, folder: Path, forget: Callable[[Holdfast], object]) -> Iterator[Path]:
    """Yield a copy of *filled* after a crash at each statement of *forget*, closed."""
    number, done = 1, False
    while not done:
        place = folder / f"{number}.db"
        shutil.copy(filled, place)
        with holdfast.open(place) as hf:
            with crashed_at(hf, number) as seen:
                try:
                    forget(hf)
                except HoldfastError:
                    assert len(seen) >= number
                else:
                    done = len(seen) < number
            begun = bool(hf.engine.rows("select id from erasures"))
        if begun:
            yield place
        place.unlink()
        number += 1


def test_an_erasure_that_crashed_anywhere_is_finished_at_the_next_open(
    filled: Path, tmp_path: Path
) -> None:
    count = 0
    for place in crashes(filled, tmp_path, lambda hf: hf.forget_user("ada")):
        with holdfast.open(place) as hf:
            nothing_of_ada(hf)
            found = list(hf.erasures.list())
            assert [each.state for each in found] == ["completed"]
            assert hf.erasures.check(found[0].id, user="ada").ok
            assert found[0].counts["ltm_items"] == 1
        assert files_with(tmp_path, MARK) == []
        count += 1
    assert count > 50


def test_an_erasure_of_an_agent_that_crashed_anywhere_is_finished(
    filled: Path, tmp_path: Path
) -> None:
    for place in crashes(filled, tmp_path, lambda hf: hf.forget_agent("agent_7")):
        with holdfast.open(place) as hf:
            assert [each.agent for each in hf.durable_agents()] == []
            found = list(hf.erasures.list())
            assert [each.state for each in found] == ["completed"]
            assert hf.erasures.check(found[0].id, agent="agent_7").ok


def test_what_a_reader_pins_is_pending_and_who_came_back_is_spared(
    filled: Path, tmp_path: Path
) -> None:
    place = tmp_path / "h.db"
    shutil.copy(filled, place)
    with holdfast.open(place) as hf:
        memory = hf.longterm("ada", enabled=True)
        assert memory is not None
        memory.remember(f"{MARK} in the log")
        reader = apsw.Connection(str(place))
        pinned = reader.cursor()
        pinned.execute("select id from ltm_items")  # pyright: ignore[reportUnknownMemberType] - the driver's own types say less than they know
        next(pinned)

        report = hf.forget_user("ada")

        assert report.pending
        assert report.receipt is None
        (erasure,) = hf.erasures.list()
        assert erasure.state == "pending"
        with pytest.raises(Conflict):
            hf.erasures.receipt(erasure.id)

        memory.remember("Ada is here again")
        pinned.close()
        reader.close()
        assert resume_erasures(hf, FrozenClock()) == 1
        assert hf.erasures.check(erasure.id, user="ada").ok
        assert [each.text for each in memory.list()] == ["Ada is here again"]
        assert files_with(tmp_path, MARK) == []


def test_a_text_that_others_said_too_is_not_found(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        for user in ("ada", "bob"):
            memory = hf.longterm(user, enabled=True)
            assert memory is not None
            memory.remember("We all like strong green tea")

        receipt = hf.forget_user("ada").receipt

        assert receipt is not None
        assert (receipt["verified"]["needles"], receipt["verified"]["found"]) == (0, 0)
        assert receipt["verified"]["files"] >= 1


def test_copies_beside_the_database_are_counted_and_deleted_if_wished(
    filled: Path, tmp_path: Path
) -> None:
    place = tmp_path / "h.db"
    shutil.copy(filled, place)
    for name in ("h.db.replaced-20260101T000000Z", "h.db.before-2", "other.db.before-2"):
        (tmp_path / name).write_bytes(MARK.encode())
    with holdfast.open(place) as hf:
        report: ForgetReport = hf.forget_user("ada")

        found = {each.what: each.count for each in report.unreached}
        assert found == {"replaced": 1, "before_migration": 1}
        purge_copies(hf.engine)
        assert copies_beside(hf.engine) == {}
    assert (tmp_path / "other.db.before-2").exists()
