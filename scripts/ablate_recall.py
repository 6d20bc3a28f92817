# ruff: noqa: INP001, T201 - scripts are run, not imported, and print
"""Print what each cue of recall is worth on a file of conversations, as docs/recall.md shows it.

    python scripts/ablate_recall.py FILE

Each line leaves one cue out, or all of them. FILE is as `holdfast eval locomo` takes it.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from holdfast.ground.clock import to_microseconds
from holdfast.library.evaluation import (
    ALONE,
    UNANSWERABLE,
    USER,
    Conversation,
    Id,
    LocomoOutcome,
    SampleFile,
    answered,
    figures,
    read,
)
from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.form import form_of
from holdfast.memories.longterm.recall.index import LENT, Postings, Row
from holdfast.memories.longterm.recall.query import read as read_query
from holdfast.memories.longterm.recall.query import topic_of
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.score import CUES, Cues, RecallSearch
from holdfast.memories.longterm.records import LongTermOptions, RecallQuery

MEASURES = ("recall@5", "recall@10", "recall@20", "mrr")
DEPTH = 50
NOTHING_LENT = (0.0, 0.0, 0.0)
NONE = Cues(
    followed=(0.0, 0.0),
    session=0.0,
    speaker=0.0,
    date=0.0,
    when=0.0,
    first_person=0.0,
    question=0.0,
    user=0.0,
    machine_asked=0.0,
    link=0.0,
)


class ConversationRows:
    """Turns of one conversation, recalled with any cues.

    Without *names* the participants are unknown; without *related* only words of the query count.
    """

    mode = "lexical"

    def __init__(
        self,
        conversation: Conversation,
        cues: Cues = CUES,
        lent: tuple[float, float, float] = LENT,
        *,
        names: bool = True,
        related: bool = True,
    ) -> None:
        self._ids = {f"turn_{seq:09}": turn.id for seq, turn in enumerate(conversation.turns)}
        self._now, self._cues = to_microseconds(conversation.ends), cues
        self._postings = Postings(_rows(conversation), lent=lent)
        self._participants = self._postings.participants if names else ()
        self._related = related

    def ranked(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of the best similarity, however low."""
        return self._recall(
            question, k, LongTermOptions(weights=ALONE, min_relevance=0, related=self._related)
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of a recall with default options."""
        return self._recall(question, k, LongTermOptions(related=self._related))

    def _recall(self, question: str, k: int, options: LongTermOptions) -> list[Id | None]:
        query = RecallQuery(query=question, k=k, what="turns")
        parsed = read_query(question, self._participants)
        topic = topic_of(question, parsed, USER)
        search = RecallSearch(query=query, options=options, now=self._now, topic=topic)
        found = rank(self._postings, parsed, search, self._cues)
        return [self._ids[each.id] for each in found]


def _rows(conversation: Conversation) -> list[Row]:
    rows: list[Row] = []
    for seq, turn in enumerate(conversation.turns):
        flags = flags_of(turn.text, turn.caption)
        row = Row(
            id=f"turn_{seq:09}",
            seq=seq,
            body=" ".join(analyze(f"{turn.text} {turn.caption or ''}")),
            at=to_microseconds(turn.at),
            role=turn.role,
            speaker=turn.speaker,
            session=turn.session,
            question=flags.question,
            first_person=flags.first_person,
            time=flags.time,
            noise=form_of(turn.text, turn.caption) != "statement",
        )
        rows.append(row)
    return rows


Make = Callable[[Conversation], ConversationRows]


def without(**cues: object) -> Make:
    """Return what makes a conversation with *cues* changed."""
    return lambda conversation: ConversationRows(conversation, replace(CUES, **cues))


VARIANTS: dict[str, Make] = {
    "all cues": ConversationRows,
    "without related words": lambda each: ConversationRows(each, related=False),
    "without what the turns before lend": lambda each: ConversationRows(each, lent=NOTHING_LENT),
    "without what the turns after add": without(followed=(0.0, 0.0)),
    "without the session": without(session=0.0),
    "without the speaker": without(speaker=0.0),
    "without names: neither heard nor dropped": lambda each: ConversationRows(each, names=False),
    "without dates": without(date=0.0),
    "without times for when-questions": without(when=0.0),
    "without first person": without(first_person=0.0),
    "without questions": without(question=0.0),
    "words of the turn and those before alone": lambda each: ConversationRows(
        each, NONE, names=False, related=False
    ),
    "words of the turn alone": lambda each: ConversationRows(
        each, NONE, NOTHING_LENT, names=False, related=False
    ),
}


def ask(sample: SampleFile, make: Make) -> list[LocomoOutcome]:
    """Return what came of the questions that can be answered."""
    return [
        answered(number, asked, subject.ranked(asked.question, DEPTH))
        for number, conversation in enumerate(sample.conversations)
        for subject in [make(conversation)]
        for asked in conversation.questions
        if asked.category != UNANSWERABLE
    ]


def by_conversation(every: Sequence[LocomoOutcome]) -> list[float]:
    """Return recall@10 of each conversation."""
    groups = groupby(every, lambda each: each.conversation)
    return [figures(list(group))["recall@10"] for _, group in groups]


def main(path: Path) -> None:
    """Print the table."""
    sample = read(path)
    print(f"| | {' | '.join(MEASURES)} | change | conversations down, up |")
    print(f"|---|{'---|' * (len(MEASURES) + 2)}")
    base: list[float] = []
    whole = 0.0
    for name, make in VARIANTS.items():
        every = ask(sample, make)
        found, each = figures(every), by_conversation(every)
        base, whole = base or each, whole or found["recall@10"]
        down = sum(one < other for one, other in zip(each, base, strict=True))
        up = sum(one > other for one, other in zip(each, base, strict=True))
        shown = " | ".join(f"{found[measure]:.3f}" for measure in MEASURES)
        change = 100 * (found["recall@10"] - whole)
        print(f"| {name} | {shown} | {change:+.1f} | {down}, {up} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
