"""Mining what was said: an extractor proposes items, and what may be kept of them is kept.

What a part of a conversation comes to, and that it was mined, are one transaction: each turn is
mined once, by however many processes, and whoever of them dies.
"""

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.memories.longterm.background.extractor import (
    MOST_EXISTING,
    ConversationChunk,
    ExtractionRequest,
    UnreadableAnswer,
    candidates,
    parts,
    request,
)
from holdfast.memories.longterm.background.jobs import (
    AGAIN,
    CRASHED,
    Job,
    LostJob,
    check_held,
    claim,
    end,
    put_off,
    renew,
    seconds_to_next,
    shrink,
)
from holdfast.memories.longterm.background.keeping import Proposed, keep, propose
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.context import CollectionContext, Extractor, publish
from holdfast.memories.longterm.read import ItemFilter, list_rows
from holdfast.memories.longterm.recall.recall import nearest_items
from holdfast.memories.longterm.records import Item, Remembered
from holdfast.memories.longterm.rows import TurnRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.vectors.compare import EmbeddingState, standing_of

SECONDS: Final = 60.0
"""How long an extractor may take for one answer."""

_log = logging.getLogger(__name__)


class ExtractionFailed(Exception):
    """No answer came, or none that can be read. *reason* is the type of what was raised."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Mining(Struct, frozen=True):
    """Whoever mines what was said in one collection."""

    caller: CollectionContext

    def tend(self) -> float | None:
        """Do one job that is due; see `Tender`."""
        caller, standing = self.caller, standing_of(self.caller)
        if standing is None or caller.extractor is None:
            return None
        job = claim(caller, standing.number, "extract")
        if job is None:
            return seconds_to_next(caller, standing.number, "extract")
        if job.attempts > len(AGAIN):
            self._failed(standing, job, CRASHED)
            return 0.0
        try:
            mine(caller, caller.extractor, standing, job)
        except LostJob:
            return 0.0
        except ExtractionFailed as failed:
            self._failed(standing, job, failed.reason)
        return 0.0

    def _failed(self, standing: EmbeddingState, job: Job, reason: str) -> None:
        _log.warning("an extraction failed: %s", reason)
        if put_off(self.caller, job, reason):
            publish(self.caller, "extraction_failed", collection=standing.id, error=reason)


def mine(
    caller: CollectionContext, extractor: Extractor, standing: EmbeddingState, job: Job
) -> None:
    """Mine the turns that *job* is about, each part committed by itself.

    Raises ExtractionFailed, and LostJob for one that is no longer ours.
    """
    rows = _turns(caller, standing, job)
    numbers = {row.id: row.number for row in rows}
    left = [row.number for row in rows]
    found = False
    for part in parts(row.record() for row in rows):
        found = True
        done = {numbers[turn.id] for turn in part.turns}
        left = [number for number in left if number not in done]
        proposed = _proposed(caller, extractor, job, part)
        _keep(caller, job, proposed, left)
    if not found:
        _keep(
            caller, job, Proposed(part=ConversationChunk(turns=(), shown=(), conversation="")), ()
        )


def _proposed(
    caller: CollectionContext, extractor: Extractor, job: Job, part: ConversationChunk
) -> Proposed:
    said = "\n".join(turn.text for turn in part.turns if turn.role == "user")
    known = _known(caller, said)
    asked = request(part, known)
    answer = _answer(caller, extractor, job, asked)
    try:
        given = candidates(answer, asked)
    except UnreadableAnswer as error:
        raise ExtractionFailed(type(error).__name__) from error
    return propose(caller, part, known, given)


def _known(caller: CollectionContext, said: str) -> list[Item]:
    """Return the live items nearest to what was *said*, and the newest where few are near."""
    near = nearest_items(caller, said, MOST_EXISTING)
    if len(near) < MOST_EXISTING:
        newest = list_rows(caller, ItemFilter(), limit=MOST_EXISTING, page=None).data
        ids = {item.id for item in near}
        near += [each for each in newest if isinstance(each, Item) and each.id not in ids]
    return near[:MOST_EXISTING]


def _answer(
    caller: CollectionContext, extractor: Extractor, job: Job, asked: ExtractionRequest
) -> str:
    def ask() -> str:
        try:
            answer = extractor(asked)
        except Exception as error:
            # Anybody's code: what it raises may hold what was said, so its type alone is told.
            raise ExtractionFailed(type(error).__name__) from error
        if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - anybody's code
            raise ExtractionFailed(UnreadableAnswer.__name__)
        return answer

    begun = perf_counter()
    try:
        answer = bounded(ask, SECONDS, name="holdfast-extraction", beat=lambda: renew(caller, job))
    except TimeoutError as error:
        raise ExtractionFailed(type(error).__name__) from error
    caller.shared.counts.took("extraction_seconds", perf_counter() - begun)
    return answer


def _keep(caller: CollectionContext, job: Job, proposed: Proposed, left: Sequence[int]) -> None:
    """Keep what was proposed, and note that of *job* the rows *left* remain."""

    def work(tx: Transaction) -> tuple[Remembered, ...]:
        book = CollectionTransaction(caller, tx, make=False)
        if book.found is None:
            raise LostJob
        check_held(caller, tx, job)
        results = keep(book, proposed)
        if left:
            shrink(caller, tx, job, left)
        else:
            end(caller, tx, job)
        stored = sum(each.outcome == "stored" for each in results)
        book.note("extracted", items=stored, turns=len(proposed.part.turns))
        book.close()
        return results

    caller.shared.mined.tell(caller.place, caller.engine.write(work))


def _turns(caller: CollectionContext, standing: EmbeddingState, job: Job) -> list[TurnRow]:
    """Return the turns that *job* is about and that are still there, in order of recording."""
    sql = caller.engine.queries("holdfast.memories.longterm")

    def work(reader: Reader) -> list[TurnRow]:
        numbers = numbers_text(list(job.about))
        place = {"collection": standing.number, "numbers": numbers}
        rows = reader.all(TurnRow, sql.turns_numbered, **place) if job.about else []
        return sorted(rows, key=lambda row: row.number)

    return caller.engine.read(work)
