"""Recall over the bare postings of a conversation, to measure single cues."""

from holdfast.ground.clock import to_microseconds
from holdfast.library.evaluation import Conversation, Id
from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.index import LENT, Postings, Row
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.score import CUES, Cues
from holdfast.memories.longterm.records import RecallOptions, Weights

ALONE = Weights(1, 0, 0)
"""Similarity only, without freshness and importance."""


class ConversationRows:
    """Turns of one conversation, recalled with any cues.

    Without *names* the participants are unknown.
    """

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
        """Return the turns of the best similarity, however low."""
        return self._recall(
            question, RecallOptions(k=k, what="turns", weights=ALONE, min_relevance=0)
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of a recall with default options."""
        return self._recall(question, RecallOptions(k=k, what="turns"))

    def _recall(self, question: str, options: RecallOptions) -> list[Id | None]:
        postings = self._postings
        query = read(question, self._participants)
        found = rank(postings, query, options, now=self._now, cues=self._cues)
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
