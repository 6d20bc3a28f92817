"""Routes that export and import durable entries as Markdown files."""

from functools import partial

from msgspec import Struct

from holdfast.doors.http.auth import demand_scope
from holdfast.doors.http.call import Call
from holdfast.doors.http.own.durable import memory_of
from holdfast.doors.http.params import flag
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.durable import AGENT, LIMIT
from holdfast.library.spans import within
from holdfast.memories.durable.markdown.transfer import How, export_files, import_files
from holdfast.memories.durable.records import ImportReport, RejectedFile
from holdfast.memories.durable.wire import entry_to_wire


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
