"""Records of threads, their ids and lists."""

import re
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final, Literal, Self, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground import json_values
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds
from holdfast.ground.errors import Forgotten, InvalidInput, NotFound, ScopeDenied, UnknownFormat
from holdfast.ground.ids import base62
from holdfast.ground.pages import Key, Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.scope import WriteSubject, checked_name, user_hash
from holdfast.ground.validation import check_limit, check_whole
from holdfast.memories.state import message as checks
from holdfast.memories.state.message import from_text, to_milliseconds, to_text
from holdfast.memories.state.result import InferenceResult, bound, memo
from holdfast.memories.state.sources import OfThread, in_order

MOST: Final = 128

_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def checked_id(field: str, given: object) -> str:
    """Validate the id of a thread, a turn or a run; raise `InvalidInput`."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        reason = f"must be 1 to {MOST} of the characters A-Z a-z 0-9 _ . : -"
        raise InvalidInput(field, reason, limit=MOST, given=given)
    return given


def checked_id_or_none(field: str, given: object) -> str | None:
    """Validate an id of a thread, a turn or a run, or None."""
    return None if given is None else checked_id(field, given)


def message_id(run_id: str) -> str:
    """Return the id of the user's message to the run, the same in every replay."""
    digest = sha256(run_id.encode("utf-8", "surrogatepass")).digest()
    return f"msg_{base62(int.from_bytes(digest[:18]) % 62**24, 24)}"


TurnKind = Literal["user", "result", "foreign"]

VALUE_DEPTH: Final = 200
"""Levels of nesting of a foreign value."""

KINDS: Final[tuple[str, ...]] = get_args(TurnKind)

_MESSAGE: Final = ("id", "content", "role", "at")


class Thread(Struct, frozen=True, kw_only=True):
    """A thread with the numbers of its turns and runs; *user* is its owner, or None."""

    id: str
    created_at: datetime
    updated_at: datetime
    turns: int
    runs: int
    user: str | None = None


class ThreadMessage(Struct, frozen=True, kw_only=True):
    """A message of a user to agents; `at` is aware, in whole milliseconds."""

    id: str
    content: str
    role: Literal["user"] = "user"
    at: datetime

    def __post_init__(self) -> None:
        """Check every field; InvalidInput names the one that is wrong."""
        checked_id("id", self.id)
        checks.text("content", self.content)
        checks.one_of("role", self.role, ("user",))
        force_setattr(self, "at", to_milliseconds("at", self.at))

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Convert *given*, a dict from `export`, to a message."""
        found = checks.members(given)
        for name in found:
            if name not in _MESSAGE:
                raise InvalidInput(name, "is not a member of a message of a thread")
        if isinstance(found.get("at"), str):
            found["at"] = from_text("at", found["at"])
        return checks.made(cls, found, ("id", "content", "at"))

    def export(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"at": to_text(self.at)}


class ForeignTurn(Struct, frozen=True):
    """A turn of another framework: any JSON *value*, stored and returned equal.

    *source* names the framework, 1 to 64 of the characters `a-z 0-9 _ . -`. *id* is made unless
    given; *at* is now unless given.
    """

    value: Any
    source: str
    id: str | None = None
    at: datetime | None = None


class ThreadTurn(Struct, frozen=True, kw_only=True):
    """One turn: a user's `message`, an agent's `result`, or a foreign `value`.

    `seq` orders the turns of a thread; it is 0 until the turn is stored. `source` is the framework
    of a foreign turn.
    """

    seq: int = 0
    kind: TurnKind
    id: str
    run_id: str | None
    at: datetime
    message: ThreadMessage | None = None
    result: InferenceResult | None = None
    value: Any = None
    source: str | None = None

    @classmethod
    def foreign(cls, turn: ForeignTurn, *, seq: int = 0) -> Self:
        """Return the turn of another framework's conversation."""
        return cls(
            seq=seq,
            kind="foreign",
            id=turn.id or f"turn_{base62(secrets.randbits(142), 24)}",
            run_id=None,
            at=to_milliseconds("at", turn.at or datetime.now(UTC)),
            value=_checked_value(turn.value),
            source=_checked_source(turn.source),
        )

    @classmethod
    def said(cls, message: ThreadMessage, *, run_id: str | None = None, seq: int = 0) -> Self:
        """Return the turn of a user's message to the run *run_id*."""
        return cls(
            seq=seq, kind="user", id=message.id, run_id=run_id, at=message.at, message=message
        )

    @classmethod
    def made(cls, result: InferenceResult, *, seq: int = 0) -> Self:
        """Return the turn of an agent's result."""
        return cls(
            seq=seq,
            kind="result",
            id=result.id,
            run_id=result.run_id,
            at=result.created_at,
            result=result,
        )

    def of_fork(self, run_id: str, fork_id: str) -> Self:
        """Return the turn as one of the run *fork_id*, if it is one of *run_id*."""
        if self.run_id != run_id:
            return self
        message, result = self.message, self.result
        if message is not None and message.id == message_id(run_id):
            message = replace(message, id=message_id(fork_id))
        if result is not None:
            result = replace(result, run_id=fork_id)
        id = self.id if message is None else message.id
        return replace(self, id=id, run_id=fork_id, message=message, result=result)

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Convert *given*, a dict from `export`, to a turn.

        Its id and its time are those of its message or result.
        """
        found = checks.members(given)
        for name in found:
            if name not in cls.__struct_fields__:
                raise InvalidInput(name, "is not a member of a turn")
        checks.one_of("kind", found.get("kind"), KINDS)
        if found["kind"] == "foreign":
            return cls._foreign_from(found)
        held = "message" if found["kind"] == "user" else "result"
        if held not in found:
            raise InvalidInput(held, "is missing")
        seq = checks.whole("seq", found.get("seq", 0))
        with checks.inside(held):
            if held == "result":
                return cls.made(InferenceResult.from_dict(found[held]), seq=seq)
            message = ThreadMessage.from_dict(found[held])
        return cls.said(message, run_id=checks.text_or_none("run_id", found.get("run_id")), seq=seq)

    @classmethod
    def _foreign_from(cls, found: dict[str, Any]) -> Self:
        for name in ("value", "source"):
            if name not in found:
                raise InvalidInput(name, "is missing")
        at = found.get("at")
        turn = ForeignTurn(
            found["value"],
            found["source"],
            checked_id_or_none("id", found.get("id")),
            from_text("at", at) if isinstance(at, str) else at,
        )
        return cls.foreign(turn, seq=checks.whole("seq", found.get("seq", 0)))

    def export(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        wire: dict[str, Any] = {
            "seq": self.seq,
            "kind": self.kind,
            "id": self.id,
            "run_id": self.run_id,
            "at": to_text(self.at),
        }
        if self.message is not None:
            wire["message"] = self.message.export()
        if self.result is not None:
            wire["result"] = self.result.export()
        if self.kind == "foreign":
            wire |= {"value": self.value, "source": self.source}
        return wire


_SOURCE: Final = re.compile(r"[a-z0-9_.-]{1,64}")


def _checked_source(given: object) -> str:
    if not isinstance(given, str) or not _SOURCE.fullmatch(given):
        reason = "must be 1 to 64 of the characters a-z 0-9 _ . -"
        raise InvalidInput("source", reason, limit=64, given=given)
    return given


def _checked_value(given: object) -> Any:
    """Return *given* as JSON has it: tuples as lists, members in their order."""
    return json_values.decode(json_values.encode(given, root="$", depth=VALUE_DEPTH, field="value"))


class Appended(Struct, frozen=True, kw_only=True):
    """The result of appending turns to a thread, by their ids.

    A duplicate was stored before, the same to the byte, and is unchanged.
    """

    stored: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


QUERIES: Final = "holdfast.memories.state"
"""Package of the SQL statements."""
MILLISECOND: Final = 1_000
"""One millisecond in microseconds."""


class ThreadsContext(Struct, frozen=True, kw_only=True):
    """Workspace, engine and clock for threads; `engine` is scoped to the workspace.

    `demand` raises NotPermitted for a right, `read` or `write`, that the caller does not have.
    Turns about `subject` are refused once the person was erased since the work began.
    """

    engine: Engine
    workspace: str
    clock: Clock
    demand: Callable[[str], None]
    subject: WriteSubject | None = None

    def now(self) -> int:
        """Return the present instant in microseconds since 1970.

        It is cut to a whole millisecond.
        """
        return cut(self.clock.now())


def refuse_erased(tx: Transaction, sql: SimpleNamespace, subject: WriteSubject | None) -> None:
    """Raise Forgotten if *subject* was erased after the work about the person began."""
    if subject is None or subject.since is None:
        return
    secret = tx.first(scalar, sql.get_tombstone_secret)
    if secret is None:
        return
    erased_at = tx.first(scalar, sql.erased_at, user_hash=user_hash(secret, subject.user))
    if erased_at is not None and subject.outlived(erased_at):
        raise Forgotten(from_microseconds(erased_at), "the erasure of its person")


def cut(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970, cut to a whole millisecond."""
    microseconds = to_microseconds(instant)
    return microseconds - microseconds % MILLISECOND


def queries_of(context: ThreadsContext) -> SimpleNamespace:
    """Return the statements for *context*'s engine."""
    return context.engine.queries(QUERIES)


PER_PAGE: Final = 20
MOST_LISTED: Final = 1_000
NEWEST: Final = 2**63 - 1
"""The largest instant and number."""
LAST_ID: Final = "~"
"""Sorts after every id."""


def by_age(list: str, stamp: str, page: str | None) -> tuple[int, str]:
    """Return the instant and the id after which *page* of *list* begins.

    Raise `InvalidInput` if it is not a cursor.
    """
    if page is None:
        return NEWEST, LAST_ID
    match read_cursor(list, stamp, page)[0]:
        case [int(at), str(id)] if -NEWEST <= at <= NEWEST and id.isascii() and id.isprintable():
            return at, id
        case _:
            raise no_cursor()


TURNS_LISTED: Final = 100
PAGE_BYTES: Final = 16_777_216
"""Limit of the turns of a page in bytes; a page has at least one turn."""

_THREADS: Final = "threads"
_TURNS: Final = "thread_turns"


class _ThreadRow(Struct, frozen=True, kw_only=True):
    user_id: str | None
    id: str
    created_at: int
    updated_at: int
    turns: int
    runs: int

    def record(self) -> Thread:
        return Thread(
            id=self.id,
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.updated_at),
            turns=self.turns,
            runs=self.runs,
            user=self.user_id,
        )


class _Size(Struct, frozen=True, kw_only=True):
    seq: int
    size_bytes: int


class _ForeignBody(Struct, frozen=True):
    """The body of a stored foreign turn, which was validated when it was written."""

    value: Any
    source: str
    at: datetime


_foreign_body: Final = msgspec.json.Decoder(_ForeignBody).decode


class ThreadTurnRow(Struct, frozen=True, kw_only=True):
    """A turn as it is stored."""

    seq: int
    kind: TurnKind
    id: str
    run_id: str | None
    body: str

    def record(self) -> ThreadTurn:
        """Return the turn; raise `UnknownFormat` for a body nested too deeply."""
        if json_values.is_nested_over(self.body):
            raise UnknownFormat("turn", format=self.kind, version=None, known="less nested JSON")
        if self.kind == "foreign":
            turn = _foreign_body(self.body)
            return ThreadTurn(
                seq=self.seq,
                kind="foreign",
                id=self.id,
                run_id=None,
                at=turn.at,
                value=turn.value,
                source=turn.source,
            )
        body = msgspec.json.decode(self.body)
        if self.kind == "result":
            result = InferenceResult.from_dict(body, verify=False)
            memo(result, "size", lambda: len(self.body.encode()))
            return ThreadTurn.made(result, seq=self.seq)
        message = ThreadMessage.from_dict(body)
        return ThreadTurn.said(message, run_id=self.run_id, seq=self.seq)


def retrieve_thread(context: ThreadsContext, thread_id: str) -> Thread:
    """Return the thread; NotFound if it is not there."""
    thread = checked_id("thread_id", thread_id)
    row = context.engine.first(_ThreadRow, queries_of(context).get_thread, thread=thread)
    if row is None:
        raise no_thread(thread)
    return row.record()


def list_threads(
    context: ThreadsContext, limit: int | None, page: str | None, user: str | None = None
) -> Page[Thread]:
    """Return a page of the threads, of one *user* or all, newest first."""
    most = check_limit(limit, most=MOST_LISTED, default=PER_PAGE)
    stamp = digest(context.workspace, checked_user(user))
    at, after = by_age(_THREADS, stamp, page)
    sql, params = queries_of(context), {"at": at, "after": after, "rows": most + 1}
    if user is None:
        rows = context.engine.all(_ThreadRow, sql.list_threads, **params)
    else:
        rows = context.engine.all(_ThreadRow, sql.list_threads_of_user, user=user, **params)
    end = rows[most - 1] if len(rows) > most else None
    return Page(
        [row.record() for row in rows[:most]],
        end and write_cursor(_THREADS, stamp, [end.created_at, end.id]),
        more=lambda page: list_threads(context, limit, page, user),
    )


def list_turns(
    context: ThreadsContext,
    thread_id: str,
    limit: int | None,
    page: str | None,
    kind: TurnKind | None = None,
    *,
    last: int | None = None,
    user: str | None = None,
) -> Page[ThreadTurn]:
    """Return a page of the thread's turns, of one *kind* or all, or the *last*.

    Raise `NotFound` if there is no such thread, `ScopeDenied` if it is not *user*'s.
    """
    newest = None if last is None else check_whole("last", last, least=1)
    most = check_limit(limit, most=MOST_LISTED, default=TURNS_LISTED)
    thread = checked_id("thread_id", thread_id)
    stamp = digest(context.workspace, thread, checked_kind(kind))
    after = 0 if page is None else _seq_in(read_cursor(_TURNS, stamp, page)[0])
    params: dict[str, object] = {"thread": thread, "after": after, "kind": kind or ""}

    def work(reader: Reader) -> tuple[list[ThreadTurnRow], int | None]:
        sql = queries_of(context)
        if user is not None:
            row = reader.first(_ThreadRow, sql.get_thread, thread=thread)
            refuse_other_user(thread, row and row.user_id, user, exists=row is not None)
        if newest is not None and page is None:
            place = {"thread": thread, "kind": kind or "", "last": newest}
            params["after"] = reader.first(scalar, sql.turn_before_last, **place) or 0
        found = reader.all(_Size, sql.sizes_of_turns, rows=most + 1, **params)
        if not found:
            if reader.first(_ThreadRow, sql.get_thread, thread=thread) is None:
                raise no_thread(thread)
            return [], None
        shown = found[: _fitting(found[:most])]
        rows = reader.all(ThreadTurnRow, sql.list_turns, last=shown[-1].seq, **params)
        return rows, shown[-1].seq if len(found) > len(shown) else None

    rows, last = context.engine.read(work)
    source = OfThread(lambda: results_of(context, thread_id))
    return Page(
        [within(row.record(), source) for row in rows],
        None if last is None else write_cursor(_TURNS, stamp, [last]),
        more=lambda page: list_turns(context, thread_id, limit, page, kind, user=user),
    )


def within(turn: ThreadTurn, thread: OfThread) -> ThreadTurn:
    """Take *thread* as the source of the result of *turn*; return *turn*."""
    if turn.result is not None:
        bound(turn.result, thread)
    return turn


def results_of(context: ThreadsContext, thread_id: str) -> list[InferenceResult]:
    """Return the thread's results, oldest first; NotFound if it is not there."""
    page = list_turns(context, thread_id, MOST_LISTED, None, "result")
    return in_order(turn.result for turn in page.all() if turn.result is not None)[0]


def checked_kind(given: TurnKind | None) -> TurnKind | None:
    """Return *given* if it is None or a kind of turns; else InvalidInput."""
    checks.one_of("kind", given, (*KINDS, None))
    return given


def checked_user(given: object) -> str | None:
    """Return *given* if it is None or the name of a user; else InvalidInput."""
    return None if given is None else checked_name("user", given)


def refuse_other_user(
    thread: str, owner: str | None, user: str | None, *, exists: bool = True
) -> None:
    """Raise `ScopeDenied` if *user* is named and the thread is not that user's."""
    if exists and user is not None and owner != user:
        raise ScopeDenied(
            f"The thread {thread} is not this user's.",
            needed="a thread of that user",
            next="Name the user whose thread it is, or use another thread.",
        )


def no_thread(thread: str) -> NotFound:
    """Return the error for a missing thread."""
    return NotFound("thread", thread, next="Check the id, or list the threads.")


def _fitting(sizes: list[_Size]) -> int:
    """Return how many of the turns fit a page: at least one."""
    total = 0
    for at, each in enumerate(sizes):
        total += each.size_bytes
        if total > PAGE_BYTES and at:
            return at
    return len(sizes)


def _seq_in(key: Key) -> int:
    match key:
        case [int(seq)] if 0 <= seq <= NEWEST:
            return seq
        case _:
            raise no_cursor()


def turns_until(
    turns: Sequence[ThreadTurn], run_id: str, results: Collection[str] | None
) -> list[ThreadTurn]:
    """Return the turns of a run with *results*, and those of others before them.

    *turns* are all of a thread, in order; without *results* all of the run's own are returned.
    """
    ours = [turn for turn in turns if turn.run_id == run_id]
    own = {
        turn.seq for turn in ours if turn.result is None or results is None or turn.id in results
    }
    end = max(own, default=ours[0].seq if ours else turns[-1].seq + 1 if turns else 0)
    return [turn for turn in turns if turn.seq in own or (turn.run_id != run_id and turn.seq < end)]
