"""Evaluate recall on a sample: ranking, defaults, and full text search."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from holdfast.library.evaluation import Conversation, Id, Sample
from holdfast.library.evaluation_baseline import full_text
from holdfast.library.evaluation_measures import DEEPEST, LocomoOutcome, answered

FOREIGN_STEP = 9
"""Every ninth question of another conversation is asked as a foreign one."""
MOST_FOREIGN = 5_000
"""Most foreign questions in all, evenly chosen from more."""

Told = Callable[[int], None]
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
    inserting: float = 0.0
    asking: list[float]
    """Seconds for inserting all turns, and for each question."""


def evaluate(sample: Sample, open: Open, *, k: int, watch: Watch, told: Told) -> Outcome:
    """Evaluate every question of *sample*, at least *k* deep, and foreign questions.

    Calls *told* with the number of questions done so far.
    """
    outcome = Outcome(ranked=[], shipped=[], plain=[], foreign=[], asking=[])
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
                told(len(outcome.ranked))
            outcome.foreign += [not subject.as_shipped(each, 1) for each in foreign(number)]
        with full_text(conversation) as plain:
            outcome.plain += [
                answered(number, each, plain.recall(each.question, DEEPEST))
                for each in conversation.questions
            ]
    return outcome


def foreign_questions(sample: Sample, most: int) -> Callable[[int], Iterator[str]]:
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
