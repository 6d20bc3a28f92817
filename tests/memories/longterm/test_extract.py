"""What an extractor is asked, and what is read from its answer."""

import json
from typing import Any

import pytest
from ground.secrets.shapes import token
from hypothesis import given
from hypothesis import strategies as st
from memories.longterm.found import item, turn

from holdfast.memories.longterm.background.extractor import (
    MOST_CHARACTERS,
    ExtractedItem,
    ExtractionRequest,
    UnreadableAnswer,
    candidates,
    instructions,
    parts,
    request,
)
from holdfast.memories.longterm.records import Turn

TALK = [
    turn("I moved to Lisbon", speaker="Ana"),
    turn("Nice! You like the sea.", role="assistant"),
    turn("Yes, and I surf <daily> & swim\nat dawn", speaker="Ana"),
]


def asked(*turns: Turn) -> ExtractionRequest:
    (part,) = parts(turns or TALK)
    return request(part, [item("Lives in Porto", kind="fact"), item("Likes tea")])


def read(entry: Any, *more: Any) -> tuple[ExtractedItem, ...]:
    return candidates(json.dumps({"items": [entry, *more]}), asked())


def test_a_conversation_has_one_line_for_each_turn() -> None:
    assert asked().conversation == (
        "[t1] user (Ana): I moved to Lisbon\n"
        "[t2] assistant: Nice! You like the sea.\n"
        "[t3] user (Ana): Yes, and I surf &lt;daily&gt; &amp; swim\\nat dawn"
    )


def test_a_request_shows_turns_and_what_is_known_by_marks() -> None:
    shown = asked()

    assert [(each.ref, each.role, each.speaker) for each in shown.turns] == [
        ("t1", "user", "Ana"),
        ("t2", "assistant", None),
        ("t3", "user", "Ana"),
    ]
    assert [(each.ref, each.kind, each.text) for each in shown.existing] == [
        ("e1", "fact", "Lives in Porto"),
        ("e2", "preference", "Likes tea"),
    ]
    assert shown.max_items == 8
    assert shown.instructions == instructions()


def test_no_more_than_ten_known_items_are_shown() -> None:
    (part,) = parts(TALK)

    assert len(request(part, [item(f"Likes {each}") for each in range(30)]).existing) == 10


def test_no_secret_is_in_a_request() -> None:
    key = f"ghp_{token(36)}"
    (part,) = parts([turn(f"my key {key}", speaker=key)])
    shown = request(part, [item(f"The key is {key}")])

    assert key not in repr(shown)
    assert "[redacted vendor_key]" in shown.conversation


def test_the_instructions_say_what_must_not_be_written() -> None:
    for words in ("the user stated it", "secret", "assistant claimed", "guesses", "this moment"):
        assert words in instructions()


def test_a_long_conversation_takes_more_calls_and_loses_nothing() -> None:
    turns = [turn(f"{place} " + "lorem " * 300) for place in range(40)]

    given = list(parts(turns))

    assert [each for part in given for each in part.turns] == turns
    assert all(len(part.conversation) <= MOST_CHARACTERS for part in given)
    assert all(part.conversation.startswith("[t1] user: ") for part in given)
    assert len(given) == 7


def test_of_a_turn_too_long_its_beginning_and_its_end_are_shown() -> None:
    text = "a" * 9_000 + "b" * 9_000
    (part,) = parts([turn(text)])

    assert part.conversation == (
        f"[t1] user: {'a' * 5_900} […6200 characters left out…] {'b' * 5_900}"
    )
    assert part.shown[0].text == text


@given(st.lists(st.text(alphabet="&<>;ab\n\u2028", max_size=9_000), min_size=1, max_size=4))
def test_a_conversation_is_never_too_long_and_cuts_no_escape(texts: list[str]) -> None:
    turns = [turn(text * 3, speaker=text[:200] or None) for text in texts]

    given = list(parts(turns))

    assert [each for part in given for each in part.turns] == turns
    for part in given:
        assert len(part.conversation) <= MOST_CHARACTERS
        assert len(part.conversation.splitlines()) == len(part.turns)
        plain = part.conversation
        for entity in ("&amp;", "&lt;", "&gt;"):
            plain = plain.replace(entity, "")
        assert not set(plain) & set("&<>")


def test_an_answer_gives_its_items() -> None:
    (found,) = read(
        {
            "text": " Ana lives in Lisbon. ",
            "kind": "fact",
            "importance": 0.8,
            "turns": ["t1"],
            "supersedes": ["e1"],
        }
    )

    assert found == ExtractedItem(
        text="Ana lives in Lisbon.", kind="fact", importance=0.8, turns=(0,), supersedes=(0,)
    )


ANSWER = '{"items": [{"text": "Ana surfs."}]}'


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        '[{"text": "Ana surfs."}]',
        f"```json\n{ANSWER}\n```",
        f"Here is what I found: {ANSWER} I hope it helps.",
        f"[Note] as {{asked}} [1]: {ANSWER}",
        f'{{"thinking": "none", "answer": {ANSWER}}}',
        f"{ANSWER}\n{ANSWER.replace('surfs', 'skis')}",
    ],
    ids=["object", "list", "fence", "prose", "brackets", "wrapped", "twice"],
)
def test_an_answer_is_found_whatever_stands_around_it(answer: str) -> None:
    assert [each.text for each in candidates(answer, asked())] == ["Ana surfs."]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Nothing to remember.",
        "null",
        "{}",
        '{"items": "none"}',
        '{"items": [{"text": "cut off',
        "[" * 50_000,
        '{"a":' * 50_000,
        "x" * 1_048_577,
    ],
)
def test_an_answer_without_a_list_is_unreadable(answer: str) -> None:
    with pytest.raises(UnreadableAnswer):
        candidates(answer, asked())


@pytest.mark.parametrize("answer", ["[]", '{"items": []}', "None: []", "[1, 2]"])
def test_an_answer_may_have_nothing(answer: str) -> None:
    assert candidates(answer, asked()) == ()


@pytest.mark.parametrize(
    "entry",
    [
        *("Ana surfs", 3, None, ["x"], {}, {"text": 3}, {"text": None}),
        *({"text": "\ud800"}, {"text": "a\0b"}, {"text": "é" * 2_049}),
    ],
)
def test_an_entry_without_a_text_is_left_out(entry: Any) -> None:
    assert [each.text for each in read(entry, {"text": "Ana surfs."})] == ["Ana surfs."]


@pytest.mark.parametrize(
    ("given", "kind"),
    [("event", "event"), ("decision", "decision"), ("Fact", "fact"), (3, "fact"), ([], "fact")],
)
def test_an_unknown_kind_is_a_fact(given: Any, kind: str) -> None:
    assert read({"text": "x", "kind": given})[0].kind == kind


@pytest.mark.parametrize(
    ("given", "importance"),
    [
        *((0.3, 0.3), (2, 1), (-1, 0), (1e400, 1), (10**300, 1), (float("nan"), 0.5)),
        *(("high", 0.5), (True, 0.5), (None, 0.5), ([1], 0.5)),
    ],
)
def test_an_importance_is_clamped_or_a_half(given: Any, importance: float) -> None:
    assert read({"text": "x", "importance": given})[0].importance == importance


@pytest.mark.parametrize(
    ("given", "turns", "outcome"),
    [
        (["t3"], (2,), None),
        (["t3", "t1", "t3"], (0, 2), None),
        (["t2", "t3"], (1, 2), None),
        (["t2"], (1,), "unconfirmed"),
        (["t2", "t99"], (1,), "unconfirmed"),
        (["t99"], (0, 2), None),
        ([], (0, 2), None),
        (None, (0, 2), None),
        ("t2", (0, 2), None),
        ([2, {"ref": "t2"}, ["t2"]], (0, 2), None),
    ],
)
def test_turns_are_those_known_and_one_of_them_is_the_users(
    given: Any, turns: tuple[int, ...], outcome: str | None
) -> None:
    (found,) = read({"text": "x", "turns": given})

    assert (found.turns, found.outcome) == (turns, outcome)


def test_turns_left_out_are_all_of_the_users() -> None:
    assert read({"text": "x"})[0].turns == (0, 2)


def test_what_no_user_said_is_unconfirmed() -> None:
    alone = asked(turn("You like the sea", role="assistant"))

    (found,) = candidates('[{"text": "Likes the sea"}]', alone)

    assert found.outcome == "unconfirmed"


@pytest.mark.parametrize(
    ("given", "places"),
    [(["e2"], (1,)), (["e2", "e1", "e9"], (0, 1)), ("e1", ()), (None, ()), ([1], ()), (["t1"], ())],
)
def test_what_is_superseded_is_among_what_is_known(given: Any, places: tuple[int, ...]) -> None:
    assert read({"text": "x", "supersedes": given})[0].supersedes == places


def test_the_first_eight_are_taken_and_the_rest_said_to_be_over() -> None:
    found = read(*({"text": f"Fact {place}", "turns": ["t2"]} for place in range(20)))

    assert [each.outcome for each in found] == ["unconfirmed"] * 8 + ["over_limit"] * 12


def test_white_space_alone_is_a_candidate_that_says_nothing() -> None:
    assert read({"text": " \n"})[0].text == ""


KEYS = st.sampled_from(["items", "text", "kind", "importance", "turns", "supersedes", "x"])
SCALARS = st.none() | st.booleans() | st.floats() | st.text()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_whatever_is_answered_gives_items_or_is_unreadable(value: Any) -> None:
    try:
        found = candidates(json.dumps(value), asked())
    except UnreadableAnswer:
        return

    assert all(0 <= each.importance <= 1 and each.kind for each in found)
