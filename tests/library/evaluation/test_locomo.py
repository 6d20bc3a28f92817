"""Files of the form that recall is measured on, however loosely they keep to it."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.ground.errors import InvalidInput
from holdfast.library.evaluation import LONGEST, Conversation, read

WHEN = "1:56 pm on 8 May, 2023"


def said(*texts: str, session: int = 1) -> list[dict[str, str]]:
    return [
        {"speaker": "Ana", "dia_id": f"D{session}:{number}", "text": text}
        for number, text in enumerate(texts, 1)
    ]


def sample(qa: list[Any] | None = None, **conversation: Any) -> dict[str, Any]:
    told = {"session_1": said("one", "two", "three"), "session_1_date_time": WHEN}
    return {"sample_id": "c1", "conversation": told | conversation, "qa": qa or []}


def written(folder: Path, *samples: Any) -> Path:
    path = folder / "file.json"
    path.write_text(json.dumps(samples), encoding="utf-8")
    return path


def only(folder: Path, qa: list[Any] | None = None, **conversation: Any) -> Conversation:
    (found,) = read(written(folder, sample(qa, **conversation))).conversations
    return found


def evidence(folder: Path, given: Any) -> frozenset[tuple[int, int]] | None:
    asked = {"question": "What?", "evidence": given, "category": 1}
    found = only(folder, [asked], session_11=said(*"abc", session=11))
    return found.questions[0].evidence if found.questions else None


def test_a_turn_is_read_with_all_that_is_told_of_it(tmp_path: Path) -> None:
    turn = {"speaker": "Ana", "dia_id": "D1:1", "text": "Look", "blip_caption": "a lake"}
    found = only(tmp_path, session_1=[turn]).turns[0]

    assert (found.id, found.speaker, found.role) == ((1, 1), "Ana", "user")
    assert (found.text, found.caption, found.session) == ("Look", "a lake", "1")
    assert found.at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def test_a_file_is_known_by_its_hash(tmp_path: Path) -> None:
    path = written(tmp_path, sample())

    assert read(path).sha256 == sha256(path.read_bytes()).hexdigest()
    assert read(path).path == str(path)


@pytest.mark.parametrize("speaker", ["assistant", "AI", "Bot", "system", "tool"])
def test_a_machine_speaks_as_assistant(tmp_path: Path, speaker: str) -> None:
    turn = {"speaker": speaker, "dia_id": "D1:1", "text": "Look"}

    assert only(tmp_path, session_1=[turn]).turns[0].role == "assistant"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["D1:1"], {(1, 1)}),
        (["D1:1; D1:3 D11:2"], {(1, 1), (1, 3), (11, 2)}),
        (["D01:02"], {(1, 2)}),
        (["D:11:3"], {(11, 3)}),
        (["D1:1", "D1:1", "D1:99", "D7:1"], {(1, 1)}),
        ("D1:2", {(1, 2)}),
        ([["D1:2"], 7, None], {(1, 2)}),
    ],
)
def test_evidence_is_every_turn_that_its_strings_name(
    tmp_path: Path, given: Any, found: set[tuple[int, int]]
) -> None:
    assert evidence(tmp_path, given) == found


@pytest.mark.parametrize("given", [[], None, ["D9:9"], ["1:1"], "nowhere", 5])
def test_a_question_without_evidence_is_skipped_and_counted(tmp_path: Path, given: Any) -> None:
    asked = {"question": "What?", "evidence": given, "category": 1}
    found = only(tmp_path, [asked, {"question": "?", "evidence": ["D1:1"]}, "no question", {}])

    assert len(found.questions) == 1
    assert found.skipped == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [(1, "1"), ("5", "5"), (5.0, "5"), ("multi-hop", "multi-hop"), (None, "none"), ("", "none")],
)
def test_a_category_is_a_number_or_a_word(tmp_path: Path, given: Any, text: str) -> None:
    asked = {"question": "What?", "evidence": ["D1:1"], "category": given}

    assert only(tmp_path, [asked]).questions[0].category == text


def test_sessions_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    found = only(tmp_path, session_10=said("ten", session=10), session_2=said("second", session=2))

    assert [turn.session for turn in found.turns] == ["1", "1", "1", "2", "10"]


def test_a_date_may_have_no_session_and_a_session_no_date(tmp_path: Path) -> None:
    found = only(tmp_path, session_7_date_time=WHEN, session_2=said("second", session=2))

    assert len(found.turns) == 4
    assert found.turns[3].at == found.turns[0].at
    assert found.ends == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("12:05 am on 29 February, 2024", datetime(2024, 2, 29, 0, 5, tzinfo=UTC)),
        ("12:30 PM on 1st Sept 2022", datetime(2022, 9, 1, 12, 30, tzinfo=UTC)),
        ("8 May, 2023", datetime(2023, 5, 8, tzinfo=UTC)),
        ("2023-05-08T13:56:00+02:00", datetime(2023, 5, 8, 11, 56, tzinfo=UTC)),
        ("2023-05-08", datetime(2023, 5, 8, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_however_it_is_written(tmp_path: Path, text: str, at: datetime) -> None:
    assert only(tmp_path, session_1_date_time=text).turns[0].at == at


@pytest.mark.parametrize("text", ["31 June, 2023", "soon", "", None, 7, "25:61 xm on 5 Foo, 2020"])
def test_a_time_that_is_none_does_no_harm(tmp_path: Path, text: Any) -> None:
    assert only(tmp_path, session_1_date_time=text).turns[0].at.tzinfo is UTC


def test_what_a_turn_lacks_is_empty(tmp_path: Path) -> None:
    turns = [{"text": "a"}, {"speaker": None, "text": None, "dia_id": "x"}, "no turn", {}]
    found = only(tmp_path, session_1=turns).turns

    assert [(turn.id, turn.text, turn.speaker) for turn in found] == [
        ((1, 1), "a", None),
        (None, "", None),
    ]


def test_a_turn_of_any_length_is_read_and_what_cannot_be_kept_is_cut(tmp_path: Path) -> None:
    turns = said("x" * 300_000, "水" * LONGEST, "\ud800 lone")
    first, second, third = (turn.text for turn in only(tmp_path, session_1=turns).turns)

    assert len(first) == 300_000
    assert LONGEST - 3 < len(second.encode()) <= LONGEST
    assert third == "? lone"


@pytest.mark.parametrize(
    "content", [b"", b"no json", b"{}", b"[1]", b'[{"conversation": 7}]', b"\xff"]
)
def test_another_form_is_refused_with_what_is_wanted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)

    with pytest.raises(InvalidInput, match="sample_id, conversation, qa"):
        read(path)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, sample())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert len(read(path).conversations) == 1


def test_a_sample_without_a_name_has_its_number(tmp_path: Path) -> None:
    path = written(tmp_path, sample() | {"sample_id": None}, sample() | {"sample_id": 7})

    assert [each.sample_id for each in read(path).conversations] == ["0", "7"]


def test_no_conversation_is_nothing_to_ask(tmp_path: Path) -> None:
    assert read(written(tmp_path)).conversations == ()
