"""Recall measured on a sample: as it ranks, as it is shipped, and against full text search."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from holdfast.library.evaluation.baseline import full_text
from holdfast.library.evaluation.locomo import Conversation, Id, Sample
from holdfast.library.evaluation.measures import DEEPEST, LocomoOutcome, answered

FOREIGN_STEP = 9
"""Of another conversation every ninth question is asked here."""
MOST_FOREIGN = 5_000
"""Foreign questions in all; with more to ask, so many of them at most, evenly chosen."""

Told = Callable[[int], None]
"""Called with how many questions were asked so far."""
Watch = Callable[[], float]
"""Seconds, from any beginning."""


class Subject(Protocol):
    """A conversation that can be asked about."""

    mode: str

    def ranked(self, question: str, k: int) -> Sequence[Id | None]:
        """Return the turns that answer best, by similarity alone, whatever it is."""
        ...

    def as_shipped(self, question: str, k: int) -> Sequence[Id | None]:
        """Return the turns that a recall with nothing but defaults gives."""
        ...


Open = Callable[[Conversation], AbstractContextManager[Subject]]
"""Records a conversation, and forgets it in the end."""


class Outcome(Struct, kw_only=True):
    """What came of asking; one answer a question, in the order of the file."""

    mode: str = "lexical"
    ranked: list[LocomoOutcome]
    shipped: list[LocomoOutcome]
    plain: list[LocomoOutcome]
    foreign: list[bool]
    """Of each question that has nothing to do with the conversation, whether it got no answer."""
    inserting: float = 0.0
    asking: list[float]
    """Seconds: for all turns, and for each question."""


def evaluate(sample: Sample, open: Open, *, k: int, watch: Watch, told: Told) -> Outcome:
    """Ask every question of *sample*, *k* deep at least, of its own conversation and of others."""
    outcome = Outcome(ranked=[], shipped=[], plain=[], foreign=[], asking=[])
    foreign = foreign_questions(sample, MOST_FOREIGN)
    for number, conversation in enumerate(sample.conversations):
        began = watch()
        with open(conversation) as subject:
            outcome.inserting += watch() - began
            outcome.mode = subject.mode
            for asked in conversation.questions:
                began = watch()
                ranking = subject.ranked(asked.question, max(k, DEEPEST))
                outcome.asking.append(watch() - began)
                outcome.ranked.append(answered(number, asked, ranking))
                shipped = subject.as_shipped(asked.question, max(k, DEEPEST))
                outcome.shipped.append(answered(number, asked, shipped))
                told(len(outcome.ranked))
            outcome.foreign += [not subject.as_shipped(each, 1) for each in foreign(number)]
        with full_text(conversation) as plain:
            outcome.plain += [
                answered(number, asked, plain.recall(asked.question, DEEPEST))
                for asked in conversation.questions
            ]
    return outcome


def foreign_questions(sample: Sample, most: int) -> Callable[[int], Iterator[str]]:
    """Return what gives, for a conversation's number, the questions of others to be asked there.

    About *most* in all.
    """
    chosen = [each.questions[::FOREIGN_STEP] for each in sample.conversations]
    step = -(-sum(map(len, chosen)) * (len(chosen) - 1) // most) or 1

    def others(here: int) -> Iterator[str]:
        every = (each for number, each in enumerate(chosen) if number != here)
        flat = (asked.question for questions in every for asked in questions)
        return (question for number, question in enumerate(flat) if (number + here) % step == 0)

    return others
