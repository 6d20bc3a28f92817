"""Durable memory on a server, with the methods of the embedded one."""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import to_builtins

from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_limit
from holdfast.library import remote_durable_acts as acts
from holdfast.library.erasure import ForgetReport
from holdfast.library.remote.client import WireClient, route
from holdfast.library.remote.durable_run import RemoteDurableRun
from holdfast.library.remote_durable_wire import (
    DURABLE,
    DurableWire,
    coded_errors,
    list_of,
    record,
    since_of,
    value_of,
)
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.markdown.transfer import Mode, read_markdown, write_export
from holdfast.memories.durable.read import LISTED, MOST_LISTED, EntryQuery
from holdfast.memories.durable.records import (
    AgentSummary,
    DurableEntry,
    DurableLimits,
    EntryChange,
    EntryScope,
    Explanation,
    ExportReport,
    ImportReport,
    LimitsChanged,
    Op,
    StoredEntry,
    StoredMany,
    Swept,
)
from holdfast.memories.durable.validation import checked_key
from holdfast.memories.durable.wire import entry_to_wire
from holdfast.memories.durable.write import OnError, Promotes, promotion


class RemoteDurable:
    """Durable memory of one agent, by key, on a server."""

    def __init__(self, client: WireClient, agent: str) -> None:
        with coded_errors():
            checked_name("agent", agent)
        self._wire = DurableWire(client, route(DURABLE, agent))

    def set(
        self,
        key: str,
        content: str,
        *,
        category: str,
        tags: Iterable[str] = (),
        refresh: bool = True,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> StoredEntry:
        """Write the whole entry under *key*, replacing an existing one."""
        entry = acts.RemoteEntryWrite(
            content=content,
            category=category,
            tags=tags,
            refresh=refresh,
            expected_seq=expected_seq,
        )
        return acts.set_one(self._wire, key, entry, idempotency_key=idempotency_key)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order."""
        return acts.set_many(self._wire, items, on_error=on_error, refresh=refresh)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None.

        It is the agent's, else the workspace's.
        """
        return acts.get(self._wire, key)

    def list(  # noqa: PLR0917 - the filters, each of which may be left out
        self,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: datetime | timedelta | None = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[DurableEntry]:
        """Return the entries that pass all filters, newest first, shadowed ones included."""
        filters = EntryQuery(
            category=category, tags=tags, since=since, key_prefix=key_prefix, query=query
        )
        return acts.list_entries(self._wire, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*: the agent's entry, or else the workspace's; *scope* picks one."""
        return acts.forget(self._wire, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees at a run's start, within *budget* bytes.

        None means the agent's limit.
        """
        return acts.hydrate(self._wire, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Explain why *key* is hydrated or not."""
        return acts.explain(self._wire, key, budget)

    def run(
        self,
        run_id: str | None = None,
        *,
        lane: str = "main",
        budget: int | None = None,
        resume: bool = False,
    ) -> RemoteDurableRun:
        """Open a run, superseding the open run in its *lane*, and hydrate it.

        Opening is idempotent, also after a lost response: the second run supersedes the first, in
        which nothing was done.
        """
        body = {"run_id": run_id, "lane": lane, "budget": budget, "resume": resume}
        return RemoteDurableRun(self._wire, self._wire.write("POST", "runs", body=body))

    def history(
        self,
        key: str | None = None,
        *,
        op: Op | None = None,
        since: datetime | timedelta | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[EntryChange]:
        """Return changes of entries of the agent, its runs and the workspace.

        The newest come first.
        """
        with coded_errors():
            back, rows = since_of(since), check_limit(limit, most=MOST_LISTED, default=LISTED)
        return self._wire.page(
            lambda each: record(EntryChange, each),
            "history",
            key=key,
            op=op,
            since=back,
            limit=rows,
            page=page,
        )

    def redact(self, seq: int) -> EntryChange:
        """Redact the content of the change *seq*; the change itself remains."""
        with coded_errors():
            number = _checked_seq(seq)
        return record(EntryChange, self._wire.write("POST", "history", number, "redact"))

    def restore(self, key: str, seq: int) -> StoredEntry:
        """Write the content of the change *seq* of *key* again, as a new write."""
        with coded_errors():
            checked_key(key)
        body = {"seq": seq}
        answer = self._wire.write("POST", acts.ENTRIES, key, "restore", body=body)
        return record(StoredEntry, answer)

    def sweep(self) -> Swept:
        """Remove expired entries, lapsed runs, and changes beyond the log's retention."""
        return record(Swept, self._wire.write("POST", "sweep"))

    def limits(self) -> DurableLimits:
        """Return the limits in force for this agent."""
        return record(DurableLimits, self._wire.read("limits"))

    def set_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits of this agent; None restores the workspace's."""
        return record(
            LimitsChanged, self._wire.write("PATCH", "limits", body={**limits, "evict": evict})
        )

    def export_markdown(
        self, directory: str | os.PathLike[str], *, include_workspace: bool = True
    ) -> ExportReport:
        """Export the agent's entries to the local folder *directory*.

        It must be absent, empty, or an earlier export.
        """
        answer = self._wire.read("export", include_workspace=include_workspace)
        files = [
            (value_of(each, "path", str), value_of(each, "text", str))
            for each in list_of(answer, "files")
        ]
        return write_export(directory, tuple(files))

    def import_markdown(
        self,
        directory: str | os.PathLike[str],
        mode: Mode = "upsert",
        *,
        dry_run: bool = False,
        rebind: bool = False,
    ) -> ImportReport:
        """Import Markdown files of the local folder *directory*; at most 4 MiB in all."""
        with coded_errors():
            files, passed = read_markdown(directory)
        body = {
            "files": [{"path": path, "text": text} for path, text in files],
            "mode": mode,
            "dry_run": dry_run,
            "rebind": rebind,
            "rejected": [entry_to_wire(each) for each in passed],
        }
        return record(ImportReport, self._wire.write("POST", "import", body=body))

    def promote(
        self,
        memory: Promotes,
        key: str,
        *,
        category: str,
        as_key: str | None = None,
        tags: Iterable[str] = (),
    ) -> StoredEntry:
        """Write the value of *key* in *memory* as an entry; NotFound if there is none."""
        what = promotion(memory, key, as_key)
        entry = acts.RemoteEntryWrite(
            content=what.content,
            category=category,
            tags=tags,
            promoted_from=to_builtins(what.origin),
        )
        return acts.set_one(self._wire, what.key, entry)


class RemoteDurables:
    """Durable memory of a whole workspace, on a server."""

    def __init__(self, client: WireClient) -> None:
        self._wire = DurableWire(client, "")

    def agents(self, limit: int | None, page: str | None) -> Page[AgentSummary]:
        """Return the agents that have durable memory, by name."""
        with coded_errors():
            rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
        return self._wire.page(
            lambda each: record(AgentSummary, each), "api", "durable", limit=rows, page=page
        )

    def limits(self) -> DurableLimits:
        """Return the workspace's limits."""
        return record(DurableLimits, self._wire.read("api", "settings", "durable"))

    def set_limits(self, limits: dict[str, int | None], *, evict: bool) -> LimitsChanged:
        """Set the workspace's limits."""
        body = {**limits, "evict": evict}
        answer = self._wire.write("PATCH", "api", "settings", "durable", body=body)
        return record(LimitsChanged, answer)

    def sweep(self) -> Swept:
        """Remove expired data of every agent."""
        return record(Swept, self._wire.write("POST", "api", "sweep"))

    def forget_agent(self, agent: str) -> ForgetReport:
        """Forget all data of *agent*."""
        answer = self._wire.write("POST", "api", "forget", body={"agent": agent})
        return record(ForgetReport, answer)


def _checked_seq(given: object) -> str:
    """Return *given* as a segment of a path."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidInput("seq", "must be the number of a change", given=given)
    return str(given)
