"""`hf.threads`: what users said and agents returned, over many runs."""

import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.errors import InvalidInput, LimitExceeded, ResultDiffers, StaleRun
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import Page
from holdfast.ground.text import sha256_hex
from holdfast.ground.validation import is_list
from holdfast.memories.state import message as checks
from holdfast.memories.state.message import to_text
from holdfast.memories.state.result import InferenceResult, encoded_result
from holdfast.memories.state.thread import (
    KINDS,
    PER_PAGE,
    QUERIES,
    TURNS_LISTED,
    Appended,
    ForeignTurn,
    Thread,
    ThreadMessage,
    ThreadsContext,
    ThreadTurn,
    ThreadTurnRow,
    TurnKind,
    checked_id,
    checked_id_or_none,
    checked_kind,
    checked_user,
    cut,
    list_threads,
    list_turns,
    queries_of,
    refuse_erased,
    refuse_other_user,
    results_of,
    retrieve_thread,
)

SECRET_BYTES: Final = 32


def delete_thread(context: ThreadsContext, thread_id: str) -> bool:
    """Delete the thread with its turns and runs; return whether there was anything.

    When this returns the bytes are in no file of the database, unless a reader holds the log. A
    keyed hash of the id stays, so that a restored backup does not bring the thread back.
    """
    deleted = delete_thread_again(context, checked_id("thread_id", thread_id))
    if deleted:
        context.engine.scrub()
    return deleted


def delete_thread_again(context: ThreadsContext, thread: str) -> bool:
    """Delete the thread as `delete_thread` does; the caller must scrub the engine."""

    def work(tx: Transaction) -> bool:
        sql = queries_of(context)
        # The thread first: a concurrent append waits for it, and then creates a new thread.
        gone = tx.run(sql.forget_thread, thread=thread)
        gone += tx.run(sql.forget_turns, thread=thread)
        gone += _forget_runs(tx, sql, thread)
        if gone:
            _bury(context, tx, thread)
        return bool(gone)

    return context.engine.write(work)


def _forget_runs(tx: Transaction, sql: SimpleNamespace, thread: str, **scope: str) -> int:
    """Delete the runs of *thread* with all they hold; return their number."""
    if not tx.all(scalar, sql.hold_runs, thread=thread, **scope):
        return 0
    for statement in (sql.forget_run_entries, sql.forget_run_events):
        tx.run(statement, thread=thread, **scope)
    return tx.run(sql.forget_runs, thread=thread, **scope)


def _bury(context: ThreadsContext, tx: Transaction, name: str) -> None:
    """Store the tombstone of a thread, or of a turn: its thread, a slash and its id."""
    sql = queries_of(context)
    tx.send(sql.make_tombstone_secret, secret=secrets.token_bytes(SECRET_BYTES))
    hashed = thread_hash(tx.one(scalar, sql.get_tombstone_secret), name)
    tx.send(sql.bury_thread, thread_hash=hashed, seq=tx.seq, now=context.now())


def thread_hash(secret: bytes, thread: str) -> bytes:
    """Return the hash of a deleted thread's or turn's name, of HMAC-SHA256."""
    return hmac.digest(secret, f"thread\0{thread}".encode(), "sha256")


def forget_user_threads(
    engine: Engine, tx: Transaction, *, workspace: str, user: str
) -> dict[str, int]:
    """Delete the threads of *user* with all they hold; return counts by table.

    The caller must scrub the engine.
    """
    sql, scope = engine.queries(QUERIES), {"workspace": workspace}
    counts = {"threads": 0, "thread_turns": 0, "runs": 0}
    for thread in tx.all(scalar, sql.threads_of_user, user=user, **scope):
        counts["threads"] += tx.run(sql.forget_thread, thread=thread, **scope)
        counts["thread_turns"] += tx.run(sql.forget_turns, thread=thread, **scope)
        counts["runs"] += _forget_runs(tx, sql, thread, **scope)
    return counts


def forget_results(
    engine: Engine, tx: Transaction, *, workspace: str, agent: str
) -> dict[str, int]:
    """Delete *agent*'s results from every thread; return their number by table.

    Results of other agents stay, also if they mention it. The caller must scrub the engine.
    """
    sql, scope = engine.queries(QUERIES), {"workspace": workspace}
    found: list[str] = tx.all(scalar, sql.threads_of_agent, agent=agent, **scope)
    gone = 0
    if found:
        ids = msgspec.json.encode(found).decode()
        # Locked until the commit, so that the counts are right.
        tx.all(scalar, sql.hold_threads, ids=ids, **scope)
        gone = tx.run(sql.forget_results, ids=ids, agent=agent, **scope)
        tx.send(sql.recount_turns, ids=ids, **scope)
    return {"thread_turns": gone}


_TURNS: Final = REGISTRY.counter(
    "network_thread_turns_total",
    "Turns given to threads.",
    kind=KINDS,
    outcome=("stored", "duplicate", "differs"),
)

T = TypeVar("T")

GivenTurn: TypeAlias = (
    ThreadTurn | ThreadMessage | InferenceResult | ForeignTurn | Mapping[str, object]
)
"""A turn, or only a message, a result or a foreign value, or the plain dict of one of these."""

MOST_BYTES: Final = 16_777_216
"""Limit of one turn as JSON."""

_canonical: Final = msgspec.json.Encoder(order="sorted").encode
_encode: Final = msgspec.json.Encoder().encode


class PreparedThreadTurn(Struct, frozen=True, kw_only=True):
    """A turn as a row to write; `at` is in microseconds since 1970."""

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


def append(
    context: ThreadsContext,
    thread_id: str,
    turns: Iterable[GivenTurn],
    *,
    user: str | None = None,
    fence: int = 0,
) -> Appended:
    """Append *turns*, all or none, to the thread, created as *user*'s if needed.

    A turn that is stored already is skipped. Raise `ResultDiffers` if another one has its id,
    `ScopeDenied` if the thread is not *user*'s, `StaleRun` if *fence* is given and is not that of
    the turns' runs.
    """
    thread, owner = checked_id("thread_id", thread_id), checked_user(user)
    checks.whole("fence", fence)
    ready = [prepared(turn) for turn in turns_of(turns)]

    def work(tx: Transaction) -> Appended:
        sql, now = queries_of(context), context.now()
        refuse_erased(tx, sql, context.subject)
        if owner is None:
            tx.send(sql.hold_thread, thread=thread, now=now)
        else:
            held = tx.one(scalar, sql.hold_thread_of_user, thread=thread, user=owner, now=now)
            refuse_other_user(thread, held, owner)
        if fence:
            # After the row of the thread, as acquisitions do: so none waits for the other in turn.
            _refuse_stale(tx, sql, {turn.run_id for turn in ready}, fence)
        numbers, stored = put_turns(tx, sql, thread, ready, now=now)
        known = set[int]() if stored == len(ready) else _known(tx, sql, thread, numbers, ready)
        new = [turn for at, turn in enumerate(ready) if at not in known]
        old = [turn for at, turn in enumerate(ready) if at in known]
        tx.after_commit(lambda: _count(new, "stored"))
        tx.after_commit(lambda: _count(old, "duplicate"))
        return Appended(
            stored=tuple(turn.id for turn in new), duplicates=tuple(turn.id for turn in old)
        )

    return _write(context, work, ready)


def put_turns(
    tx: Transaction,
    sql: SimpleNamespace,
    thread: str,
    ready: Sequence[PreparedThreadTurn],
    *,
    now: int,
) -> tuple[list[int], int]:
    """Write *ready* to *thread*, which is locked.

    Return the numbers of the turns, and how many were not there.
    """
    numbers = [tx.seq, *(tx.numbers(len(ready) - 1) if len(ready) > 1 else ())]
    rows = [
        {"thread": thread, "seq": seq, **msgspec.structs.asdict(turn)}
        for seq, turn in zip(numbers, ready, strict=True)
    ]
    stored = tx.run_many(sql.put_turn, rows)
    if stored:
        tx.send(sql.count_turns, thread=thread, stored=stored, now=now)
    return numbers, stored


def _refuse_stale(
    tx: Transaction, sql: SimpleNamespace, runs: Iterable[str | None], fence: int
) -> None:
    """Raise StaleRun unless *fence* is that of all *runs*."""
    for run in runs:
        live = tx.first(scalar, sql.fence_of_run, run=run or "")
        if live != fence:
            raise StaleRun("superseded", token=fence, live_token=live)


def pop(
    context: ThreadsContext, thread_id: str, kind: TurnKind, *, user: str | None = None
) -> ThreadTurn | None:
    """Take the last turn of *kind* away and return it; None if there is none.

    When this returns its bytes are in no file of the database, unless a reader holds the log. A
    keyed hash of its id stays, so that a restored backup does not bring the turn back.
    """
    thread, owner = checked_id("thread_id", thread_id), checked_user(user)
    if checked_kind(kind) is None:
        raise InvalidInput("kind", "must be a kind of turns", given=kind)

    def work(tx: Transaction) -> ThreadTurn | None:
        sql = queries_of(context)
        held = tx.all(scalar, sql.lock_thread, thread=thread)
        if not held:
            return None
        refuse_other_user(thread, held[0], owner)
        row = tx.first(ThreadTurnRow, sql.last_turn, thread=thread, kind=kind)
        if row is None:
            return None
        _delete_turn(context, tx, thread, row.id, row.seq)
        return row.record()

    popped = context.engine.write(work)
    if popped is not None:
        context.engine.scrub()
    return popped


def delete_turn_again(context: ThreadsContext, thread: str, turn: str) -> None:
    """Delete one turn as `pop` does; the caller must scrub the engine."""

    def work(tx: Transaction) -> None:
        sql = queries_of(context)
        ids = msgspec.json.encode([turn]).decode()
        for row in tx.all(_StoredTurn, sql.held_turns, thread=thread, ids=ids):
            _delete_turn(context, tx, thread, row.id, row.seq)

    context.engine.write(work)


def _delete_turn(
    context: ThreadsContext, tx: Transaction, thread: str, turn: str, seq: int
) -> None:
    """Delete one turn in *tx*, and bury its id."""
    sql, now = queries_of(context), context.now()
    tx.run(sql.delete_turn, thread=thread, seq=seq)
    tx.send(sql.count_turns, thread=thread, stored=-1, now=now)
    _bury(context, tx, f"{thread}/{turn}")


def turns_of(given: object) -> list[ThreadTurn]:
    """Return *given*, turns in any form, as turns; `InvalidInput` names the wrong one."""
    if not is_list(given):
        raise InvalidInput("turns", "must be a list of turns")
    found = checks.items("turns", list(given), _turn)
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
    elif isinstance(given, ForeignTurn):
        turn = ThreadTurn.foreign(given)
    else:
        turn = _from_members(checks.members(given))
    checked_id("id", turn.id)
    checked_id_or_none("run_id", turn.run_id)
    if turn.result is not None:
        checks.checked_name("agent", turn.result.agent)
    elif turn.message is None and turn.kind != "foreign":
        raise InvalidInput("message", "or result is missing")
    return turn


def _from_members(given: dict[str, Any]) -> ThreadTurn:
    if "kind" in given:
        return ThreadTurn.from_dict(given)
    if "agent" in given:
        return ThreadTurn.made(InferenceResult.from_dict(given))
    return ThreadTurn.said(ThreadMessage.from_dict(given))


def checksum_of_turn(turn: ThreadTurn) -> str:
    """Return the checksum by which two turns of one id are compared."""
    if turn.result is not None:
        return turn.result.checksum
    if turn.kind == "foreign":
        return f"sha256:{sha256_hex(_encode([turn.source, turn.value]))}"
    message = cast("ThreadMessage", turn.message)
    # Without the time: a run that is started again has the same message at a later time.
    said = {"id": turn.id, "role": message.role, "content": message.content}
    return f"sha256:{sha256_hex(_canonical(said))}"


def prepared(turn: ThreadTurn) -> PreparedThreadTurn:
    """Return *turn* as a row; raise `LimitExceeded` if it is too large."""
    result = turn.result
    if result is not None:
        body = encoded_result(result)
    elif turn.kind == "foreign":
        # Members in their order: the value is returned as it came.
        at = to_text(turn.at)
        body = _encode({"source": turn.source, "at": at, "value": turn.value})
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
    """Return the places in *ready* of turns that were stored before.

    Raise `ResultDiffers` if another turn has the id.
    """
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
    context: ThreadsContext, work: Callable[[Transaction], T], ready: Sequence[PreparedThreadTurn]
) -> T:
    """Run *work* in a write and return its result; count refused turns.

    With an engine that returns awaitables from writes, this returns an awaitable too.
    """
    with _refusals(ready):
        written = context.engine.write(work)
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
        _count((turn for turn in ready if turn.id == error.id), "differs")
        raise


def _count(turns: Iterable[PreparedThreadTurn], outcome: str) -> None:
    for turn in turns:
        _TURNS.add(turn.kind, outcome)


class Threads:
    """The threads of a workspace: messages of users and results of agents, in order.

    >>> import holdfast
    >>> threads = holdfast.open(":memory:").threads
    >>> result = holdfast.InferenceResult(agent="writer", input="Hello")
    >>> threads.append("thread_7", [result]).stored == (result.id,)
    True
    >>> [turn.kind for turn in threads.turns("thread_7")]
    ['result']
    """

    def __init__(self, context: ThreadsContext) -> None:
        self._caller = context

    def retrieve(self, id: str) -> Thread:
        """Return the thread; `NotFound` if there is none."""
        self._caller.demand("read")
        return retrieve_thread(self._caller, id)

    def turns(
        self,
        id: str,
        limit: int | None = TURNS_LISTED,
        page: str | None = None,
        *,
        kind: TurnKind | None = None,
        last: int | None = None,
        user: str | None = None,
    ) -> Page[ThreadTurn]:
        """Return a page of the thread's turns, oldest first, of one *kind* or all.

        With *last* the turns are the newest so many, oldest first. A page ends early where turns
        are large. Raise `ScopeDenied` if the thread is not *user*'s.
        """
        self._caller.demand("read")
        return list_turns(self._caller, id, limit, page, kind, last=last, user=user)

    def results(self, id: str) -> list[InferenceResult]:
        """Return all results of the thread, oldest first."""
        self._caller.demand("read")
        return results_of(self._caller, id)

    def append(
        self, id: str, turns: Iterable[GivenTurn], *, user: str | None = None, fence: int = 0
    ) -> Appended:
        """Append *turns*, all or none, one after another; create the thread if needed.

        A new thread is *user*'s, and stays so. A turn that is stored already is skipped. Raise
        `ResultDiffers` if another one has its id, `ScopeDenied` if the thread is not *user*'s.
        With the *fence* of their run raise `StaleRun` once that has another owner.
        """
        self._caller.demand("write")
        return append(self._caller, id, turns, user=user, fence=fence)

    def pop(
        self, id: str, kind: TurnKind = "foreign", *, user: str | None = None
    ) -> ThreadTurn | None:
        """Remove the last turn of *kind* for good and return it, or None.

        Raise `ScopeDenied` if the thread is not *user*'s.
        """
        self._caller.demand("write")
        return pop(self._caller, id, kind, user=user)

    def delete(self, id: str) -> bool:
        """Delete the thread, its turns and its runs; return whether there was anything."""
        self._caller.demand("write")
        return delete_thread(self._caller, id)

    def list(
        self, limit: int | None = PER_PAGE, page: str | None = None, *, user: str | None = None
    ) -> Page[Thread]:
        """Return a page of the threads, of one *user* or all, newest first."""
        self._caller.demand("read")
        return list_threads(self._caller, limit, page, user)
