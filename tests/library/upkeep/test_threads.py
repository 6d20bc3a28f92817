"""What verify, the doctor and a restored backup find of threads."""

from pathlib import Path

import pytest
from library.upkeep.meddling import Ask, checks

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import doctor
from holdfast.library.upkeep.restore import restore
from holdfast.memories.state.thread import ForeignTurn
from holdfast.testing.contracts.history import THREAD, began, made, said


@pytest.fixture
def filled(hf: Holdfast) -> Holdfast:
    hf.threads.append(THREAD, [said(), made(0), made(1, agent="editor")])
    hf.runs.put(began("run_3"))
    return hf


def test_what_nobody_meddled_with_is_whole(filled: Holdfast) -> None:
    report = filled.verify()

    assert report.findings == ()
    assert report.counts["thread_turns"] == 3


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("update threads set turns = 7", ("counters", "threads")),
        ("update thread_turns set thread_id = 'else' where kind = 'user'", ("owners", None)),
        ("update runs set thread_id = 'else'", ("owners", "runs")),
        ("update thread_turns set size_bytes = 1", ("heads", "thread_turns")),
        ("update thread_turns set checksum = 'sha256:0'", ("heads", "thread_turns")),
        ("update thread_turns set body = '{'", ("heads", "thread_turns")),
        ("update thread_turns set body = '{}'", ("heads", "thread_turns")),
        ("update thread_turns set agent = 'else' where agent = 'editor'", ("heads", None)),
        ("update thread_turns set body = replace(body, 'Done', 'Gone')", ("heads", None)),
    ],
)
def test_a_row_that_does_not_fit_is_found(
    filled: Holdfast, ask: Ask, statement: str, found: tuple[str, str | None]
) -> None:
    ask(statement)

    assert (found[0], found[1] or "thread_turns") in checks(filled)


def test_a_quick_look_leaves_out_what_turns_hold(filled: Holdfast, ask: Ask) -> None:
    ask("update thread_turns set body = '{'")

    assert checks(filled, quick=True) == set()


def test_the_doctor_names_threads_that_are_miscounted(filled: Holdfast, ask: Ask) -> None:
    before = {each.name: each.ok for each in doctor(filled)}
    ask("update threads set turns = 7")

    assert before["thread counters"]
    assert not {each.name: each.ok for each in doctor(filled)}["thread counters"]


def test_a_result_of_a_forgotten_agent_that_is_there_is_found(filled: Holdfast, ask: Ask) -> None:
    there = ask(
        "select seq, body, checksum, size_bytes from thread_turns"
        " where agent = 'editor' and workspace = 'default'"
    )
    ((seq, body, checksum, size),) = there
    filled.forget_agent("editor")
    ask(
        "insert into thread_turns (seq, workspace, thread_id, id, kind, agent, at, checksum,"
        " size_bytes, body) values (?, 'default', ?, ?, 'result', 'editor', 0, ?, ?, ?)",
        seq,
        THREAD,
        made(1).id,
        checksum,
        size,
        body,
    )

    assert ("forgotten", "thread_turns") in checks(filled)


def test_a_thread_deleted_since_a_backup_stays_deleted_when_it_is_restored(
    target: str, tmp_path: Path
) -> None:
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    with holdfast.open(target) as hf:
        hf.threads.append(THREAD, [said(), made(0)])
        hf.threads.append("thread_kept", [said()])
        hf.runs.put(began("run_3"))
        hf.backup(older)
        hf.threads.delete(THREAD)
        hf.backup(newer)

    first = restore(older, target, replace=True)
    # Its id is used again, which is no thread from before.
    with holdfast.open(target) as hf:
        there = [each.id for each in hf.threads.list()], list(hf.runs.list())
        hf.threads.append(THREAD, [said("Anew.")])
        whole = hf.verify().findings
        hf.backup(newer, force=True)
        hf.threads.append(THREAD, [made(0)])
    again = restore(newer, target, replace=True)

    with holdfast.open(target) as hf:
        assert (first.forgotten, there, whole) == (1, (["thread_kept"], []), ())
        assert again.forgotten == 0
        assert hf.threads.retrieve(THREAD).turns == 1
        assert hf.verify().findings == ()


def test_a_turn_taken_away_since_a_backup_stays_away_when_it_is_restored(
    target: str, tmp_path: Path
) -> None:
    older = tmp_path / "older.db"
    with holdfast.open(target) as hf:
        hf.threads.append(THREAD, [ForeignTurn(each, "test") for each in ("a", "b", "c")])
        hf.backup(older)
        hf.threads.pop(THREAD)

    first = restore(older, target, replace=True)

    with holdfast.open(target) as hf:
        assert first.forgotten == 1
        assert [turn.value for turn in hf.threads.turns(THREAD)] == ["a", "b"]
        assert hf.threads.retrieve(THREAD).turns == 2
        assert hf.verify().findings == ()


def test_threads_of_a_user_forgotten_since_a_backup_stay_away_when_it_is_restored(
    target: str, tmp_path: Path
) -> None:
    older = tmp_path / "older.db"
    with holdfast.open(target) as hf:
        hf.threads.append(THREAD, [ForeignTurn("a", "test")], user="ada")
        hf.threads.append("thread_kept", [said()], user="bob")
        hf.backup(older)
        hf.forget_user("ada")

    restore(older, target, replace=True)

    with holdfast.open(target) as hf:
        assert [each.id for each in hf.threads.list()] == ["thread_kept"]
        assert hf.verify().findings == ()


def test_a_turn_of_a_deleted_thread_that_is_there_is_found(filled: Holdfast, ask: Ask) -> None:
    ((before,),) = ask("select min(seq) from thread_turns where workspace = 'default'")
    filled.threads.delete(THREAD)
    filled.threads.append(THREAD, [said("Anew.")])
    assert checks(filled) == set()
    ask("update thread_turns set seq = ? where seq = (select max(seq) from thread_turns)", before)

    assert checks(filled) == {("forgotten", "thread_turns")}


def test_the_id_of_a_deleted_thread_is_in_no_file(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        hf.threads.append("thread_of_kelpmarker", [said()])
        hf.threads.delete("thread_of_kelpmarker")

        assert [f.name for f in tmp_path.iterdir() if b"kelpmarker" in f.read_bytes()] == []


def test_an_agent_forgotten_since_a_backup_stays_forgotten_when_it_is_restored(
    tmp_path: Path,
) -> None:
    path, backup = tmp_path / "h.db", tmp_path / "backup.db"
    with holdfast.open(path) as hf:
        hf.threads.append(THREAD, [said(), made(0), made(1, agent="The Editor")])
        hf.backup(backup)
        hf.forget_agent("The Editor")

    report = restore(backup, str(path), replace=True)

    with holdfast.open(path) as hf:
        assert report.forgotten == 1
        assert hf.threads.results(THREAD) == [made(0)]
        assert hf.threads.retrieve(THREAD).turns == 2
        assert hf.verify().ok
