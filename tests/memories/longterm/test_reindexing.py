"""Terms of an older analyzer, made anew in the background while recall goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from contracts.longterm_items import kept, memory_of, said, texts
from library.upkeep.meddling import Ask, asking
from memories.longterm.spoken import large_above

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.recall.analyze import VERSION
from holdfast.memories.longterm.write import ROWS_AT_ONCE

CLEARED = {
    "sqlite": ("insert into ltm_lex (ltm_lex) values ('delete-all')",),
    "postgres": ("delete from ltm_lex", "delete from ltm_df"),
}
OLD = "update ltm_{} set body = replace(body, 'tab', 'tabs'), flags = 0"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def ask(target: str) -> Iterator[Ask]:
    with holdfast.open(target):
        pass
    with asking(target) as ask:
        yield ask


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with holdfast.open(target) as hf:
        yield hf


def made_by_an_older_release(hf: Holdfast, ask: Ask) -> None:
    """Let every row be as if another analyzer had looked at it; the next write indexes them so."""
    for clear in CLEARED[hf.engine.dialect]:
        ask(clear)
    for table in ("items", "turns"):
        ask(OLD.format(table))
    ask(
        "update ltm_collections set analyzer = 0, version = version + 1, redone = version + 1,"
        " indexed = 0"
    )


def until(what: Callable[[], bool]) -> bool:
    """Return whether *what* came to be so within a minute."""
    return any(what() or Event().wait(0.1) for _ in range(600))


def is_done(ask: Ask) -> bool:
    return ask("select distinct analyzer from ltm_collections") == [(VERSION,)]


def test_what_an_older_analyzer_made_is_made_anew(hf: Holdfast, ask: Ask) -> None:
    ltm = memory_of(hf, "ada")
    ltm.record([said(f"Tabs are number {number}") for number in range(2 * ROWS_AT_ONCE + 1)])
    kept(ltm, "Prefers tabs over spaces")
    made_by_an_older_release(hf, ask)

    first = ltm.recall("spaces")

    assert texts(first) == ["Prefers tabs over spaces"]
    assert until(lambda: is_done(ask))
    assert texts(ltm.recall("my tabs", what="items")) == ["Prefers tabs over spaces"]
    assert hf.verify().findings == ()


def test_a_large_collection_answers_meanwhile_and_is_whole_afterwards(
    hf: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_above(1_000, monkeypatch)
    ltm = memory_of(hf, "ada")
    ltm.record([said(f"Tab number {number}") for number in range(1_001)])
    made_by_an_older_release(hf, ask)
    kept(ltm, "Drinks tea")

    meanwhile = texts(ltm.recall("number 471", 1))

    assert meanwhile == ["Tab number 471"]
    assert until(lambda: is_done(ask))
    assert hf.verify().findings == ()
    assert texts(ltm.recall("number 471", 1)) == ["Tab number 471"]


def test_what_was_cut_off_is_taken_up_by_the_next_handle(target: str, ask: Ask) -> None:
    with holdfast.open(target) as hf:
        ltm: LongTermMemory = memory_of(hf, "ada")
        ltm.record([said(f"Tabs are number {number}") for number in range(3 * ROWS_AT_ONCE)])
        made_by_an_older_release(hf, ask)
        ltm.recall("number 7")
    ask("update ltm_collections set analyzer = 0, version = version + 1, redone = version + 1")

    with holdfast.open(target) as hf:
        memory_of(hf, "ada").recall("number 7")

        assert until(lambda: is_done(ask))
        assert hf.verify().findings == ()


def test_what_a_newer_release_made_is_left_alone(hf: Holdfast, ask: Ask) -> None:
    ltm = memory_of(hf, "ada")
    kept(ltm, "Prefers tabs over spaces")
    made_by_an_older_release(hf, ask)
    ask("update ltm_collections set analyzer = ?", VERSION + 1)

    ltm.recall("spaces")

    assert hf.longterm_shared.reindexing == {}
    assert ask("select analyzer from ltm_collections") == [(VERSION + 1,)]
