"""What looks like a credential is found, and marked; what does not is left alone."""

import unicodedata
from pathlib import Path

import pytest
from ground.secrets.shapes import SHAPES, token
from hypothesis import given
from hypothesis import strategies as st

from holdfast import looks_like_secret
from holdfast.ground.secrets import find, redact
from holdfast.ground.secrets.heuristics import words

INNOCENT = Path(__file__).with_name("innocent.txt").read_text(encoding="utf-8").splitlines()
ZERO_WIDTH = "\u200b"
LOOK_ALIKE = str.maketrans("aceopxyABEHKMOPTX", "асеорхуАВЕНКМОРТХ")  # noqa: RUF001
WIDE = {each: each + 0xFEE0 for each in range(0x21, 0x7F)}
BOLD = {
    **{ord("A") + n: 0x1D400 + n for n in range(26)},
    **{ord("a") + n: 0x1D41A + n for n in range(26)},
    **{ord("0") + n: 0x1D7CE + n for n in range(10)},
}


def plain(shape: str) -> str:
    return shape.replace("⟦", "").replace("⟧", "")


def secret(shape: str) -> str:
    return shape.partition("⟦")[2].partition("⟧")[0]


def test_the_corpora_are_large_enough() -> None:
    assert len({text for _, text in SHAPES}) >= 100
    assert len(set(INNOCENT)) >= 100


def test_a_secret_is_found_where_it_stands() -> None:
    for kind, shape in SHAPES:
        text = plain(shape)

        assert kind in {hit.kind for hit in find(text)}, shape
        assert looks_like_secret(text), shape


def test_nothing_of_a_secret_is_left() -> None:
    for _, shape in SHAPES:
        pieces = [each for each in secret(shape).split() if len(each) >= 4]

        redacted = redact(plain(shape))

        assert not [each for each in pieces if each in redacted], shape


def test_what_is_redacted_holds_nothing_more_to_redact() -> None:
    for _, shape in SHAPES:
        assert find(redact(plain(shape))) == [], shape


def test_an_innocent_sentence_is_left_alone() -> None:
    for sentence in INNOCENT:
        assert find(sentence) == [], sentence
        assert redact(sentence) == sentence


def test_words_around_a_secret_stay() -> None:
    assert redact("I said: my pin is 4821, and 5 is odd") == (
        "I said: my pin is [redacted prose], and 5 is odd"
    )


HIDDEN = [
    (kind, shape)
    for kind, shape in SHAPES
    if kind in {"vendor_key", "jwt", "header", "assignment", "prose", "card", "url_credentials"}
]


def test_characters_that_nobody_sees_hide_nothing() -> None:
    for _, shape in HIDDEN:
        text = plain(shape)
        hidden = ZERO_WIDTH.join(text)

        assert len(find(hidden)) >= len(find(text)), shape


def test_letters_of_another_script_hide_nothing() -> None:
    for _, shape in HIDDEN:
        assert find(plain(shape).translate(LOOK_ALIKE)), shape


@pytest.mark.parametrize("form", [WIDE, BOLD], ids=["wide", "bold"])
def test_compatibility_forms_hide_nothing(form: dict[int, int]) -> None:
    for _, shape in HIDDEN:
        written = plain(shape).translate(form)

        assert unicodedata.normalize("NFKC", written) == plain(shape)
        assert find(written), shape


def test_a_hit_in_a_text_with_other_letters_is_where_it_stands() -> None:
    key = f"ghp_{token(36)}".translate(WIDE)
    text = f"naïve ﬁle\u200b½ key: {key} – ok"  # noqa: RUF001

    (hit,) = find(text)

    assert text[hit.start : hit.end] == key


def test_a_letter_that_is_glued_by_an_unseen_character_hides_no_key() -> None:
    assert find(f"word\u200bghp_{token(36)}")
    assert find(f"ключаghp_{token(36)}")  # noqa: RUF001


def test_a_key_within_a_word_is_no_key() -> None:
    assert find("the task-force-of-many-people met") == []
    assert find("disk-usage-of-some-long-path-name1") == []


def test_a_mark_in_a_text_is_not_taken_for_a_secret_but_what_is_joined_to_it_is() -> None:
    assert find("password=[redacted assignment]") == []
    assert find("password=[redacted assignment]hunter2")


def test_overlapping_shapes_are_one_hit_named_by_the_surest() -> None:
    (hit,) = find(f"OPENAI_API_KEY=sk-proj-{token(40)}")

    assert hit.kind == "vendor_key"


def test_the_words_of_recovery_phrases_are_all_there() -> None:
    assert len(words()) == 2048
    assert len({word[:4] for word in words()}) == 2048


texts = st.lists(
    st.one_of(
        st.sampled_from([plain(shape) for _, shape in SHAPES]),
        st.sampled_from(INNOCENT),
        st.sampled_from([" ", "\n", "=", ":", "'", '"', "@", "://", "/", "-", "[redacted card]"]),
        st.sampled_from(["password", "my pin is", "token=", "Bearer ", "otp ", "\u200b", "ﷺ"]),
        st.text(max_size=20),
    ),
    max_size=8,
).map("".join)


@given(texts)
def test_whatever_is_redacted_holds_no_secret(text: str) -> None:
    assert find(redact(text)) == []


@given(texts)
def test_hits_are_in_order_and_apart(text: str) -> None:
    hits = find(text)

    places = [place for hit in hits for place in (hit.start, hit.end)]
    assert places == sorted(places)
    assert all(0 <= hit.start < hit.end <= len(text) for hit in hits)
    assert looks_like_secret(text) == bool(hits)
