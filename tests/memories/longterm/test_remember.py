"""What `remember` finds and what it makes room by, against plain models of both rules."""

import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
from contracts.longterm_items import kept, memory_of
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from library.upkeep.meddling import Ask, asking

import holdfast
from holdfast.ground.secrets import looks_like_secret
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.recall import dedupe
from holdfast.memories.longterm.recall.dedupe import (
    Like,
    bounds,
    fold_of,
    similarity,
    twin,
)
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.testing.fakes import FrozenClock

WORDS = (
    *("tea", "dog", "chess", "lisbon", "garden", "violin", "mountain", "bicycle", "harbour"),
    *("library", "umbrella", "telescope"),
)
DAY = 86_400.0

texts_of_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=16)
least_similar = st.sampled_from([0.3, 0.5, 0.66, 0.8, 0.9, 0.92, 1.0])


@st.composite
def near_texts(draw: st.DrawFn) -> list[str]:
    """Return texts of which many differ from an earlier one in a word or two."""
    made: list[list[str]] = []
    for _ in range(draw(st.integers(2, 8))):
        words = list(draw(st.sampled_from(made))) if made and draw(st.booleans()) else []
        words = words or draw(texts_of_words)
        for _ in range(draw(st.integers(0, 2))):
            at, word = draw(st.integers(0, len(words) - 1)), draw(st.sampled_from(WORDS))
            change = draw(st.sampled_from([[word], [], [words[at], word]]))
            words = words[:at] + change + words[at + 1 :] or [word]
        made.append(words)
    return [" ".join(words) for words in made]


@given(texts_of_words, texts_of_words, least_similar)
def test_a_similar_text_is_within_the_bounds(
    one: list[str], other: list[str], least: float
) -> None:
    near = bounds(one, least)
    if similarity(one, other) >= least:
        assert near.least <= len(other) <= near.most
        body = " ".join(other)
        assert all(any(term in body for term in group) for group in near.sought)


def test_the_longest_terms_are_sought_and_no_more_than_are_needed() -> None:
    assert bounds(WORDS[:10], 0.92).sought == (("mountain", "bicycle"), ("harbour", "library"))
    assert bounds(WORDS, 0.92).sought == (("telescope", "mountain"), ("umbrella", "bicycle"))


@pytest.mark.parametrize("terms", [WORDS * 4, ("tea",) * 12, ()])
def test_a_text_whose_duplicates_may_lack_its_terms_is_compared_with_all(
    terms: tuple[str, ...],
) -> None:
    assert bounds(terms, 0.92).sought == ((dedupe.ANY,), (dedupe.ANY,))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(near_texts(), least_similar)
def test_no_twin_is_missed_where_terms_are_sought(
    open_hf: Holdfast, given_texts: list[str], least: float
) -> None:
    # Twelve words of a wallet's list are a recovery phrase if their sum happens to be right.
    assume(not any(map(looks_like_secret, given_texts)))
    ltm = memory_of(open_hf, "ada", options=LongTermOptions(dedupe_similarity=least))
    ltm.clear()
    there: list[Like] = []
    for number, text in enumerate(given_texts):
        new = dedupe.said(text)
        known = twin(new, there, least)
        done = ltm.remember(text)

        assert done.stored is not None
        if known is None:
            assert done.outcome == "stored"
            body = " ".join(new.terms)
            there.append(
                Like(number=number, id=done.stored.id, fold=new.fold, body=body, text=text)
            )
        else:
            assert (done.outcome, done.stored.id) == ("duplicate", known.id)


@given(st.text(st.characters(max_codepoint=127)))
@example("".join(map(chr, range(128))))
def test_a_text_that_is_ascii_folds_as_any_other(text: str) -> None:
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(char for char in plain if unicodedata.category(char)[0] not in "PZ")

    whole = "".join(letters.split()).encode()
    assert fold_of(text) == blake2b(whole, digest_size=8).digest()


@pytest.fixture(scope="module")
def open_hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def ask(target: str, hf: Holdfast) -> Iterator[Ask]:
    del hf
    with asking(target) as ask:
        yield ask


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with holdfast.open(target, clock=FrozenClock()) as hf:
        yield hf


AGES = ((0.9, 40), (0.1, 1), (0.5, 10), (0.5, 10), (0.0, 0), (1.0, 4_000), (0.2, 90), (0.7, 2))
"""Of each item its importance, and the days since it was recalled last."""


@pytest.mark.parametrize("half_life", [1e-9, 3.0, 30.0, 1e300])
def test_items_go_in_the_order_of_their_retention(hf: Holdfast, ask: Ask, half_life: float) -> None:
    count = len(AGES)
    first = memory_of(hf, "ada", options=LongTermOptions(dedupe_similarity=0))
    items = [
        kept(first, f"Fact {n}", importance=importance) for n, (importance, _) in enumerate(AGES)
    ]
    now = int(items[0].created_at.timestamp() * 1e6)
    for place, (_, days) in enumerate(AGES):
        seen = now - int(days * DAY * 1e6)
        ask(f"update ltm_items set created_at = {seen} where id = '{items[place].id}'")
    ask(f"update ltm_items set superseded_at = {now} where id = '{items[4].id}'")
    ask("update ltm_collections set superseded = 1")

    options = LongTermOptions(dedupe_similarity=0, half_life_days=half_life, max_items=1)
    gone = memory_of(hf, "ada", options=options).remember("Plays chess", importance=0.0).evicted

    def value(place: int) -> tuple[bool, float, int]:
        importance, days = AGES[place]
        kept_whole = 0.2 * 2.0 ** -min(days / half_life, 1_000) + 0.1 * importance
        return place != 4, 0 if place == 4 else kept_whole, place

    assert gone == tuple(items[place].id for place in sorted(range(count), key=value))
