"""A conversation as bare postings, so that what each cue is worth can be measured."""

from holdfast.ground.clock import to_microseconds
from holdfast.library.evaluation.locomo import Conversation, Id
from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.index import LENT, Postings, Row
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.score import CUES, Cues
from holdfast.memories.longterm.records import RecallOptions, Weights

ALONE = Weights(1, 0, 0)
"""Similarity, and neither how fresh a turn is nor how important."""


class ConversationRows:
    """The turns of one conversation, recalled with any cues; without *names* nobody is known."""

    mode = "lexical"

    def __init__(
        self,
        conversation: Conversation,
        cues: Cues = CUES,
        lent: tuple[float, float, float] = LENT,
        *,
        names: bool = True,
    ) -> None:
        self._ids = {f"turn_{seq:09}": turn.id for seq, turn in enumerate(conversation.turns)}
        self._now, self._cues = to_microseconds(conversation.ends), cues
        self._postings = Postings(_rows(conversation), lent=lent)
        self._participants = self._postings.participants if names else ()

    def ranked(self, question: str, k: int) -> list[Id | None]:
        """Return the turns that answer best, by similarity alone, whatever it is."""
        return self._recall(
            question, RecallOptions(k=k, what="turns", weights=ALONE, min_relevance=0)
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns that a recall with nothing but defaults gives."""
        return self._recall(question, RecallOptions(k=k, what="turns"))

    def _recall(self, question: str, wanted: RecallOptions) -> list[Id | None]:
        postings = self._postings
        asked = read(question, self._participants)
        found = rank(postings, asked, wanted, now=self._now, cues=self._cues)
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
        )
        rows.append(row)
    return rows
