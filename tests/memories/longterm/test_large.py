"""A collection too large to be held in process answers as one that is held, on each engine."""

from collections.abc import Iterator

import pytest
from contracts.longterm_items import kept, memory_of, said, texts

import holdfast
from holdfast.engines.base import Engine
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.recall.index import Postings, Row
from holdfast.memories.longterm.recall.score import means_of
from holdfast.memories.longterm.records import Turn
from holdfast.memories.longterm.transaction import LARGE, first_rows
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

WET = ["lake", "river", "island", "harbour", "glacier"]
THINGS = [*WET, "forest", "mountain", "desert", "village", "meadow"]
DEEDS = ["painted", "crossed", "photographed", "described", "mapped", "visited", "remembered"]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def hf(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Holdfast]:
    path = tmp_path_factory.mktemp("large") / "h.db"
    sqlite = request.param == "sqlite"
    target = str(path) if sqlite else request.getfixturevalue("postgres_url")
    with holdfast.open(target, workspace=new_workspace(), clock=FrozenClock()) as hf:
        yield hf


@pytest.fixture(scope="module")
def large(hf: Holdfast) -> LongTermMemory:
    """Give a memory of more turns than are held, some of which stand out."""
    ltm = memory_of(hf, "ada")
    turns: list[Turn] = []
    for number in range(LARGE + 20):
        thing, deed = THINGS[number % 10], DEEDS[number % 7]
        text = f"On walk {number} we {deed} the {thing}"
        turns.append(said(text, speaker="Ana", session=f"s{number // 12}"))
    ltm.record(turns, thread_id="t1")
    return ltm


def indexed(engine: Engine) -> int:
    """Return how many terms are in the index of words, of all collections."""
    table = "ltm_terms" if engine.dialect == "sqlite" else "ltm_df"
    return engine.scoped(EVERYBODY).one(dict[str, int], f"select count(*) as n from {table}")["n"]  # pyright: ignore[reportArgumentType] - one of two names


def test_the_row_that_answers_best_comes_first(large: LongTermMemory) -> None:
    assert texts(large.recall("walk 4321", k=1)) == ["On walk 4321 we photographed the river"]


def test_neighbours_are_those_of_its_session(large: LongTermMemory) -> None:
    found = large.recall("walk 3000", k=1)[0]

    assert found.neighbours is not None
    assert found.neighbours[0] is None
    assert found.neighbours[1] is not None
    assert found.neighbours[1].text.startswith("On walk 3001 ")


def test_what_has_nothing_to_do_with_it_is_not_recalled(large: LongTermMemory) -> None:
    assert large.recall("quantum chromodynamics") == []


def test_an_item_is_found_by_its_words_and_by_its_turn(large: LongTermMemory) -> None:
    turn = large.recall("walk 4000", k=1)[0]
    item = kept(large, "Ana proposed marriage near a glacier", turns=[turn.id])

    assert large.recall("proposed marriage", k=1)[0].item == item
    assert large.recall("walk 4000 marriage", k=1, what="turns")[0].why["links"]
    large.update(item.id, text="Ana proposed a toast")
    assert large.recall("marriage") == []
    assert texts(large.recall("toast")) == ["Ana proposed a toast"]


def test_a_new_turn_is_found_and_a_forgotten_one_is_not(large: LongTermMemory) -> None:
    turn = large.record([said("A zeppelin landed")], thread_id="t2").turns[0]
    assert texts(large.recall("zeppelin")) == ["A zeppelin landed"]

    large.forget(turn.id)

    assert large.recall("zeppelin", min_relevance=0) == []


def test_what_was_kept_of_it_answers_as_what_is_read_anew(
    hf: Holdfast, large: LongTermMemory
) -> None:
    asked = ["the walk on which Ana visited the lake", "a comet over the walk"]
    for each in asked:
        large.recall(each, touch=False)
    large.record([said("A comet stood over the lake", session="s416")], thread_id="t1")
    large.record([said("And the comet was green", session="s416")], thread_id="t1")
    large.recall(asked[1])
    large.flush()

    warm = [large.recall(each, k=20, touch=False) for each in asked]
    hf.longterm_shared.kept.clear()

    assert warm == [large.recall(each, k=20, touch=False) for each in asked]
    assert texts(warm[1])[0] == "A comet stood over the lake"


def test_its_answer_is_nearly_that_of_the_exact_rule(
    hf: Holdfast, large: LongTermMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        f"who {deed} the {thing} on walk {77 * n}"
        for n, (deed, thing) in enumerate(zip(DEEDS, THINGS, strict=False))
    ]
    proposed = [set(texts(large.recall(each, k=3, touch=False))) for each in asked]

    monkeypatch.setattr("holdfast.memories.longterm.recall.recall.LARGE", 10**9)
    exact = [set(texts(large.recall(each, k=3, touch=False))) for each in asked]

    assert sum(len(one & two) for one, two in zip(proposed, exact, strict=True)) >= 18
    hf.longterm_shared.kept.clear()


def test_nothing_of_it_is_left_in_the_index_once_it_is_cleared(hf: Holdfast) -> None:
    before = indexed(hf.engine)
    ltm = memory_of(hf, "carol")
    ltm.record([said(f"Word{number} again") for number in range(LARGE + 1)])
    assert indexed(hf.engine) > before

    ltm.clear()

    assert indexed(hf.engine) == before


def test_a_power_of_a_tenth_more_is_whole_and_not_above() -> None:
    assert [first_rows(rows) for rows in (0, 1, 2, 10, 5_021)] == [0, 1, 2, 10, 4_830]
    for rows in range(1, 3_000, 7):
        assert rows / 1.2 - 1 < first_rows(rows) <= rows


def test_the_means_are_those_of_postings() -> None:
    rows = [
        Row(
            id=f"turn_{number}",
            seq=number,
            body=" ".join(["word"] * (number % 31)),
            at=0,
            role="assistant" if number % 3 == 0 else "user",
            thread="t",
            session=f"s{number % 4}" if number % 2 else None,
        )
        for number in range(200)
    ]
    told = [(1, len(row.body.split()), row.thread, row.session or "", row.role, "") for row in rows]

    found, exact = means_of(told), Postings(rows)

    assert (found.length, found.window) == pytest.approx((exact.mean_length, exact.mean_window))
