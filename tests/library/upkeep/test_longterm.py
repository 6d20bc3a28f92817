"""What verify and the doctor find in long-term memory, and what a repair mends."""

from pathlib import Path

import pytest
from contracts.longterm_items import kept, memory_of, said, texts
from library.upkeep.meddling import Ask, checks, opened

from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import doctor
from holdfast.library.upkeep.restore import restore
from holdfast.library.upkeep.verify import verify
from holdfast.memories.longterm import transaction
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.recall import recall
from holdfast.memories.longterm.trust import evidence
from holdfast.testing.embedders import WordEmbedder


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    """Give a collection of an item, its turn, another item and what was forgotten."""
    ltm = memory_of(hf, "ada")
    turn = ltm.record([said("We went to the lake yesterday", speaker="Ana")]).turns[0]
    kept(ltm, "Ana likes lakes", turns=[turn.id])
    kept(ltm, "Prefers tabs over spaces", kind="preference")
    ltm.forget(kept(ltm, "Has a parrot called Rio").id)
    ltm.recall("lakes")
    ltm.flush()
    return ltm


ROWS = 100
"""A number of rows that is large here."""


@pytest.fixture
def large(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> LongTermMemory:
    """Give a collection that is looked through in the engine."""
    for module in (recall, evidence, transaction):
        monkeypatch.setattr(module, "LARGE", ROWS)
    ltm = memory_of(hf, "bob")
    ltm.record([said(f"The word {number} of many") for number in range(ROWS + 1)])
    return ltm


def test_what_nobody_meddled_with_is_whole(ltm: LongTermMemory, hf: Holdfast) -> None:
    assert ltm.status().items == 2

    report = hf.verify()

    assert report.findings == ()
    assert (report.counts["ltm_items"], report.counts["ltm_turns"]) == (2, 1)


def test_a_large_collection_is_whole(large: LongTermMemory, hf: Holdfast) -> None:
    assert texts(large.recall("word 47", 1)) == ["The word 47 of many"]

    assert hf.verify().findings == ()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("update ltm_collections set items = items + 1", ("counters", "ltm_collections")),
        ("update ltm_collections set turns = turns + 1", ("counters", "ltm_collections")),
        ("update ltm_collections set superseded = 1", ("counters", "ltm_collections")),
        ("update ltm_links set turn = turn + 9000", ("owners", "ltm_links")),
        ("update ltm_links set item = item + 9000", ("owners", "ltm_links")),
        ("update ltm_access set number = number + 9000", ("owners", "ltm_access")),
        ("update ltm_turns set workspace = 'else'", ("owners", "ltm_turns")),
        ("update ltm_tombstones set collection = -1", ("owners", "ltm_tombstones")),
        ("update ltm_items set body = 'x'", ("derived", "ltm_items")),
        ("update ltm_items set terms = 99", ("derived", "ltm_items")),
        ("update ltm_turns set flags = 0", ("derived", "ltm_turns")),
    ],
)
def test_a_row_that_does_not_fit_is_found(
    ltm: LongTermMemory, hf: Holdfast, ask: Ask, statement: str, found: tuple[str, str]
) -> None:
    assert ltm.status().items

    ask(statement)

    assert found in checks(hf)


def test_what_was_forgotten_and_is_there_is_found(
    ltm: LongTermMemory, hf: Holdfast, ask: Ask
) -> None:
    there = ltm.list().data[0].id

    ask("update ltm_tombstones set id = ?", there)

    assert ("forgotten", "ltm_items") in checks(hf)


def test_what_was_forgotten_and_taken_in_again_is_no_finding(
    ltm: LongTermMemory, hf: Holdfast
) -> None:
    records = list(ltm.export())
    for record in records:
        ltm.forget(str(record["id"]))
    ltm.import_(records)

    assert ltm.status().items == 2
    assert hf.verify().findings == ()


def test_a_user_forgotten_since_a_backup_stays_forgotten_when_it_is_restored(
    target: str, tmp_path: Path
) -> None:
    older, newer = tmp_path / "older.db", tmp_path / "newer.db"
    with opened(target) as hf:
        for user in ("ada", "bob"):
            kept(memory_of(hf, user), "Has a dog")
        kept(memory_of(hf, "ada", namespace="work"), "Writes compilers")
        hf.backup(older)
        hf.forget_user("ada")

    first = restore(older, target, replace=True)
    # The person comes back, and tells something: that is nothing from before.
    with opened(target) as hf:
        there = [memory_of(hf, user).status().items for user in ("ada", "bob")]
        kept(memory_of(hf, "ada"), "Has a cat")
        whole = hf.verify().findings
        hf.backup(newer)
        kept(memory_of(hf, "ada"), "Drinks tea")
    again = restore(newer, target, replace=True)

    with opened(target) as hf:
        assert (first.forgotten, there, whole) == (1, [0, 1], ())
        assert again.forgotten == 0
        assert [each["text"] for each in memory_of(hf, "ada").export()] == ["Has a cat"]
        assert memory_of(hf, "ada", namespace="work").status().items == 0
        assert hf.verify().findings == ()


def test_an_item_forgotten_since_a_backup_stays_so_though_one_like_it_was_remembered(
    target: str, tmp_path: Path
) -> None:
    backup = tmp_path / "b.db"
    with opened(target) as hf:
        ltm = memory_of(hf, "ada")
        kept(ltm, "Drinks tea")
        forgotten = kept(ltm, "Has a parrot called Rio")
        hf.backup(backup)
        ltm.forget(forgotten.id)
        kept(ltm, "Has a blue parrot called Rio")

    restored = restore(backup, target, replace=True)

    with opened(target) as hf:
        ltm = memory_of(hf, "ada")
        assert restored.forgotten == 1
        assert [each["text"] for each in ltm.export()] == ["Drinks tea"]
        assert hf.verify().findings == ()


def test_a_user_stays_forgotten_though_an_older_backup_is_restored_after_another(
    target: str, tmp_path: Path
) -> None:
    oldest, older = tmp_path / "oldest.db", tmp_path / "older.db"
    with opened(target) as hf:
        hf.backup(oldest)
        kept(memory_of(hf, "ada"), "Has a dog")
        hf.backup(older)
        hf.forget_user("ada")

    restore(oldest, target, replace=True)
    restore(older, target, replace=True)

    with opened(target) as hf:
        assert memory_of(hf, "ada").status().items == 0


def test_a_collection_cleared_since_a_backup_stays_clear_when_it_is_restored(
    target: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup.db"
    with opened(target) as hf:
        ltm = memory_of(hf, "ada")
        kept(ltm, "Has a dog")
        kept(memory_of(hf, "ada", namespace="work"), "Writes compilers")
        hf.backup(backup)
        ltm.forget(kept(ltm, "Has a parrot").id)
        ltm.clear()

    report = restore(backup, target, replace=True)

    with opened(target) as hf:
        assert report.forgotten == 1
        assert memory_of(hf, "ada").status().items == 0
        assert memory_of(hf, "ada", namespace="work").status().items == 1
        kept(memory_of(hf, "ada"), "Has a cat")
        assert hf.verify().findings == ()


def test_a_row_of_a_forgotten_user_that_is_there_is_found(
    hf: Holdfast, ask: Ask, ltm: LongTermMemory
) -> None:
    assert ltm.status().items
    ((before,),) = ask("select min(number) from ltm_items")
    hf.forget_user("ada")
    kept(memory_of(hf, "ada"), "Has a cat")
    assert checks(hf) == set()
    ask("update ltm_items set number = ?", before)

    assert ("forgotten", "ltm_collections") in checks(hf)


def test_the_name_of_a_forgotten_user_is_in_no_file(tmp_path: Path) -> None:
    with opened(tmp_path / "h.db") as hf:
        kept(memory_of(hf, "kelpmarker"), "Has a dog")
        hf.forget_user("kelpmarker")

        assert [f.name for f in tmp_path.iterdir() if b"kelpmarker" in f.read_bytes()] == []


def test_terms_that_are_not_those_of_the_text_are_mended(
    ltm: LongTermMemory, hf: Holdfast, ask: Ask
) -> None:
    ask("update ltm_items set body = 'x', terms = 1, flags = 7")
    ask("update ltm_collections set version = version + 1, redone = version + 1")
    assert ltm.recall("tabs or spaces") == []

    report = verify(hf.engine, repair=True)

    assert (report.ok, report.repaired) == (True, True)
    assert texts(ltm.recall("tabs or spaces")) == ["Prefers tabs over spaces"]


def test_the_vector_of_a_row_that_is_gone_is_found_and_dropped(
    hf: Holdfast, ask: Ask, ltm: LongTermMemory
) -> None:
    assert ltm.status().items
    meaning = memory_of(hf, "eve", embedder=WordEmbedder())
    item = kept(meaning, "Has a dog")
    assert meaning.flush(10).done
    ask("delete from ltm_items where id = ?", item.id)
    ask("update ltm_collections set items = items - 1 where user_id = 'eve'")

    found = checks(hf)
    report = verify(hf.engine, repair=True)

    assert found == {("derived", "ltm_vectors")}
    assert (report.ok, report.repaired) == (True, True)


def test_an_index_that_lacks_a_row_is_found_and_filled_by_the_next_write(
    large: LongTermMemory, hf: Holdfast, ask: Ask
) -> None:
    ask("delete from ltm_turns where number = (select max(number) from ltm_turns)")
    ask("update ltm_collections set turns = turns - 1")

    found = checks(hf, quick=True)
    report = verify(hf.engine, repair=True)
    kept(large, "Prefers tabs")
    kept(large, "Drinks tea")

    assert found == {("derived", "ltm_lex")}
    assert (report.ok, report.repaired) == (True, True)
    assert texts(large.recall("word 47", 1)) == ["The word 47 of many"]
    assert hf.verify().findings == ()


def test_no_finding_holds_a_term(ltm: LongTermMemory, hf: Holdfast, ask: Ask) -> None:
    ask("update ltm_items set body = 'kelpmarker'")

    findings = str(hf.verify().findings)

    assert ltm.status().items
    assert "kelpmarker" not in findings
    assert "tab" not in findings.replace("table", "")


def test_the_doctor_sees_counters_jobs_and_versions(
    ltm: LongTermMemory, hf: Holdfast, ask: Ask
) -> None:
    assert ltm.status().items
    well = {each.name: each.ok for each in doctor(hf)}
    ask("update ltm_collections set items = 9, analyzer = 999")
    ask(
        "insert into ltm_jobs (number, workspace, collection, kind, state, about, attempts,"
        " next_at, created_at) select 1, workspace, number, 'extract', 'failed', '[]', 4, 0, 0"
        " from ltm_collections"
    )

    told = {each.name: each for each in doctor(hf) if each.name.startswith("long-term")}

    assert all(well[name] for name in told)
    assert [each.ok for each in told.values()] == [False] * 4
