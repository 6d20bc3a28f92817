"""Turns into a thread: each once, by its id, and never changed afterwards."""

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, LimitExceeded, ResultDiffers
from holdfast.ground.text import sha256_hex
from holdfast.memories.state import message as checks
from holdfast.memories.state.counts import counts
from holdfast.memories.state.result import InferenceResult, encoded_result
from holdfast.memories.state.run_record import checked_name
from holdfast.memories.state.thread import (
    Appended,
    ThreadMessage,
    ThreadsContext,
    ThreadTurn,
    TurnKind,
    checked_id,
    checked_id_or_none,
    cut,
    queries_of,
)

T = TypeVar("T")

GivenTurn: TypeAlias = ThreadTurn | ThreadMessage | InferenceResult | Mapping[str, object]
"""A turn, or only what a user said or an agent made, or the plain dict of one of these."""

MOST_BYTES: Final = 16_777_216
"""Of one turn, as JSON."""

_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class PreparedThreadTurn(Struct, frozen=True, kw_only=True):
    """A turn as its row will be; `at` is in microseconds since 1970."""

    id: str
    kind: TurnKind
    run_id: str | None
    agent: str | None
    at: int
    checksum: str
    body: str
    size_bytes: int


class _StoredTurn(Struct, frozen=True, kw_only=True):
    id: str
    seq: int
    checksum: str


def append(caller: ThreadsContext, thread_id: str, turns: Iterable[GivenTurn]) -> Appended:
    """Add *turns*, all or none, to the thread, which is made if it is not there.

    One whose id the thread has is passed over where it is the same, and else ResultDiffers.
    """
    thread = checked_id("thread_id", thread_id)
    ready = [_ready(turn) for turn in turns_of(turns)]

    def work(tx: Transaction) -> Appended:
        sql, now = queries_of(caller), caller.now()
        tx.send(sql.hold_thread, thread=thread, now=now)
        numbers = [tx.seq, *(tx.numbers(len(ready) - 1) if len(ready) > 1 else ())]
        rows = [
            {"thread": thread, "seq": seq, **msgspec.structs.asdict(turn)}
            for seq, turn in zip(numbers, ready, strict=True)
        ]
        stored = tx.run_many(sql.put_turn, rows)
        known = set[int]() if stored == len(ready) else _known(tx, sql, thread, numbers, ready)
        if stored:
            tx.send(sql.count_turns, thread=thread, stored=stored, now=now)
        new = [turn for at, turn in enumerate(ready) if at not in known]
        old = [turn for at, turn in enumerate(ready) if at in known]
        tx.after_commit(lambda: _count(new, old))
        return Appended(
            stored=tuple(turn.id for turn in new), duplicates=tuple(turn.id for turn in old)
        )

    return _write(caller, work, ready)


def turns_of(given: object) -> list[ThreadTurn]:
    """Return *given*, turns in any of their forms, as turns; InvalidInput names the wrong one."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise InvalidInput("turns", "must be a list of turns")
    found = checks.items("turns", list(cast("Iterable[object]", given)), _turn)
    if not found:
        raise InvalidInput("turns", "must hold a turn at least")
    return found


def _turn(given: object) -> ThreadTurn:
    if isinstance(given, ThreadTurn):
        turn = given
    elif isinstance(given, ThreadMessage):
        turn = ThreadTurn.said(given)
    elif isinstance(given, InferenceResult):
        turn = ThreadTurn.made(given)
    else:
        turn = _told(checks.members(given))
    checked_id("id", turn.id)
    checked_id_or_none("run_id", turn.run_id)
    if turn.result is not None:
        checked_name("agent", turn.result.agent)
    elif turn.message is None:
        raise InvalidInput("message", "or result is missing")
    return turn


def _told(given: dict[str, Any]) -> ThreadTurn:
    if "kind" in given:
        return ThreadTurn.from_dict(given)
    if "agent" in given:
        return ThreadTurn.made(InferenceResult.from_dict(given))
    return ThreadTurn.said(ThreadMessage.from_dict(given))


def checksum_of_turn(turn: ThreadTurn) -> str:
    """Return what tells whether two turns of one id are the same."""
    if turn.result is not None:
        return turn.result.checksum
    message = cast("ThreadMessage", turn.message)
    # Not when it was said: a run that is begun again says it again, later.
    said = {"id": turn.id, "role": message.role, "content": message.content}
    return f"sha256:{sha256_hex(_canonical(said))}"


def _ready(turn: ThreadTurn) -> PreparedThreadTurn:
    result = turn.result
    if result is not None:
        body = encoded_result(result)
    else:
        body = _canonical(cast("ThreadMessage", turn.message).export())
    if len(body) > MOST_BYTES:
        raise LimitExceeded("turn_bytes", allowed=MOST_BYTES, actual=len(body), what=turn.id)
    return PreparedThreadTurn(
        id=turn.id,
        kind=turn.kind,
        run_id=turn.run_id,
        agent=None if result is None else result.agent,
        at=cut(turn.at),
        checksum=checksum_of_turn(turn),
        body=body.decode(),
        size_bytes=len(body),
    )


def _known(
    tx: Transaction,
    sql: SimpleNamespace,
    thread: str,
    numbers: Sequence[int],
    ready: Sequence[PreparedThreadTurn],
) -> set[int]:
    """Return at which places of *ready* the same was there before; ResultDiffers for another."""
    ids = msgspec.json.encode([turn.id for turn in ready]).decode()
    held = {row.id: row for row in tx.all(_StoredTurn, sql.held_turns, thread=thread, ids=ids)}
    for turn in ready:
        if held[turn.id].checksum != turn.checksum:
            raise ResultDiffers(turn.id, stored=held[turn.id].checksum, given=turn.checksum)
    return {
        at
        for at, (seq, turn) in enumerate(zip(numbers, ready, strict=True))
        if held[turn.id].seq != seq
    }


def _write(
    caller: ThreadsContext, work: Callable[[Transaction], T], ready: Sequence[PreparedThreadTurn]
) -> T:
    """Return what *work* returns, once it is durable; what is refused is counted.

    With an engine whose writes are awaited that is an awaitable, here as there.
    """
    with _refusals(ready):
        written = caller.engine.write(work)
    if inspect.isawaitable(written):
        return cast("T", _awaited(written, ready))
    return written


async def _awaited(written: Awaitable[T], ready: Sequence[PreparedThreadTurn]) -> T:
    with _refusals(ready):
        return await written


@contextmanager
def _refusals(ready: Sequence[PreparedThreadTurn]) -> Generator[None, None, None]:
    try:
        yield
    except ResultDiffers as error:
        counts.add((turn.kind for turn in ready if turn.id == error.id), "differs")
        raise


def _count(new: Sequence[PreparedThreadTurn], old: Sequence[PreparedThreadTurn]) -> None:
    counts.add((turn.kind for turn in new), "stored")
    counts.add((turn.kind for turn in old), "duplicate")
