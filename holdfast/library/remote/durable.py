"""Durable memory on a server: runs, batches, Markdown files, and promotion."""

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from holdfast.ground.errors import (
    HoldfastError,
    ImportRefused,
    InvalidInput,
    PreconditionFailed,
)
from holdfast.ground.scope import checked_name
from holdfast.ground.trust import weaker
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.durable import (
    AGENT,
    ENTRIES,
    ENTRY,
    MEMORY,
    RUN,
    STORED,
    WORKSPACE,
    OpenedRun,
)
from holdfast.library.remote.calls import (
    MemoryRequests,
    arguments_of,
    decoded,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.library.remote.client import WireClient, body_of
from holdfast.library.remote.errors import of_code
from holdfast.memories.durable.markdown.transfer import Mode, read_markdown, write_export
from holdfast.memories.durable.memory import DurableEntries, DurableMemory, DurableRun
from holdfast.memories.durable.records import (
    ExportReport,
    ImportReport,
    NewEntry,
    NotStored,
    RejectedFile,
    RunEnded,
    StoredEntry,
    StoredMany,
    give_code,
)
from holdfast.memories.durable.runs import Ending
from holdfast.memories.durable.wire import Wire, entry_to_wire, from_wire
from holdfast.memories.durable.write import OnError, Promotes, promotion


@contextmanager
def coded_errors() -> Generator[None, None, None]:
    """Add the error code to an error raised within, and decode records in its facts."""
    try:
        yield
    except HoldfastError as error:
        _complete(error)
        raise


def _complete(error: HoldfastError) -> None:
    give_code(error)
    if isinstance(error, PreconditionFailed):
        current: object = error.current
        if isinstance(current, dict):
            error.current = decoded(ENTRY.decode, cast("Wire", current))
    if isinstance(error, ImportRefused):
        given = cast("tuple[Any, ...]", error.rejected)
        error.rejected = tuple(
            each if isinstance(each, RejectedFile) else decoded(_rejected, each) for each in given
        )


_rejected = partial(from_wire, RejectedFile)


class _RefusedItem(Struct):
    """A refused item of a batch in a response."""

    index: int
    key: str
    error: dict[str, Any]


class _ManyAnswer(Struct):
    stored: list[Wire]
    refused: list[_RefusedItem]


class _Batch:
    """Items of `set_many` encoded for a request; the others are refused here."""

    def __init__(self, items: Iterable[object]) -> None:
        self.wires: list[Wire] = []
        self.places: list[int] = []
        self.refused: list[NotStored] = []
        for index, item in enumerate(items):
            wire = _item(item)
            try:
                body_of(wire if all(isinstance(name, str) for name in wire) else {"items": wire})
            except InvalidInput as error:
                error.index = index
                give_code(error)
                self.refused.append(NotStored(index, _key(wire), error))
            else:
                self.wires.append(wire)
                self.places.append(index)

    def many(self, answer: Wire) -> StoredMany:
        """Return the results of all items; *answer* has those of the sent ones."""
        many = decoded(partial(msgspec.convert, type=_ManyAnswer), answer)
        refused = [_refused(each, self.places[each.index]) for each in many.refused]
        return StoredMany(
            stored=tuple(decoded(STORED.decode, each) for each in many.stored),
            refused=tuple(sorted([*self.refused, *refused], key=lambda each: each.index)),
        )


def _item(item: object) -> dict[Any, Any]:
    if isinstance(item, Mapping):
        return dict(cast("Mapping[Any, object]", item))
    named = NewEntry.__struct_fields__
    return {name: _plain(getattr(item, name)) for name in named if hasattr(item, name)}


def _plain(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _key(wire: Wire) -> str:
    key = wire.get("key", "")
    return key.encode("utf-8", "backslashreplace").decode() if isinstance(key, str) else ""


def _refused(refused: _RefusedItem, index: int) -> NotStored:
    error = of_code(refused.error)
    error.index = index
    return NotStored(index, refused.key, error)


def _set_many(
    self: DurableEntries,
    items: Iterable[object],
    *,
    on_error: OnError = "abort",
    refresh: bool = True,
) -> StoredMany:
    with coded_errors():
        batch = _Batch(items)
        if batch.refused and on_error != "skip":
            raise batch.refused[0].error
    params = {"items": batch.wires, "on_error": on_error, "refresh": refresh}
    return batch.many(perform(self, "set_many", params))


RemoteEntries: Final = remote_memory(ENTRIES, set_many=_set_many)


def _end(self: DurableRun, outcome: Ending = "ok") -> RunEnded:
    ended: RunEnded = perform(self, "end", {"outcome": outcome})
    vars(self)["_over"] = True
    return ended


RemoteDurableRun: Final = remote_memory(
    RUN,
    RemoteEntries,
    end=_end,
    capture=DurableRun.capture,
    __enter__=DurableRun.__enter__,
    __exit__=DurableRun.__exit__,
)


def _by_tool(self: DurableMemory) -> DurableMemory:
    # The credential is the actor of its writes, so that only their tier can be stated.
    requests = requests_of(self)
    tier = weaker(requests.client.tier or "assistant", "assistant")
    return RemoteDurable(replace(requests, headers={**requests.headers, "holdfast-tier": tier}))


def _run(self: DurableMemory, *args: Any, **kwargs: Any) -> DurableRun:
    # A repeat after a lost response supersedes the first run, in which nothing was done.
    opened: OpenedRun = perform(self, "run", arguments_of(self, "run", *args, **kwargs))
    requests = requests_of(self)
    segments = {**requests.segments, "run_id": opened.run_id}
    headers = {"holdfast-run": opened.run_id, "holdfast-run-token": str(opened.token)}
    run = RemoteDurableRun(replace(requests, segments=segments, headers=headers))
    vars(run).update(asdict(opened), _over=False)
    return run


def _export_markdown(
    self: DurableMemory,
    directory: str | os.PathLike[str],
    *,
    include_workspace: bool = True,
) -> ExportReport:
    query = {"include_workspace": include_workspace}
    answer = requests_of(self).read(f"{AGENT}/export", query)
    sent = decoded(partial(msgspec.convert, type=_Files), answer)
    return write_export(directory, tuple((each.path, each.text) for each in sent.files))


class _File(Struct):
    path: str
    text: str


class _Files(Struct):
    files: list[_File]


def _import_markdown(
    self: DurableMemory,
    directory: str | os.PathLike[str],
    mode: Mode = "upsert",
    *,
    dry_run: bool = False,
    rebind: bool = False,
) -> ImportReport:
    with coded_errors():
        files, passed = read_markdown(directory)
    body = {
        "files": [{"path": path, "text": text} for path, text in files],
        "mode": mode,
        "dry_run": dry_run,
        "rebind": rebind,
        "rejected": [entry_to_wire(each) for each in passed],
    }
    answer = requests_of(self).write("POST", f"{AGENT}/import", body, retry="keyed")
    return decoded(partial(from_wire, ImportReport), answer)


def _promote(
    self: DurableMemory,
    memory: Promotes,
    key: str,
    *,
    category: str,
    as_key: str | None = None,
    tags: Iterable[str] = (),
) -> StoredEntry:
    what = promotion(memory, key, as_key)
    params = {"key": what.key, "content": what.content, "category": category, "tags": tags}
    return perform(self, "set", {**params, "promoted_from": to_builtins(what.origin)})


RemoteDurable: Final = remote_memory(
    MEMORY,
    RemoteEntries,
    by_tool=_by_tool,
    run=_run,
    export_markdown=_export_markdown,
    import_markdown=_import_markdown,
    promote=_promote,
)
RemoteDurableWorkspace: Final = remote_memory(WORKSPACE)


def remote_durable(client: WireClient, agent: str) -> DurableMemory:
    """Return the durable memory of *agent*; InvalidInput for a bad name."""
    with coded_errors():
        segments = {"agent": checked_name("agent", agent)}
    return RemoteDurable(MemoryRequests(client=client, segments=segments, errors=coded_errors))


def remote_workspace(client: WireClient) -> Holdfast:
    """Return the operations on durable memory of a whole workspace."""
    return RemoteDurableWorkspace(MemoryRequests(client=client, errors=coded_errors))
