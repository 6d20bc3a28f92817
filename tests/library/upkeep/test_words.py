"""What search goes by: compared with the contents it comes from, and rebuilt from them."""

import pytest
from library.upkeep.meddling import Ask, checks

from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.verify import verify
from holdfast.memories.stores.records import Store


@pytest.fixture
def out_of_step(hf: Holdfast, store: Store, ask: Ask) -> Holdfast:
    """Give a database whose index counts right, and holds another word."""
    (number, memory) = ask(
        "select s.number, m.id from memories m join stores s on s.id = m.store_id"
        " where m.path = '/empty' and m.store_id = ?",
        store.id,
    )[0]
    if hf.engine.dialect == "postgres":
        ask("update memory_words set word = ? where memory_id = ?", f"{number}_x", memory)
    else:
        row = ask("select number from memories where id = ?", memory)[0][0]
        delete = "insert into memory_words (memory_words, rowid, words) values ('delete', ?, ?)"
        ask(delete, row, f"{number}_empty")
        ask("insert into memory_words (rowid, words) values (?, ?)", row, f"{number}_x")
    return hf


def test_a_wrong_word_is_found_unless_one_is_quick(out_of_step: Holdfast) -> None:
    assert checks(out_of_step) == {("derived", "memory_words")}
    assert checks(out_of_step, quick=True) == set()


def test_no_finding_says_the_word(out_of_step: Holdfast) -> None:
    (finding,) = out_of_step.verify().findings

    assert "empty" not in str(finding)


def test_a_repair_mends_them_and_says_so(out_of_step: Holdfast, store: Store) -> None:
    report = verify(out_of_step.engine, repair=True)

    assert (report.ok, report.repaired) == (True, True)
    assert out_of_step.memory_stores.memories.search(store.id, "empty")


def test_counts_that_are_wrong_while_their_sum_fits_are_found_and_repaired(
    hf: Holdfast, store: Store, ask: Ask
) -> None:
    for path, step in (("/empty", 1), ("/b", -1)):
        ask(
            "update memories set words = words + ? where path = ? and store_id = ?",
            step,
            path,
            store.id,
        )

    found = checks(hf)
    repaired = verify(hf.engine, repair=True)

    assert found == {("derived", "memories"), ("derived", "memory_words")}
    assert (repaired.ok, repaired.repaired) == (True, True)


def test_a_store_that_counts_its_words_wrongly_is_repaired(
    hf: Holdfast, store: Store, ask: Ask
) -> None:
    ask("update stores set words = 0 where id = ?", store.id)

    assert verify(hf.engine, repair=True, quick=True).ok


def test_a_repair_rebuilds_nothing_but_what_is_derived(
    hf: Holdfast, store: Store, ask: Ask
) -> None:
    ask("update stores set memories = 77 where id = ?", store.id)

    report = verify(hf.engine, repair=True)

    assert (report.ok, report.repaired) == (False, False)
    assert ask("select memories from stores where id = ?", store.id) == [(77,)]


def test_a_content_that_is_no_text_stops_nobody(hf: Holdfast, ask: Ask) -> None:
    ask("update versions set content = seal where path = '/empty'")

    assert ("heads", "versions") in checks(hf)
    assert not verify(hf.engine, repair=True).ok
