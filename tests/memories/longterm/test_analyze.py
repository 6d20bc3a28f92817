"""What a text is about, as terms."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.recall.analyze import WORDS, analyze


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("She painted two paintings", ["paint", "two", "paint"]),
        ("The of and it's don't", []),
        ("Ana's dogs' o'clock", ["ana", "dog", "o"]),
        ("bought children better", ["buy", "child", "good"]),
        ("BOUGHT, Bought; bought.", ["buy", "buy", "buy"]),
        ("it\u2019s Ana\u2019s caf\u00e9\u2019s", ["ana", "caf\u00e9"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ("call 555 in 2023", ["call", "555", "2023"]),
        ("\uff21\uff22\uff23 \ufb01sh", ["abc", "fish"]),
        (
            "Tsch\u00fcss Stra\u00dfe \u041c\u043e\u0441\u043a\u0432\u0430",
            ["tsch\u00fcss", "stra\u00dfe", "\u043c\u043e\u0441\u043a\u0432\u0430"],
        ),
        ("", []),
        ("!? \u2026 \U0001f600", []),
    ],
)
def test_words_become_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("\u6211\u7231\u4f60", ["\u6211", "\u7231", "\u4f60", "\u6211\u7231", "\u7231\u4f60"]),
        ("\u732b", ["\u732b"]),
        ("\u7528Python\u5199", ["\u7528", "python", "\u5199"]),
        ("\u30ab\u30e1\u30e9", ["\u30ab", "\u30e1", "\u30e9", "\u30ab\u30e1", "\u30e1\u30e9"]),
        ("\ucee4\ud53c", ["\ucee4", "\ud53c", "\ucee4\ud53c"]),
        ("\u0e01\u0e32", ["\u0e01", "\u0e32", "\u0e01\u0e32"]),
        ("2023\u5e745\u6708", ["2023", "\u5e74", "5", "\u6708"]),
    ],
)
def test_what_is_written_without_spaces_becomes_characters_and_pairs(
    text: str, terms: list[str]
) -> None:
    assert analyze(text) == terms


def test_a_stop_word_says_nothing_in_any_case() -> None:
    assert analyze(" ".join(WORDS.stop)) == []
    assert analyze(" ".join(WORDS.stop).upper()) == []


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u0416"])
def test_of_what_is_too_long_for_a_word_the_beginning_counts(letter: str) -> None:
    blob = letter.lower() * 100_000

    assert [len(term) for term in analyze(f"a {blob} boat")] == [64, 4]


@given(st.text())
def test_a_term_can_stand_in_a_body_of_terms_joined_by_spaces(text: str) -> None:
    terms = analyze(text)

    assert " ".join(terms).split() == terms


@given(st.text())
def test_a_text_and_its_compatible_form_have_the_same_terms(text: str) -> None:
    assert analyze(text) == analyze(unicodedata.normalize("NFKC", text))


@given(st.text(), st.text())
def test_a_text_is_as_much_about_its_parts_as_they_are_alone(first: str, second: str) -> None:
    assert analyze(f"{first}\n{second}") == [*analyze(first), *analyze(second)]


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_quick_way_for_ascii_gives_what_the_long_way_does(text: str) -> None:
    assert analyze(text + "\u00a0") == analyze(text)
