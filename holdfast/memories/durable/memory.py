"""Durable memory: what one agent knows between runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from holdfast.ground.errors import StaleRun
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.history import accept, get_at, history, list_at, redact, restore
from holdfast.memories.durable.hydration import Hydration, explain, hydrate
from holdfast.memories.durable.markdown.transfer import How, Mode, export_markdown, import_markdown
from holdfast.memories.durable.read import LISTED, EntryQuery, get, list_entries
from holdfast.memories.durable.records import (
    DurableEntry,
    DurableLimits,
    EntryChange,
    EntryFields,
    EntryScope,
    Explanation,
    ExportReport,
    ImportReport,
    LimitsChanged,
    Op,
    RunEnded,
    StoredEntry,
    StoredMany,
    Swept,
    coded,
)
from holdfast.memories.durable.retention import limits_of, set_limits, sweep
from holdfast.memories.durable.runs import Begun, Ending, OpenRun, begin, end, heartbeat
from holdfast.memories.durable.write import OnError, Promotes, promote, promotion, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite


class DurableEntries:
    """Entries that an agent, or one of its runs, reads and writes."""

    def __init__(self, context: AgentContext) -> None:
        self.context = context

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
        subject: str | None = None,
        origin_ref: str | None = None,
    ) -> StoredEntry:
        """Write the whole entry under *key*, replacing what was there.

        It is linked to the person *subject*, with whom `forget_user` erases it. *origin_ref* says
        where a content from outside came from: it is held if it gives orders to a machine. With
        `refresh=False` an identical entry stays unchanged. *expected_seq* is the `seq` of the entry
        to overwrite, 0 for none. A repeat within 24 hours under the same *idempotency_key* writes
        nothing and returns the first result. Raises InvalidInput, PreconditionFailed, MemoryFull,
        RunRequired, Forgotten, IdempotencyMismatch.
        """
        options = EntryWrite(
            refresh=refresh,
            expected_seq=expected_seq,
            idempotency_key=idempotency_key,
            subject=subject,
            origin_ref=origin_ref,
        )
        entry = EntryFields(content=content, category=category, tags=tags)
        return set_one(self.context, key, entry, options=options)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order.

        Each item is a mapping of key, content, category and tags, or has these as attributes.
        With `abort` the first refused item raises, with its `index`, and nothing is written; with
        `skip` the other items are written, and it is listed in `refused`.
        """
        return set_many(self.context, items, on_error=on_error, refresh=refresh)

    def get(self, key: str, *, at: datetime | str | None = None) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None.

        The agent's own entry is nearer than the workspace's. With *at*, an aware datetime or RFC
        3339 of the last 90 days, it is the entry as it was then; None also if that was erased
        since. InvalidInput if the history of the key begins later. Entries of runs have none.
        """
        with coded():
            return get(self.context, key) if at is None else get_at(self.context, key, at)

    def list(  # noqa: PLR0917 - the filters, each of which may be left out
        self,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: datetime | timedelta | None = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
        *,
        at: datetime | str | None = None,
    ) -> Page[DurableEntry]:
        """Return the entries that pass all filters, newest first, shadowed ones included.

        A match has all of *tags*, and each word of *query*, case-folded, in its key, its content
        or a tag. *since* is an instant, or a span back from now. *limit* is 1 to 1,000. With *at*,
        an aware datetime or RFC 3339 of the last 90 days, they are as they were then, without those
        of runs. `erased` of the page counts entries that were there then, or may have been, and of
        which the change of then is no longer stored: forgotten, redacted, expired, or past the
        newest 20 of a key.
        """
        filters = EntryQuery(
            category=category, tags=tags, since=since, key_prefix=key_prefix, query=query
        )
        with coded():
            if at is not None:
                return list_at(self.context, filters, at, limit=limit, page=page)
            return list_entries(self.context, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*: the agent's entry, or else the workspace's; *scope* picks one.

        Returns True when an entry was deleted: then its bytes are in no file of the database. A
        tombstone stays, which only a client that knows the key can find.
        """
        return forget(self.context, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees at the start of a run.

        *budget* is in bytes; None is the agent's limit.
        """
        with coded():
            return hydrate(self.context, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Explain whether a hydration takes the entry under *key*, and why.

        *budget* is in bytes; None is the agent's limit.
        """
        return explain(self.context, key, budget)


class DurableRun(DurableEntries):
    """An open run, made by `DurableMemory.run`.

    As a context manager it ends on every exit. Every call raises StaleRun once another run took its
    lane, or it ended.
    """

    def __init__(self, begun: Begun) -> None:
        super().__init__(begun.context)
        self.hydration: Hydration = begun.hydration
        self.run_id, self.token, self.lane = begun.run_id, begun.token, begun.lane
        self._over = False

    def capture(self, entries: Iterable[object]) -> StoredMany:
        """Store the items of *entries* that differ from the stored entries."""
        return self.set_many(entries, on_error="skip", refresh=False)

    def heartbeat(self) -> datetime:
        """Extend the lease of the run; return when it would lapse."""
        return heartbeat(self.context)

    def end(self, outcome: Ending = "ok") -> RunEnded:
        """End the run and delete its conversation entries."""
        ended = end(self.context, outcome)
        self._over = True
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._over:
            return
        try:
            self.end("ok" if kind is None else "failed")
        except StaleRun:
            # It has ended already: another run has its lane.
            self._over = True


class DurableMemory(DurableEntries):
    """Durable memory of one agent: entries by key, kept between runs.

    >>> import holdfast
    >>> durable = holdfast.open(":memory:").durable("agent_7")
    >>> durable.set("deploy_target", "fly.io", category="core").content
    'fly.io'
    >>> durable.get("owner") is None
    True
    """

    def by_tool(self) -> "DurableMemory":
        """Return the same memory, for what the agent writes by its tools."""
        by = Actor.agent(self.context.agent)
        return DurableMemory(replace(self.context, actor=by))

    def run(
        self,
        run_id: str | None = None,
        *,
        lane: str = "main",
        budget: int | None = None,
        resume: bool = False,
    ) -> DurableRun:
        """Open a run in *lane* and hydrate it; supersede the run open there.

        With *resume* it takes over the conversation entries of an unfinished run with the same
        *run_id*.
        """
        opening = OpenRun(run_id=run_id, lane=lane, budget=budget, resume=resume)
        return DurableRun(begin(self.context, opening))

    def history(
        self,
        key: str | None = None,
        *,
        op: Op | None = None,
        since: datetime | timedelta | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[EntryChange]:
        """Return the changes of the agent's, its runs' and workspace entries.

        Newest first. With *key*, only the changes of that key, including those from before it was
        forgotten; a forgotten key is None in them. Stored are the newest 20 of a key, for 90 days.
        """
        with coded():
            return history(self.context, key, op=op, since=since, limit=limit, page=page)

    def redact(self, seq: int) -> EntryChange:
        """Remove the content from the change *seq*; a repeat changes nothing.

        The change stays in the log with `redacted_at`. When this returns the bytes are in no file
        of the database, unless the entry itself still has them. Raises NotFound when there is no
        such change.
        """
        return redact(self.context, seq)

    def restore(self, key: str, seq: int) -> StoredEntry:
        """Write the content of the change *seq* of *key* as a new write.

        Raises NotFound when there is no such change, or its content was deleted.
        """
        return restore(self.context, key, seq)

    def accept(self, key: str) -> StoredEntry:
        """Release the held entry under *key*, which a person confirms by it.

        Raises NotFound, and InvalidInput if none under the key is held.
        """
        return accept(self.context, key)

    def sweep(self) -> Swept:
        """Delete expired entries, lapsed runs and old rows of the log."""
        return sweep(self.context)

    def limits(self) -> DurableLimits:
        """Return the limits in force for this agent."""
        with coded():
            return limits_of(self.context)

    def set_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set this agent's own limits; None restores the workspace's.

        A cap below the number of entries raises MemoryFull, which says how many would be evicted;
        with *evict* they are, coldest first.
        """
        return set_limits(self.context, limits, evict=evict)

    def export_markdown(
        self, directory: str | PathLike[str], *, include_workspace: bool = True
    ) -> ExportReport:
        """Write each entry to a file of its own below *directory*.

        Conversation entries are not exported. The directory is absent, empty, or an earlier export
        of this agent, in which files of deleted entries are removed; anything else is InvalidInput.
        """
        return export_markdown(self.context, directory, include_workspace=include_workspace)

    def import_markdown(
        self,
        directory: str | PathLike[str],
        mode: Mode = "upsert",
        *,
        dry_run: bool = False,
        rebind: bool = False,
    ) -> ImportReport:
        """Import the files of *directory* in one transaction.

        Files that cannot be imported are in `rejected`. `replace` also forgets the agent's entries
        that no file holds; if any file is rejected it changes nothing and raises ImportRefused. A
        *dry_run* only reports what would be done. With *rebind* another agent's files are imported
        as this agent's.
        """
        how = How(mode=mode, dry_run=dry_run, rebind=rebind)
        return import_markdown(self.context, directory, how)

    def promote(
        self,
        memory: Promotes,
        key: str,
        *,
        category: str,
        as_key: str | None = None,
        tags: Iterable[str] = (),
    ) -> StoredEntry:
        """Store the value under *key* in *memory*, the memory of one run.

        Text is stored as it is, other values as JSON. The key loses its namespace (`shared:owner`
        becomes `owner`) unless *as_key* is given. Raises NotFound when there is no value, and what
        `set` raises.
        """
        what = promotion(memory, key, as_key)
        return promote(self.context, what, category=category, tags=tags)
