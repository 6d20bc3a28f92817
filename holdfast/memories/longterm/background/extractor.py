"""What a model is asked when a conversation is mined, and what its answer says."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from math import isnan
from typing import Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.secrets import redact
from holdfast.ground.text import to_nfc
from holdfast.memories.longterm.records import Item, Kind, Role, Turn

MOST_CHARACTERS: Final = 12_000
"""Of a rendered conversation; a longer one takes more calls."""
MOST_ITEMS: Final = 8
MOST_EXISTING: Final = 10
MOST_TEXT: Final = 4_096
"""Bytes of an item's text."""

_KEPT_OF_LONG: Final = 5_900
_MOST_SPEAKER: Final = 100
_MARK: Final = 16
_LONGEST_ESCAPE: Final = 5
_MOST_ANSWER: Final = 1_048_576
_MOST_TRIES: Final = 256
_NEWLINE = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": " "})
_BEGINNING = re.compile(r"[\[{]")
_KINDS: Final[dict[str, Kind]] = {kind: kind for kind in get_args(Kind)}

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class UnreadableAnswer(ValueError):
    """The answer of a model holds no list of items."""


class ExtractionTurn(Struct, frozen=True, kw_only=True):
    """A turn as an extractor is shown it."""

    ref: str
    role: Role
    speaker: str | None
    text: str


class ExistingItem(Struct, frozen=True, kw_only=True):
    """An item that is known already, as an extractor is shown it."""

    ref: str
    kind: Kind
    text: str


class ExtractionRequest(Struct, frozen=True, kw_only=True):
    """What an extractor is asked: `conversation` has the turns as text. No secret is in it."""

    instructions: str
    turns: tuple[ExtractionTurn, ...]
    existing: tuple[ExistingItem, ...]
    conversation: str
    max_items: int = MOST_ITEMS


class ConversationChunk(Struct, frozen=True, kw_only=True):
    """Turns of a conversation that fit one request, as they are and as they are shown."""

    turns: tuple[Turn, ...]
    shown: tuple[ExtractionTurn, ...]
    conversation: str


class ExtractedItem(Struct, frozen=True, kw_only=True):
    """An item as a model gave it. `turns` and `supersedes` are places in what it was asked.

    `outcome` says why it is not to be stored, where the answer alone tells that.
    """

    text: str
    kind: Kind
    importance: float
    turns: tuple[int, ...]
    supersedes: tuple[int, ...]
    outcome: Literal["unconfirmed", "over_limit"] | None = None


def parts(turns: Iterable[Turn]) -> Iterator[ConversationChunk]:
    """Give *turns*, oldest first, in parts each of which fits one request; nothing is dropped."""
    taken: list[tuple[Turn, ExtractionTurn, str]] = []
    size = 0
    for turn in turns:
        role, speaker = turn.role, redact(turn.speaker) if turn.speaker else None
        text = redact(turn.text)
        told = _told(role, speaker, text)
        # The mark of a place takes as much as its brackets, its letter, its digits and a space.
        more = len(f"[t{len(taken) + 1}] ") + len(told) + 1
        if taken and size + more > MOST_CHARACTERS + 1:
            yield _part(taken)
            taken, size = [], 0
        ref = f"t{len(taken) + 1}"
        shown = ExtractionTurn(ref=ref, role=role, speaker=speaker, text=text)
        taken.append((turn, shown, f"[{ref}] {told}"))
        size += len(taken[-1][2]) + 1
    if taken:
        yield _part(taken)


def request(part: ConversationChunk, existing: Iterable[Item] = ()) -> ExtractionRequest:
    """Return what is asked about *part*.

    *existing* are the live items nearest to it, of which the first ten are shown.
    """
    return ExtractionRequest(
        instructions=instructions(),
        turns=part.shown,
        existing=tuple(
            ExistingItem(ref=f"e{place}", kind=item.kind, text=redact(item.text))
            for place, item in enumerate(islice(existing, MOST_EXISTING), 1)
        ),
        conversation=part.conversation,
    )


@cache
def instructions() -> str:
    """Return what every extractor is told."""
    place = files("holdfast.memories.longterm").joinpath("extract.md")
    return place.read_text(encoding="utf-8").strip()


def candidates(answer: str, asked: ExtractionRequest) -> tuple[ExtractedItem, ...]:
    """Return the items that *answer* to *asked* gives; UnreadableAnswer if it gives no list.

    What has no text, or none that an item can have, is left out. The first 8 are taken.
    """
    if len(answer) > _MOST_ANSWER:
        raise UnreadableAnswer(f"more than {_MOST_ANSWER:,} characters")
    given = [each for entry in _entries(answer) if (each := _candidate(entry, asked))]
    over = [replace(each, outcome="over_limit") for each in given[asked.max_items :]]
    return (*given[: asked.max_items], *over)


def _part(taken: Iterable[tuple[Turn, ExtractionTurn, str]]) -> ConversationChunk:
    turns, shown, lines = zip(*taken, strict=True)
    return ConversationChunk(turns=turns, shown=shown, conversation="\n".join(lines))


def _told(role: str, speaker: str | None, text: str) -> str:
    """Return a turn on one line; of a text too long for a request, its beginning and its end."""
    said = _escaped(text)
    who = role
    if speaker:
        name = _escaped(speaker)
        who = f"{role} ({name[: _edge(name, _MOST_SPEAKER)]})"
    if len(who) + len(said) + _MARK <= MOST_CHARACTERS:
        return f"{who}: {said}"
    head, tail = _edge(said, _KEPT_OF_LONG), _edge(said, len(said) - _KEPT_OF_LONG, after=True)
    return f"{who}: {said[:head]} […{tail - head} characters left out…] {said[tail:]}"


def _escaped(text: str) -> str:
    return _NEWLINE.sub(r"\\n", text.translate(_ESCAPES))


def _edge(escaped: str, place: int, *, after: bool = False) -> int:
    """Return *place* in *escaped*, or the nearest before or *after* it that cuts no escape."""
    if place >= len(escaped):
        return len(escaped)
    start = escaped.rfind("&", max(0, place - _LONGEST_ESCAPE + 1), place)
    end = escaped.find(";", start) + 1 if start >= 0 else place
    if end <= place:
        return place
    return end if after else start


def _entries(answer: str) -> list[Json]:
    """Return the list in *answer*: the first that decodes, of objects if there is one."""
    decoder, other = json.JSONDecoder(), None
    for tries, found in enumerate(_BEGINNING.finditer(answer)):
        if tries == _MOST_TRIES:
            break
        try:
            value: Json = decoder.raw_decode(answer, found.start())[0]
        except (ValueError, RecursionError):
            continue
        listed = value.get("items") if isinstance(value, dict) else value
        if isinstance(listed, list):
            if not listed or any(isinstance(each, dict) for each in listed):
                return listed
            other = listed if other is None else other
    if other is None:
        raise UnreadableAnswer("no list of items")
    return other


def _candidate(entry: Json, asked: ExtractionRequest) -> ExtractedItem | None:
    """Return what *entry* says; None if it is no object, or has no text that an item can have."""
    text = _text(entry.get("text")) if isinstance(entry, dict) else None
    if text is None or not isinstance(entry, dict):
        return None
    users = [place for place, turn in enumerate(asked.turns) if turn.role == "user"]
    known = _places(entry.get("turns"), [turn.ref for turn in asked.turns])
    turns = known or users
    return ExtractedItem(
        text=text,
        kind=_kind(entry.get("kind")),
        importance=_importance(entry.get("importance")),
        turns=tuple(turns),
        supersedes=tuple(_places(entry.get("supersedes"), [each.ref for each in asked.existing])),
        outcome=None if set(turns) & set(users) else "unconfirmed",
    )


def _text(given: Json) -> str | None:
    """Return *given* as the text of an item, or None."""
    if not isinstance(given, str):
        return None
    text = to_nfc(given).strip()
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return None
    return text if "\0" not in text and size <= MOST_TEXT else None


def _kind(given: Json) -> Kind:
    return _KINDS.get(given, "fact") if isinstance(given, str) else "fact"


def _importance(given: Json) -> float:
    """Return *given* within 0 to 1, or the half for what is no number."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return 0.5
    return 0.5 if isinstance(given, float) and isnan(given) else float(min(max(given, 0), 1))


def _places(given: Json, refs: list[str]) -> list[int]:
    """Return where in *refs* those stand that *given* lists, each once and in their order."""
    named = set[str]()
    if isinstance(given, list):
        named = {each.strip() for each in given if isinstance(each, str)}
    return [place for place, ref in enumerate(refs) if ref in named]
