"""Requests about durable memory: agent, run, idempotency key, writes, Markdown."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.doors.http.auth import demand_scope
from holdfast.doors.http.call import Act, Call
from holdfast.doors.http.params import flag
from holdfast.doors.http.request import Handler, HttpRoute
from holdfast.doors.http.response import Response, of_json, told_of
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import Operation
from holdfast.library.operations.durable import (
    AGENT,
    END,
    ENTRIES,
    HEARTBEAT,
    LIMIT,
    SET,
    SET_MANY,
    PostEntries,
)
from holdfast.library.spans import traced_as, within
from holdfast.memories.durable.context import AgentContext, InRun
from holdfast.memories.durable.markdown.transfer import How, export_files, import_files
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import (
    Cause,
    EntryFields,
    ImportReport,
    NotStored,
    RejectedFile,
)
from holdfast.memories.durable.runs import end, heartbeat
from holdfast.memories.durable.validation import checked_idempotency_key
from holdfast.memories.durable.wire import Wire, entry_to_wire
from holdfast.memories.durable.write import OnError, PromotionSource, set_one
from holdfast.memories.durable.write_entry import EntryWrite

RUN, TOKEN, IDEMPOTENCY = b"holdfast-run", b"holdfast-run-token", b"idempotency-key"

_TOKEN_DIGITS = 18
_IN_RUN: Final = frozenset((*(each.name for each in ENTRIES.operations), END.name, HEARTBEAT.name))


def opened(call: Call, hf: Holdfast, operation: Operation) -> DurableMemory:
    """Return the memory of *operation*."""
    writes, in_run = operation.method != "GET", operation.name in _IN_RUN
    return memory_of(call, hf, writes=writes, in_run=in_run)


def memory_of(call: Call, hf: Holdfast, *, writes: bool, in_run: bool = False) -> DurableMemory:
    """Return the memory of the path's agent, in the run of the headers.

    Writes have its idempotency key. Raise InvalidInput if a run is named where none can act.
    """
    key = idempotency_key_of(call) if writes else None
    run = run_of(call)
    if run is not None and not in_run:
        raise InvalidInput(RUN.decode(), "names a run, and this is no act of a run")
    memory = hf.durable(call["agent"])
    if run is None and key is None:
        return memory
    context = replace(memory.context, run=run, idempotency_key=key)
    return traced_as(memory, DurableMemory(context))


def run_of(call: Call) -> InRun | None:
    """Return the run that the headers of *call* name, or None.

    Raise InvalidInput for one header without the other, and for a token that is not a number.
    """
    run_id, token = call.headers.get(RUN), call.headers.get(TOKEN)
    if run_id is None and token is None:
        return None
    if run_id is None or token is None:
        missing = RUN if run_id is None else TOKEN
        reason = "is needed: a run is named by its id and its token"
        raise InvalidInput(missing.decode(), reason)
    if not token.isdigit() or len(token) > _TOKEN_DIGITS:
        given = token.decode("latin-1")
        raise InvalidInput(TOKEN.decode(), "must be the number that the run was given", given=given)
    return InRun(run_id=run_id.decode("latin-1"), token=int(token))


def idempotency_key_of(call: Call) -> str | None:
    """Return the idempotency key of *call*, or None; raise InvalidInput if invalid."""
    raw = call.headers.get(IDEMPOTENCY)
    if raw is None:
        return None
    try:
        return checked_idempotency_key(raw.decode())
    except UnicodeDecodeError:
        raise InvalidInput(IDEMPOTENCY.decode(), "is not UTF-8") from None


def put(_: Call, memory: DurableMemory, given: dict[str, Any]) -> object:
    """Write one entry, whole, with the source of its content."""
    options = EntryWrite(
        refresh=given["refresh"],
        expected_seq=given.get("expected_seq", UNSET),
        cause=_cause(given["promoted_from"]),
        subject=given["subject"],
        origin_ref=given["origin_ref"],
    )
    entry = EntryFields(**{name: given[name] for name in EntryFields.__struct_fields__})
    return within(
        memory, "set", lambda: set_one(memory.context, given["key"], entry, options=options)
    )


def _cause(promoted_from: str | PromotionSource | None) -> Cause:
    if promoted_from is None:
        return {}
    origin = PromotionSource(key=promoted_from) if isinstance(promoted_from, str) else promoted_from
    return origin.cause()


async def put_many(call: Call) -> Response:
    """Write entries in one transaction; refused ones are encoded as errors are."""
    body = call.body(PostEntries)
    on_error = cast("OnError", body.on_error)
    many = await call.write(
        lambda hf: opened(call, hf, SET_MANY).set_many(
            body.entries, on_error=on_error, refresh=body.refresh
        )
    )
    refused = [_refused(each) for each in many.refused]
    return of_json({"stored": [entry_to_wire(each) for each in many.stored], "refused": refused})


def _refused(refused: NotStored) -> Wire:
    return {"index": refused.index, "key": refused.key, "error": told_of(refused.error)}


def keep_alive(call: Call, memory: DurableMemory, _: object) -> object:
    """Record that a run is alive; return when it lapses."""
    return heartbeat(_in_run(call, memory))


def end_run(call: Call, memory: DurableMemory, given: dict[str, Any]) -> object:
    """End a run."""
    return end(_in_run(call, memory), given["outcome"])


def _in_run(call: Call, memory: DurableMemory) -> AgentContext:
    """Return the run's context; raise InvalidInput if headers and path differ."""
    context = memory.context
    if context.run is not None and context.run.run_id != call["run_id"]:
        raise InvalidInput(RUN.decode(), "names another run than the path", given=context.run_id)
    return context


HANDLERS: Final[Mapping[str, Handler]] = {SET_MANY.name: put_many}
ACTS: Final[Mapping[str, Act]] = {SET.name: put, HEARTBEAT.name: keep_alive, END.name: end_run}


class SentFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: its path and its text."""

    path: str
    text: str


class NotSent(RejectedFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that the sender could not read as text."""


class Import(How, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files to import, and how; `rejected` are those that could not be sent."""

    files: list[SentFile]
    mode: str = "upsert"  # pyright: ignore[reportIncompatibleVariableOverride] - the library checks it
    rejected: tuple[NotSent, ...] = ()


async def export(call: Call) -> Response:
    """Export the entries as files, from one snapshot."""
    with_shared: bool = call.query.get("include_workspace", True)
    files = await call.slow(
        lambda hf: export_files(
            memory_of(call, hf, writes=False).context, include_workspace=with_shared
        )
    )
    return of_json({"files": [{"path": path, "text": text} for path, text in files]})


async def take_in(call: Call) -> Response:
    """Import files.

    It runs on a thread, because mode `replace` forgets the entries that have no file.
    """
    body = call.body(Import)
    if body.mode == "replace":
        demand_scope(call.visitor, "admin")
    files = [(each.path, each.text) for each in body.files]

    def taken_in(hf: Holdfast) -> ImportReport:
        memory = memory_of(call, hf, writes=True)
        work = partial(import_files, memory.context, files, body, passed=body.rejected)
        return within(memory, "import_markdown", work)

    return of_json(entry_to_wire(await call.slow(taken_in)))


ROUTES = (
    HttpRoute(
        "GET",
        f"{AGENT}/export",
        "read",
        export,
        "Give out the entries as Markdown files.",
        limit=LIMIT,
        bound="agent",
        durable=True,
        query=(flag("include_workspace"),),
    ),
    HttpRoute(
        "POST",
        f"{AGENT}/import",
        "write",
        take_in,
        "Take in Markdown files; mode replace needs admin.",
        limit=LIMIT,
        bound="agent",
        durable=True,
        body=Import,
    ),
)
