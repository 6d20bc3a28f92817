"""Form of a text: what is a statement, a question, a non-answer, or phatic."""

import json
import string
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.recall.form import LONGEST, PHRASES, Form, content, form_of
from holdfast.memories.longterm.rows import ASKS_ONLY, SAYS_NOTHING, bits_of, bits_of_turn

LABELLED: dict[Form, list[str]] = json.loads((Path(__file__).parent / "forms.json").read_text())
TEXTS = [(text, form) for form, texts in LABELLED.items() for text in texts]
MISREAD = {
    "We won!": "phatic",
    "See ya!": "statement",
    "I currently have no record of your address, sorry.": "statement",
}
"""What the rule gets wrong: "won" is a stop word, as the rest of "won't"."""


def test_there_are_texts_of_each_form_in_three_languages() -> None:
    assert set(LABELLED) == set(get_args(Form))
    assert len({text for text, _ in TEXTS}) == len(TEXTS) >= 200


@pytest.mark.parametrize(("text", "form"), TEXTS)
def test_a_text_has_the_form_that_a_person_gave_it(text: str, form: Form) -> None:
    assert form_of(text) == MISREAD.get(text, form)


def test_a_turn_with_the_caption_of_an_image_is_a_statement() -> None:
    assert form_of("Look?", caption="a frozen lake") == "statement"
    assert form_of("Look?", caption=" ") == form_of("Look?")


def test_a_text_of_several_sentences_is_a_statement_if_one_is() -> None:
    assert form_of("Hi! Where do I work? I work at Acme.") == "statement"
    assert form_of("Hi! Where do I work? I do not know.") == "question"
    assert form_of("Thanks! I do not know.") == "non_answer"


@pytest.mark.parametrize("text", ["", " ", "?", "?!?", "…", "the of and"])
def test_a_text_without_content_is_phatic(text: str) -> None:
    assert form_of(text) == "phatic"


def test_typographic_apostrophes_make_no_difference() -> None:
    for text, _ in TEXTS:
        assert form_of(text.replace("'", "\u2019")) == form_of(text)


def test_capitals_make_no_difference() -> None:
    for text, _ in TEXTS:
        assert form_of(text.upper()) == form_of(text)


def test_content_is_counted_without_phatic_words() -> None:
    assert content("Thanks, great, the lake was frozen") == 2
    assert content("Thanks, great") == 0


def test_a_very_long_text_is_a_statement_whatever_it_says() -> None:
    assert form_of("where " * LONGEST + "?") == "statement"
    assert form_of("where is " * 1_000 + "?") == "statement"


@pytest.mark.parametrize("repeated", ["a", " ", "?", "'", ", ", "i ", "my ", "no sorry ", "and i "])
def test_a_million_repeats_are_read(repeated: str) -> None:
    assert form_of(repeated * (1_000_000 // len(repeated))) in get_args(Form)


@pytest.mark.hypothesis
@given(st.text(alphabet=string.printable + "\u2019\uff1f。我吗", max_size=200))
def test_any_text_has_a_form_and_the_flags_of_a_turn_show_it(text: str) -> None:
    form, bits = form_of(text), bits_of_turn(text)

    assert bool(bits & ASKS_ONLY) == (form == "question")
    assert bool(bits & SAYS_NOTHING) == (form in ("non_answer", "phatic"))
    assert bits & ~(ASKS_ONLY | SAYS_NOTHING) == bits_of(text)


def test_the_messages_off_the_topic_are_those_that_the_rules_were_set_on() -> None:
    assert len(set(PHRASES.off_topic)) == 60
