"""An erased person is in no table, file, vector or answer, whatever happens on the way."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from library.erasure.people import (
    MARK,
    STAYS,
    dump,
    files_with,
    fill,
    fill_linked,
    fill_owned,
    nothing_of_ada,
    past,
    write_about,
)

import holdfast
from holdfast.doors.mount.storage.spool import Spool, Spooled, default_root
from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Conflict, Forgotten, HoldfastError, Unavailable
from holdfast.ground.scope import Scope
from holdfast.library.erasure.proof import copies_beside, purge_copies
from holdfast.library.erasure.records import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import resume_erasures
from holdfast.library.upkeep.reapply import write_ledger
from holdfast.library.upkeep.restore import restore
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.thread import ThreadMessage
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.session import Session
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import ScriptedModel


def test_no_restore_brings_an_erased_person_back(
    target: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    backup, ledger = tmp_path / "b.db", tmp_path / "ledger.json"
    moments: list[datetime] = []
    with holdfast.open(target) as hf:
        fill_owned(hf, vector_provider="chroma")
        moments.append(datetime.now(UTC))
        fill_linked(hf)
        moments.append(datetime.now(UTC))
        assert MARK in past(hf, moments)
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
            seen = past(hf, moments)
            assert MARK not in seen
            assert STAYS in seen
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


def test_no_restore_brings_a_redacted_name_back(target: str, empty: str, tmp_path: Path) -> None:
    backup, ledger, name = tmp_path / "b.db", tmp_path / "ledger.json", "Lovelace O'Hara"
    with holdfast.open(target) as hf:
        store = hf.memory_stores.create(name="Notes")
        text = f"{STAYS} asks {name.upper()}\n{name}, not Lovelaceable"
        hf.memory_stores.memories.create(store.id, path="/a.md", content=text)
        hf.durable("agent_9").set("note", text, category="core")
        hf.threads.append("t1", [ThreadMessage(id="m1", content=text, at=datetime.now(UTC))])
        memory = RunMemory(run_id="r1")
        end = hf.runs.attach(memory, name="plan", metadata={"note": text})
        memory.set("shared:note", {"text": text}, title=f"Of {name}")
        end()
        assert {each.type for each in hf.runs.follow("r1", wait=30)} > {"run.completed"}
        assert name in dump(hf)
        hf.backup(backup)

        mentions = hf.forget_user("ada", names=[name, "Lovelace"], mentions="redact").mentions

        assert {place: each.redacted for place, each in mentions.items()} == dict.fromkeys(
            ("stores", "durable_entries", "threads", "runs"), 1
        )
        assert no_name_in(hf)
        hf.durable("agent_9").set("again", f"{name} is here again", category="core")
        write_ledger(hf.engine, ledger)

    over = restore(backup, target, replace=True)
    into = restore(backup, empty, erasures=ledger)

    assert into.redacted == 4
    assert over.redacted >= 3
    for place in (target, empty):
        with holdfast.open(place) as hf:
            assert no_name_in(hf)
            [turn] = hf.threads.turns("t1")
            assert turn.message is not None
            assert turn.message.content == f"{STAYS} asks [erased]\n[erased], not Lovelaceable"
            assert hf.runs.retrieve("r1").metadata["note"] == turn.message.content
            assert hf.verify().ok
            hf.backup(tmp_path / "again.db", force=True)
            assert "ovelace O" not in (tmp_path / "again.db").read_bytes().decode(errors="replace")
    assert "ovelace" not in ledger.read_text()


def no_name_in(hf: Holdfast) -> bool:
    seen = dump(hf).lower()
    return STAYS.lower() in seen and "lovelace " not in seen


def test_a_name_written_after_its_erasure_stays_in_a_restore(tmp_path: Path) -> None:
    target, backup = str(tmp_path / "h.db"), tmp_path / "b.db"
    with holdfast.open(target) as hf:
        hf.forget_user("ada", names=["Lovelace"], mentions="redact")
        hf.durable("agent_7").set("note", "Lovelace is here again", category="core")
        hf.threads.append("t1", [ThreadMessage(id="m1", content="Hi Ada", at=datetime.now(UTC))])
        hf.backup(backup)

    assert restore(backup, target, replace=True).redacted == 0

    with holdfast.open(target) as hf:
        assert "Lovelace is here again" in dump(hf)
        assert "Hi Ada" in dump(hf)


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
        fill_owned(hf)
    return place


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("linked") / "h.db"
    with holdfast.open(place) as hf:
        fill_linked(hf)
    return place


def crashes(filled: Path, folder: Path, forget: Callable[[Holdfast], object]) -> Iterator[Path]:
    """Yield a copy of *filled* after a crash of *forget*, closed.

    It crashes at each commit, and at each statement that is unlike those before it.
    """
    place = folder / "h.db"
    shutil.copy(filled, place)
    with holdfast.open(place) as hf, crashed_at(hf, sys.maxsize) as whole:
        forget(hf)
    place.unlink()
    for number, statement in enumerate(whole, 1):
        if statement != "commit" and statement in whole[: number - 1]:
            continue
        shutil.copy(filled, place)
        with holdfast.open(place) as hf:
            with crashed_at(hf, number) as seen, suppress(HoldfastError):
                forget(hf)
            assert len(seen) >= number
            begun = bool(hf.engine.rows("select id from erasures"))
        if begun:
            yield place
        place.unlink()


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


def test_an_erasure_of_what_is_linked_that_crashed_anywhere_is_finished(
    linked: Path, tmp_path: Path
) -> None:
    count = 0
    for place in crashes(linked, tmp_path, lambda hf: hf.forget_user("ada")):
        with holdfast.open(place) as hf:
            nothing_of_ada(hf)
            turns = hf.threads.turns("shared", kind="user")
            assert [each.id for each in turns] == ["m_bob"]
            assert [each.state for each in hf.erasures.list()] == ["completed"]
        assert files_with(tmp_path, MARK) == []
        count += 1
    assert count > 50


STRIDE = 9
"""Statements between two crashes on PostgreSQL, each with a person of its own."""


class FailingStep:
    """Number of the statement of a write that fails, with all after it; 0 for none."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0

    def count(self) -> None:
        """Count a statement; raise Unavailable if it is the one, or after it."""
        self.seen += 1
        if self.seen >= self.number:
            raise Unavailable("It fails.", reason="io", next="Open it again.")


class FailingTransaction:
    """A transaction that counts its statements with *step*."""

    def __init__(self, tx: Transaction, step: FailingStep) -> None:
        self._tx, self._step = tx, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in {"one", "first", "all", "rows", "run", "send", "run_many"}:
            return found

        def counted(*args: Any, **params: Any) -> Any:
            self._step.count()
            return found(*args, **params)

        return counted


class FailingEngine:
    """The engine *of*, with writes that fail at *step*."""

    def __init__(self, of: Engine, step: FailingStep) -> None:
        self._of, self._step = of, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def scoped(self, scope: Scope) -> "FailingEngine":
        """Return it in another scope."""
        return FailingEngine(self._of.scoped(scope), self._step)

    def write(self, work: Callable[[Any], Any], **options: Any) -> Any:
        """Write, with a transaction that counts."""
        return self._of.write(lambda tx: work(FailingTransaction(tx, self._step)), **options)


def failing_at(step: FailingStep, engine: Engine) -> Engine:
    """Return *engine* with writes that fail at *step*."""
    return cast("Engine", FailingEngine(engine, step))


def test_an_erasure_on_postgresql_that_crashed_anywhere_is_finished_at_the_next_open(
    fresh_postgres_url: str,
) -> None:
    number, done, erased = 1, False, 0
    while not done:
        user, text = f"ada_{number}", f"{MARK}{number}"
        with holdfast.open(fresh_postgres_url) as hf:
            memory = hf.longterm(user, enabled=True)
            assert memory is not None
            memory.remember(f"{text} of an item")
            write_about(hf, user, text)
            step = FailingStep(number)
            failing = hf.acting(through=partial(failing_at, step))
            try:
                failing.forget_user(user)
            except Unavailable:
                assert step.seen >= number
            else:
                done = step.seen < number
        with holdfast.open(fresh_postgres_url) as hf:
            assert {each.state for each in hf.erasures.list().all()} <= {"completed"}
            count = len(list(hf.erasures.list().all()))
            assert (text in dump(hf)) == (count == erased)
            erased = count
        number += STRIDE
    assert number > 50


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


def test_unsaved_edits_of_mounts_are_deleted_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spool = Spool(default_root(), clock=FrozenClock())
    with holdfast.open(":memory:") as hf:
        own = hf.memory_stores.create(name="Own", metadata={"holdfast.user": "ada"})
        shared = hf.memory_stores.create(name="Shared")
        about = hf.for_subject("ada").memory_stores.memories
        about.create(shared.id, path="/a.md", content="of ada")
        for store in (own, shared):
            spooled = Spooled(
                store_id=store.id,
                memory_id=None,
                path="/a.md",
                base_sha256=None,
                kind="save",
                errno="EIO",
                message="It failed.",
                edit_id="edit_1",
                at="2026-01-01T00:00:00Z",
                session_id=None,
            )
            spool.put(spooled, MARK.encode()).release()

        report = hf.forget_user("ada")

    assert [(each.what, each.count) for each in report.unreached] == [("spool", 1)]
    assert [each.store_id for _, each in spool.list()] == [shared.id]


@pytest.mark.parametrize("longterm", ["0", "1"])
def test_a_session_that_goes_on_after_an_erasure_stores_nothing_more(
    monkeypatch: pytest.MonkeyPatch, longterm: str
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", longterm)

    async def talk(hf: Holdfast) -> None:
        model = ScriptedModel(["It is noted.", "It is noted again."])
        agent = Agent("helper", instructions="Be brief.", model=model)
        async with Session(agent, hf=hf, user="ada") as session:
            await session.send(f"{MARK} of a question")
            assert {each.kind for each in hf.subjects.list("ada")} == {"run", "thread"}
            hf.forget_user("ada")
            with pytest.raises(Forgotten):
                await session.send("And of another one")
        async with Session(agent, hf=hf, user="ada") as session:
            await session.send("Ada is here again")

    with holdfast.open(":memory:") as hf:
        asyncio.run(talk(hf))

        assert MARK not in dump(hf)
        assert "And of another one" not in dump(hf)
        assert [each.user for each in hf.subjects.list()] == ["ada", "ada"]
