"""The wish to mine a collection: extractor, state, budget, turns left to mine.

A wish is on record until it is fulfilled or withdrawn. Turns are queued for it, also while its
model cannot be used, and the status names the reason.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background.extractor import FUNCTION, checked_extractor
from holdfast.memories.longterm.context import CollectionContext, MiningWish, publish
from holdfast.memories.longterm.records import NONE, ExtractorState
from holdfast.memories.longterm.rows import Collection, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.turns import EXTRACT, queue
from holdfast.memories.longterm.validation import checked_instant, checked_thread, microseconds

BUDGET: Final = "budget"
"""Reason of an extractor that waits because the day's tokens are spent."""
_DAY: Final = 86_400_000_000
_DAYS_KEPT: Final = 31
_TURNS_A_JOB: Final = 200
_STATES_KEPT: Final = 10_000

_numbers: Final = msgspec.json.Decoder(list[int])
_TOKENS: Final = REGISTRY.counter(
    "ltm_mining_tokens_total", "Tokens that mining took, as models count them or estimated."
)


class MiningState(Struct, frozen=True, kw_only=True):
    """The extractor of a collection, its state, and why it is not ready."""

    extractor: str | None = None
    state: ExtractorState = "none"
    reason: str | None = None


class _Failure(Struct, frozen=True, kw_only=True):
    error: str | None
    tried_at: int


class _About(Struct, frozen=True, kw_only=True):
    about: str


class _Uncovered(Struct, frozen=True, kw_only=True):
    number: int
    thread_id: str


def state_of(
    context: CollectionContext, reader: Reader, collection: Collection | None
) -> MiningState:
    """Return the state of the extractor of *collection*, None before its first write."""
    wish = context.wish(collection.extractor if collection else None)
    if wish.name is None:
        return MiningState()
    if wish.extractor is None:
        return MiningState(extractor=wish.name, state="waiting", reason=wish.reason)
    if tokens_left(context, reader) <= 0:
        return MiningState(extractor=wish.name, state="waiting", reason=BUDGET)
    failure = _last_failure(context, reader, collection) if collection else None
    if failure is None:
        return MiningState(extractor=wish.name, state="ready")
    return MiningState(extractor=wish.name, state="failing", reason=f"{wish.name}: {failure}")


def _last_failure(context: CollectionContext, reader: Reader, collection: Collection) -> str | None:
    """Return the error of the last try to mine *collection*; None if it succeeded."""
    found = reader.first(_Failure, context.job_sql.last_failure, collection=collection.number)
    if found is None or found.tried_at < (collection.mined_at or 0):
        return None
    return found.error


def note_state(context: CollectionContext, collection: Collection | None, now: MiningState) -> None:
    """Publish `longterm.extraction_waiting` if the extractor no longer does its work.

    It is published once for each change of its state.
    """
    known = context.shared.mining_states
    if len(known) >= _STATES_KEPT:
        known.clear()
    place = context.mining_place
    before, known[place] = known.get(place), now.state
    if now.state in ("waiting", "failing") and before != now.state:
        publish(
            context,
            "extraction_waiting",
            collection=collection.id if collection else None,
            extractor=now.extractor or "",
            state=now.state,
            reason=now.reason or "",
        )


def is_wished(context: CollectionContext) -> bool:
    """Check whether the caller's collection may have turns to mine.

    One that this process has not looked at yet may. Later wishes are noticed by the calls that make
    them.
    """
    known = context.shared.mining_states.get(context.mining_place)
    return context.options.mine and (known != "none" or context.wish(None).name is not None)


def configure(context: CollectionContext, extractor: object) -> None:
    """Set the collection's own extractor; None withdraws it.

    False or `none` means no mining. Queued turns of a withdrawn wish count as unmined again. The
    collection is created if need be. Raise InvalidInput for what is no `provider:model`.
    """
    own = None
    if extractor is not None:
        own = checked_extractor("extractor", "none" if extractor is False else extractor)

    def work(tx: Transaction) -> None:
        unit = CollectionTransaction(context, tx)
        before = unit.there.extractor
        tx.send(context.job_sql.set_extractor, collection=unit.number, extractor=own)
        if own == NONE or (own is None and before is not None):
            _withdraw(context, unit, model="" if own == NONE else str(before))
        unit.close()

    context.engine.write(work)
    context.shared.mining_states.pop(context.mining_place, None)
    context.tend()


def _withdraw(context: CollectionContext, unit: CollectionTransaction, *, model: str) -> None:
    """Delete waiting jobs for *model*, "" for any; their turns are unmined again."""
    jobs = {"collection": unit.number, "model": model}
    abouts = unit.tx.all(_About, context.job_sql.withdrawable, **jobs)
    for each in abouts:
        _cover(context, unit, _numbers.decode(each.about), covered=False)
    unit.tx.send(context.job_sql.withdraw, **jobs)


def _cover(
    context: CollectionContext,
    unit: CollectionTransaction,
    numbers: Sequence[int],
    *,
    covered: bool,
) -> None:
    unit.tx.send(
        context.job_sql.cover,
        collection=unit.number,
        numbers=numbers_text(list(numbers)),
        covered=int(covered),
    )


def remine(context: CollectionContext, since: object = None, thread_id: object = None) -> int:
    """Queue the turns that no job has covered; return how many.

    Only those of *thread_id*, and said at *since* or later, if given. Turns from outside, imported
    and held ones are left out. Nothing is queued while there is no extractor.
    """
    at = checked_instant("since", since)
    thread = checked_thread(thread_id)
    filters: dict[str, object] = {
        "since": -(2**62) if at is None else microseconds(at, 0),
        "any_thread": int(thread is None),
        "thread_id": thread or "",
    }

    def work(tx: Transaction) -> int:
        unit = CollectionTransaction(context, tx, make=False)
        if unit.found is None or context.wish(unit.found.extractor).name is None:
            return 0
        queued = 0
        for numbers in _by_thread(tx, context, unit.number, filters):
            queue(unit, EXTRACT, numbers)
            _cover(context, unit, numbers, covered=True)
            queued += len(numbers)
        if queued:
            context.shared.expect_mining(context.mining_place)
            tx.after_commit(context.tend)
        return queued

    return context.engine.write(work)


def _by_thread(
    tx: Transaction, context: CollectionContext, collection: int, filters: dict[str, object]
) -> Iterator[Sequence[int]]:
    """Yield the numbers of uncovered turns, so many of one thread as one job is about."""
    sql, place = context.job_sql, {"collection": collection, **filters}
    rows = tx.all(_Uncovered, sql.uncovered, **place)
    rows.sort(key=attrgetter("thread_id", "number"))
    for _, group in groupby(rows, attrgetter("thread_id")):
        numbers = [row.number for row in group]
        for start in range(0, len(numbers), _TURNS_A_JOB):
            yield numbers[start : start + _TURNS_A_JOB]


def uncovered(context: CollectionContext, reader: Reader, collection: Collection) -> int:
    """Return the number of turns of *collection* that no job has covered."""
    return reader.one(scalar, context.job_sql.count_uncovered, collection=collection.number)


def tokens_left(context: CollectionContext, reader: Reader) -> float:
    """Return how many tokens mining may still use today in the workspace."""
    if not context.token_budget:
        return float("inf")
    day = context.now() // _DAY
    return context.token_budget - reader.one(scalar, context.job_sql.spent, day=day)


def seconds_to_tomorrow(context: CollectionContext) -> float:
    """Return the seconds until the budget of the next day, in UTC, begins."""
    return max(0.05, (_DAY - context.now() % _DAY) / 1_000_000)


def spend(context: CollectionContext, tokens: int) -> None:
    """Count *tokens* against the day's budget of the workspace."""
    _TOKENS.add(by=tokens)
    day = context.now() // _DAY

    def work(tx: Transaction) -> None:
        tx.send(context.job_sql.spend, day=day, tokens=tokens)
        tx.send(context.job_sql.drop_spending, before=day - _DAYS_KEPT)

    context.engine.write(work)


MOST_NAMED: Final = 10_000
"""Most collections in a report."""


class _Mined(Struct, frozen=True, kw_only=True):
    workspace: str
    user_id: str
    id: str
    extractor: str | None
    mined_at: int | None
    jobs: int
    queued: int
    model: str | None
    tried_at: int | None
    error: str | None


class CollectionMining(Struct, frozen=True, kw_only=True):
    """A collection that is to be mined, and the state of its extractor."""

    workspace: str
    collection_id: str
    queued: int
    extractor: MiningState


def mining_of_all(
    engine: Engine, wishes: Callable[[str | None], MiningWish]
) -> list[CollectionMining]:
    """Return the collections of all workspaces that are to be mined, and their states.

    *wishes* returns the extractor, in this process, of a collection with an extractor of its own.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries("holdfast.memories.longterm.background")
    found = everybody.all(_Mined, sql.mining_of_all, most=MOST_NAMED)
    return [
        CollectionMining(
            workspace=each.workspace,
            collection_id=each.id,
            queued=each.queued,
            extractor=_state_in(each, wishes),
        )
        for each in found
    ]


def _state_in(mined: _Mined, wishes: Callable[[str | None], MiningWish]) -> MiningState:
    wish = wishes(mined.extractor)
    if wish.name is None and mined.jobs and mined.extractor is None:
        # Queued for a model that another process was given, or for its function.
        elsewhere = MiningWish(name=FUNCTION, reason=f"{FUNCTION}: not of this process")
        wish = wishes(mined.model) if mined.model else elsewhere
    if wish.name is None:
        return MiningState()
    if wish.extractor is None:
        return MiningState(extractor=wish.name, state="waiting", reason=wish.reason)
    if mined.tried_at is not None and mined.tried_at >= (mined.mined_at or 0):
        reason = f"{wish.name}: {mined.error}"
        return MiningState(extractor=wish.name, state="failing", reason=reason)
    return MiningState(extractor=wish.name, state="ready")
