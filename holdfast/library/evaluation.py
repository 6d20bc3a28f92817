"""Evaluate recall on conversations with questions: `holdfast eval locomo`.

Files of other origin use the same format loosely, so all usable parts are read, and the unusable
questions are counted.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from math import log2
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import to_nfc
from holdfast.library.open import open
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.recall.analyze import MONTHS, WORDS
from holdfast.memories.longterm.recall.form import PHRASES, form_of
from holdfast.memories.longterm.recall.index import MACHINES
from holdfast.memories.longterm.records import (
    DEFAULT_K,
    LongTermOptions,
    Recalled,
    Role,
    Turn,
    Weights,
)
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


class SampleFile(Struct, frozen=True, kw_only=True):
    """A sample file, parsed."""

    path: str
    sha256: str
    conversations: tuple[Conversation, ...]


def read(path: Path) -> SampleFile:
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
    return SampleFile(
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


DEPTHS = (1, 5, 10, 20, 50)
FEW, DEEPEST = 10, 50
"""Depth of most measures, and depth of the reciprocal rank."""

Figures = dict[str, float]


class LocomoOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one question."""

    conversation: int
    category: str
    evidence: int
    """Number of turns of evidence."""
    ranks: tuple[int, ...]
    """Ranks of the evidence, from 1."""
    found: int
    """Number of turns recalled."""


def answered(
    conversation: int, question: LocomoQuestion, ranking: Sequence[Id | None]
) -> LocomoOutcome:
    """Return the ranks of the evidence in *ranking*."""
    ranks: dict[Id, int] = {}
    for rank, id in enumerate(ranking, 1):
        if id in question.evidence:
            ranks.setdefault(id, rank)
    return LocomoOutcome(
        conversation=conversation,
        category=question.category,
        evidence=len(question.evidence),
        ranks=tuple(ranks.values()),
        found=len(ranking),
    )


def figures(every: Sequence[LocomoOutcome], k: int | None = None) -> Figures:
    """Return the measures of *every*, each the mean over questions, to 4 places."""
    measured: dict[str, Callable[[LocomoOutcome], float]] = {
        f"recall@{depth}": _recall_at(depth) for depth in sorted({*DEPTHS, k or DEEPEST})
    }
    few = _recall_at(FEW)
    measured["any@10"] = lambda each: few(each) > 0
    measured["all@10"] = lambda each: few(each) == 1
    measured["ndcg@10"] = ndcg
    measured["mrr"] = reciprocal_rank
    return {"n": len(every)} | {name: mean(map(of, every)) for name, of in measured.items()}


def _recall_at(depth: int) -> Callable[[LocomoOutcome], float]:
    """Return the measure of the share of evidence in the first *depth*."""
    return lambda each: sum(rank <= depth for rank in each.ranks) / each.evidence


def reciprocal_rank(each: LocomoOutcome) -> float:
    """Return 1 / rank of the first evidence; 0 beyond the deepest rank."""
    return 1 / each.ranks[0] if each.ranks and each.ranks[0] <= DEEPEST else 0.0


def ndcg(each: LocomoOutcome) -> float:
    """Return nDCG@10: discounted gain as a share of the best possible."""
    gained = sum(1 / log2(rank + 1) for rank in each.ranks if rank <= FEW)
    return gained / sum(1 / log2(rank + 1) for rank in range(1, min(each.evidence, FEW) + 1))


def mean(values: Iterable[float]) -> float:
    """Return the mean to 4 places; 0 of none."""
    every = list(values)
    return round(sum(every) / len(every), 4) if every else 0.0


_WORD = re.compile(r"[^\W_]+")
Execute = Callable[[str, Sequence[object]], Iterable[tuple[int]]]


class FullText:
    """Turns of one conversation, ranked by SQLite's bm25."""

    def __init__(self, conversation: Conversation) -> None:
        execute = cast("Execute", apsw.Connection(":memory:").execute)  # pyright: ignore[reportUnknownMemberType]
        self._execute, self._turns = execute, conversation.turns
        execute("create virtual table said using fts5(body, tokenize = 'porter')", ())
        for number, turn in enumerate(conversation.turns):
            body = f"{turn.text} {turn.caption or ''}"
            execute("insert into said (rowid, body) values (?, ?)", (number, body))

    def recall(self, question: str, k: int) -> list[Id | None]:
        """Return the turns with any of the words of *question*, best first."""
        words = [word for word in _WORD.findall(question.lower()) if word not in WORDS.stop]
        if not words:
            return []
        found = self._execute(
            "select rowid from said where said match ? order by bm25(said), rowid limit ?",
            (" OR ".join(f'"{word}"' for word in dict.fromkeys(words)), k),
        )
        return [self._turns[number].id for (number,) in found]


FOREIGN_STEP = 9
"""Every ninth question of another conversation is asked as a foreign one."""
MOST_FOREIGN = 5_000
"""Most foreign questions in all, evenly chosen from more."""

Progress = Callable[[int], None]
"""Progress callback with the number of questions done so far."""
Watch = Callable[[], float]
"""Timer in seconds, from any origin."""


class Subject(Protocol):
    """A conversation that answers questions."""

    mode: str

    def ranked(self, question: str, k: int) -> Sequence[Id | None]:
        """Return the turns of the best similarity, however low."""
        ...

    def as_shipped(self, question: str, k: int) -> Sequence[Id | None]:
        """Return the turns of a recall with default options."""
        ...


Open = Callable[[Conversation], AbstractContextManager[Subject]]
"""Context manager that records a conversation, and forgets it on exit."""


class Outcome(Struct, kw_only=True):
    """Outcomes of all questions, in the order of the file."""

    mode: str = "lexical"
    ranked: list[LocomoOutcome]
    shipped: list[LocomoOutcome]
    plain: list[LocomoOutcome]
    foreign: list[bool]
    """For each foreign question, whether its result was empty."""
    off_topic: list[int]
    """For each message off the topic, how many turns were recalled."""
    inserting: float = 0.0
    asking: list[float]
    """Seconds for inserting all turns, and for each question."""


def evaluate(
    sample: SampleFile, open: Open, *, k: int, watch: Watch, progress: Progress
) -> Outcome:
    """Evaluate every question of *sample*, at least *k* deep, and foreign questions.

    Calls *progress* with the number of questions done so far.
    """
    outcome = Outcome(ranked=[], shipped=[], plain=[], foreign=[], off_topic=[], asking=[])
    foreign = foreign_questions(sample, MOST_FOREIGN)
    for number, conversation in enumerate(sample.conversations):
        began = watch()
        with open(conversation) as subject:
            outcome.inserting += watch() - began
            outcome.mode = subject.mode
            for each in conversation.questions:
                began = watch()
                ranking = subject.ranked(each.question, max(k, DEEPEST))
                outcome.asking.append(watch() - began)
                outcome.ranked.append(answered(number, each, ranking))
                shipped = subject.as_shipped(each.question, max(k, DEEPEST))
                outcome.shipped.append(answered(number, each, shipped))
                progress(len(outcome.ranked))
            outcome.foreign += [not subject.as_shipped(each, 1) for each in foreign(number)]
            outcome.off_topic += [
                len(subject.as_shipped(each, DEFAULT_K)) for each in PHRASES.off_topic
            ]
        plain = FullText(conversation)
        outcome.plain += [
            answered(number, each, plain.recall(each.question, DEEPEST))
            for each in conversation.questions
        ]
    return outcome


def foreign_questions(sample: SampleFile, most: int) -> Callable[[int], Iterator[str]]:
    """Return a function from a conversation's number to the foreign questions there.

    They are questions of the other conversations, about *most* in all.
    """
    chosen = [each.questions[::FOREIGN_STEP] for each in sample.conversations]
    step = -(-sum(map(len, chosen)) * (len(chosen) - 1) // most) or 1

    def others(here: int) -> Iterator[str]:
        every = (each for number, each in enumerate(chosen) if number != here)
        flat = (one.question for questions in every for one in questions)
        return (question for number, question in enumerate(flat) if (number + here) % step == 0)

    return others


AT_ONCE = 500
"""Turns recorded in one call."""
ALONE = Weights(1, 0, 0)
"""Similarity only, without freshness and importance."""
USER = "user"
"""The user of each conversation."""
_OPTIONS = LongTermOptions(secrets="redact")
"""Turns with a suspected secret are redacted, and still evaluated."""


class FixedClock(Struct, frozen=True):
    """A clock with a fixed time."""

    at: datetime

    def now(self) -> datetime:
        """Return the fixed instant."""
        return self.at


class RecalledConversation:
    """Turns of one conversation, recalled with the library's own call."""

    def __init__(self, memory: LongTermMemory, conversation: Conversation) -> None:
        self._memory = memory
        self._ids: dict[str, Id | None] = {}
        turns = conversation.turns
        for start in range(0, len(turns), AT_ONCE):
            batch = turns[start : start + AT_ONCE]
            recorded = memory.record(
                Turn(
                    role=cast("Role", each.role),
                    speaker=each.speaker,
                    text=each.text,
                    caption=each.caption,
                    session=each.session,
                    at=each.at,
                )
                for each in batch
            )
            left_out = {each.index for each in recorded.skipped}
            recorded_turns = (each for index, each in enumerate(batch) if index not in left_out)
            for stored, each in zip(recorded.turns, recorded_turns, strict=True):
                self._ids[stored.id] = each.id
        memory.flush()
        self.mode = memory.status().mode

    def ranked(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of the best similarity, however low."""
        return self._among(
            self._memory.recall(
                question, k, what="turns", weights=ALONE, min_relevance=0, touch=False
            )
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of a recall with default options."""
        return self._among(self._memory.recall(question, k, what="turns", touch=False))

    def _among(self, recalled: list[Recalled]) -> list[Id | None]:
        return [self._ids[each.id] for each in recalled]


@contextmanager
def remembered(
    conversation: Conversation, *, embedder: object = False
) -> Generator[RecalledConversation]:
    """Yield *conversation* as one user's long-term memory, in its own engine.

    Raises InvalidInput if a variable disables long-term memory, or *embedder* cannot be used.
    """
    with open(":memory:", clock=FixedClock(conversation.ends)) as hf:
        memory = hf.longterm(USER, enabled=True, embedder=embedder, options=_OPTIONS)
        if memory is None:
            next = "Unset it for this command."
            raise InvalidInput("HOLDFAST_LTM_ENABLED", "switches recall off", next=next)
        if embedder is not False and (reason := memory.status().reason):
            raise InvalidInput("embedder", f"cannot be used: {reason}")
        yield RecalledConversation(memory, conversation)


Report = dict[str, object]


def report(sample: SampleFile, outcome: Outcome, *, k: int | None, version: str) -> Report:
    """Return the measures of *outcome*; with *k*, also recall at that depth."""
    every, shipped = sample.conversations, _main(outcome.shipped)
    plain = figures(_main(outcome.plain))
    categories = sorted({each.category for each in outcome.ranked})
    return {
        "file": sample.path,
        "sha256": sample.sha256,
        "version": version,
        "mode": outcome.mode,
        "conversations": len(every),
        "turns": sum(len(each.turns) for each in every),
        "questions": len(outcome.ranked),
        "skipped": sum(each.skipped for each in every),
        "overall": figures(_main(outcome.ranked), k),
        "categories": {
            name: figures([each for each in outcome.ranked if each.category == name], k)
            for name in categories
        },
        "by_conversation": _by_conversation(sample, outcome),
        "as_shipped": figures(shipped, k) | {"empty": mean(not each.found for each in shipped)},
        "foreign": {"n": len(outcome.foreign), "empty": mean(outcome.foreign)},
        "off_topic": {
            "n": len(outcome.off_topic),
            "empty": mean(not rows for rows in outcome.off_topic),
            "rows": mean(outcome.off_topic),
        },
        "noise": _noise(sample),
        "baseline": {name: plain[name] for name in ("recall@5", "recall@10", "mrr")},
        "ms": _milliseconds(sample, outcome),
    }


BELOW = 0.005
"""How far an embedder may lower recall@10 of a conversation."""
_FEW = f"recall@{FEW}"
_ADVICE = (
    "recall@10 is lower with the embedder than without: lower LongTermOptions(cosine_weight=…)"
)


def beside_lexical(found: Report, sample: SampleFile, outcome: Outcome, lexical: Outcome) -> Report:
    """Return the report *found* of an embedder, with the one without beside it."""
    ours, theirs = (_by_conversation(sample, each) for each in (outcome, lexical))
    pairs = ((one, other[_FEW] - BELOW) for one, other in zip(ours, theirs, strict=True))
    lower = [one["sample_id"] for one, least in pairs if one[_FEW] < least]
    own, plain = (figures(_main(each.ranked)) for each in (outcome, lexical))
    advice = _ADVICE if lower or own[_FEW] < plain[_FEW] else None
    return found | {"lexical": plain, "lower": lower, "advice": advice}


def _main(every: Sequence[LocomoOutcome]) -> list[LocomoOutcome]:
    return [each for each in every if each.category != UNANSWERABLE]


def _by_conversation(sample: SampleFile, outcome: Outcome) -> list[dict[str, Any]]:
    """Return the recall of each conversation, in the order of the file."""
    answers: list[list[LocomoOutcome]] = [[] for _ in sample.conversations]
    for each in _main(outcome.ranked):
        answers[each.conversation].append(each)
    return [
        {
            "sample_id": conversation.sample_id,
            "n": len(its),
            "recall@10": figures(its)["recall@10"],
        }
        for conversation, its in zip(sample.conversations, answers, strict=True)
    ]


def _noise(sample: SampleFile) -> Figures:
    """Return the number of turns that are no statement, and their share."""
    turns = [turn for each in sample.conversations for turn in each.turns]
    noise = [form_of(turn.text, turn.caption) != "statement" for turn in turns]
    return {"turns": sum(noise), "share": mean(noise)}


def _milliseconds(sample: SampleFile, outcome: Outcome) -> Figures:
    """Return milliseconds per inserted turn and per question (p50, p95)."""
    turns = sum(len(each.turns) for each in sample.conversations)
    asking = sorted(outcome.asking) or [0.0]

    def at(share: float) -> float:
        return round(1_000 * asking[min(len(asking) - 1, int(share * len(asking)))], 4)

    insert = round(1_000 * outcome.inserting / max(turns, 1), 4)
    return {"insert": insert, "query_p50": at(0.5), "query_p95": at(0.95)}
