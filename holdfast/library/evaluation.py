"""Read conversations with questions and evidence in LoCoMo's JSON.

Files of other origin use the same format loosely, so all usable parts are read, and the unusable
questions are counted.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import to_nfc
from holdfast.memories.longterm.recall.analyze import MONTHS
from holdfast.memories.longterm.recall.index import MACHINES
from holdfast.memories.longterm.validation import CAPTION_BYTES, NAME_BYTES, TURN_BYTES

LONGEST, LONGEST_CAPTION, LONGEST_NAME = TURN_BYTES, CAPTION_BYTES, NAME_BYTES
"""Longer texts are cut, since a turn cannot have more."""
UNANSWERABLE = "5"
"""Category of questions without an answer in the conversation."""

_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")
_TIME = re.compile(
    r"(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s*([ap])\.?m\.?(?:,|\s+on)?\s+"
    r"(\d{1,2})(?:st|nd|rd|th)?\s+([a-z]{3,})\.?,?\s+(\d{4})",
    re.IGNORECASE,
)
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\s+([a-z]{3,})\.?,?\s+(\d{4})", re.IGNORECASE)
_START = datetime(2000, 1, 1, tzinfo=UTC)

Id = tuple[int, int]
"""Id of a turn: its session and its number there."""


class LocomoTurn(Struct, frozen=True, kw_only=True):
    """One turn, as read from the file."""

    id: Id | None
    role: str
    speaker: str | None
    text: str
    caption: str | None
    session: str
    at: datetime


class LocomoQuestion(Struct, frozen=True, kw_only=True):
    """A question, and the turns with the evidence of its answer."""

    question: str
    evidence: frozenset[Id]
    category: str


class Conversation(Struct, frozen=True, kw_only=True):
    """Turns of a conversation, in order, and the questions on it."""

    sample_id: str
    turns: tuple[LocomoTurn, ...]
    questions: tuple[LocomoQuestion, ...]
    skipped: int
    """Number of questions skipped without evidence."""

    @property
    def ends(self) -> datetime:
        """Time of the last session."""
        return max((turn.at for turn in self.turns), default=_START)


class Sample(Struct, frozen=True, kw_only=True):
    """A sample file, parsed."""

    path: str
    sha256: str
    conversations: tuple[Conversation, ...]


def read(path: Path) -> Sample:
    """Read the conversations in the file at *path*.

    Raises OSError if it cannot be read, InvalidInput if it is not of this format.
    """
    content = path.read_bytes()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise _foreign("is not JSON") from None
    if not isinstance(found, list):
        raise _foreign("is not a list of conversations")
    samples = cast("list[Any]", found)
    return Sample(
        path=str(path),
        sha256=sha256(content).hexdigest(),
        conversations=tuple(_conversation(each, index) for index, each in enumerate(samples)),
    )


def _foreign(reason: str, index: int | None = None) -> InvalidInput:
    next = "It takes LoCoMo's own form: a list of {sample_id, conversation, qa}."
    return InvalidInput("file", reason, index=index, next=next)


def _conversation(given: Any, index: int) -> Conversation:
    sample = _object(given)
    said = _object(sample.get("conversation"))
    if not said:
        raise _foreign(f"has no conversation in element {index}", index)
    turns = tuple(_turns(said))
    known = {turn.id for turn in turns}
    objects = (_object(each) for each in _list(sample.get("qa")))
    questions = [_question(each, known) for each in objects if each]
    return Conversation(
        sample_id=_text(sample.get("sample_id")) or str(index),
        turns=turns,
        questions=tuple(each for each in questions if each.evidence and each.question.strip()),
        skipped=sum(not (each.evidence and each.question.strip()) for each in questions),
    )


def _turns(said: dict[str, Any]) -> Iterator[LocomoTurn]:
    """Yield the turns of each session, in numeric order."""
    found = ((_SESSION.fullmatch(key), value) for key, value in said.items())
    sessions = sorted((int(match[1]), match[1], value) for match, value in found if match)
    at = _START
    for session, written, turns in sessions:
        at = _time(said.get(f"session_{written}_date_time")) or at
        for number, turn in enumerate(_list(turns), 1):
            if _object(turn):
                yield _turn(_object(turn), (session, number), at)


def _turn(turn: dict[str, Any], place: Id, at: datetime) -> LocomoTurn:
    speaker = _cut(_text(turn.get("speaker")).strip(), LONGEST_NAME) or None
    named = _EVIDENCE.search(_text(turn.get("dia_id")))
    machine = speaker is not None and speaker.casefold() in MACHINES
    text = _cut(_text(turn.get("text")), LONGEST)
    caption = _cut(_text(turn.get("blip_caption")), LONGEST_CAPTION)
    return LocomoTurn(
        id=(int(named[1]), int(named[2])) if named else None if "dia_id" in turn else place,
        role="assistant" if machine else "user",
        speaker=speaker,
        text=text,
        caption=caption or None,
        session=str(place[0]),
        at=at,
    )


def _question(question: dict[str, Any], known: set[Id | None]) -> LocomoQuestion:
    ids = (
        (int(session), int(number))
        for text in _strings(question.get("evidence"))
        for session, number in _EVIDENCE.findall(text)
    )
    category = question.get("category")
    return LocomoQuestion(
        question=_text(question.get("question")),
        evidence=frozenset(id for id in ids if id in known),
        category=_text(category).strip().removesuffix(".0") or "none",
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _strings(each)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return text.encode(errors="replace").decode().replace("\0", " ")


def _cut(text: str, longest: int) -> str:
    """Return the first *longest* bytes of *text* in NFC, as valid UTF-8."""
    text = to_nfc(text)
    return text if len(text) * 4 <= longest else text.encode()[:longest].decode(errors="ignore")


def _time(value: Any) -> datetime | None:
    """Parse `1:56 pm on 8 May, 2023` or RFC 3339 as UTC; None for other text."""
    text = _text(value).strip()
    if match := _TIME.search(text):
        hour, minute, half, day, month, year = match.groups()
        hours = int(hour) % 12 + (12 if half.lower() == "p" else 0)
        return _instant(year, month, day, hours, int(minute or 0))
    if match := _DAY.search(text):
        day, month, year = match.groups()
        return _instant(year, month, day, 0, 0)
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _instant(year: str, month: str, day: str, hour: int, minute: int) -> datetime | None:
    number = next((n for n, name in enumerate(MONTHS, 1) if name.startswith(month.lower())), 0)
    try:
        return datetime(int(year), number, int(day), hour, minute, tzinfo=UTC)
    except ValueError:
        return None
