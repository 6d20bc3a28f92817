"""Durable memory: what one agent knows between runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from os import PathLike

from holdfast.ground.pages import Page
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.history import history, redact, restore
from holdfast.memories.durable.hydration import Hydration, explain, hydrate
from holdfast.memories.durable.markdown.transfer import How, Mode, export_markdown, import_markdown
from holdfast.memories.durable.read import LISTED, EntryQuery, get, list_entries
from holdfast.memories.durable.records import (
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
    coded,
)
from holdfast.memories.durable.retention import limits_of, set_limits, sweep
from holdfast.memories.durable.runs import DurableRun, begin
from holdfast.memories.durable.write import OnError, Promotes, promote, promotion, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite


class DurableMemory:
    """What one agent remembers between runs, by key.

    >>> import holdfast
    >>> durable = holdfast.open(":memory:").durable("agent_7")
    >>> durable.set("deploy_target", "fly.io", category="core").content
    'fly.io'
    >>> durable.get("owner") is None
    True
    """

    def __init__(self, caller: AgentContext) -> None:
        self.caller = caller

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
        """Write the whole entry under *key*, replacing what was there.

        With `refresh=False` an entry that is the same already is left alone. *expected_seq* is
        that of the entry to write over, 0 for none. Asked again within 24 hours under the same
        *idempotency_key*, nothing is written and the first answer is given. Raises InvalidInput,
        PreconditionFailed, MemoryFull, RunRequired, Forgotten, IdempotencyMismatch.
        """
        wish = EntryWrite(
            refresh=refresh, expected_seq=expected_seq, idempotency_key=idempotency_key
        )
        return set_one(self.caller, key, content, category, tags, wish=wish)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order.

        Each item is a mapping of key, content, category and tags, or has these as attributes.
        With `abort` the first that is refused raises, with its `index`, and nothing is written;
        with `skip` the others are, and it is in `refused`.
        """
        return set_many(self.caller, items, on_error=on_error, refresh=refresh)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, the agent's or the workspace's, or None."""
        with coded():
            return get(self.caller, key)

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
        """Return the entries that pass all filters, newest first, shadowed ones included.

        An entry has all of *tags*, and each word of *query*, by case folding, in its key, its
        content or a tag. *since* is an instant, or a span back from now. *limit* is 1 to 1,000.
        """
        filters = EntryQuery(
            category=category, tags=tags, since=since, key_prefix=key_prefix, query=query
        )
        with coded():
            return list_entries(self.caller, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*: the agent's entry, or else the workspace's; *scope* picks one.

        True when something was removed: then its bytes are in no file of the database. What
        stays is that it was forgotten, for whoever knows the key.
        """
        return forget(self.caller, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees at a run's start, within *budget* bytes; None: its limit."""
        with coded():
            return hydrate(self.caller, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Say whether a hydration with *budget* bytes takes the entry under *key*, and why."""
        return explain(self.caller, key, budget)

    def run(
        self,
        run_id: str | None = None,
        *,
        lane: str = "main",
        budget: int | None = None,
        resume: bool = False,
    ) -> DurableRun:
        """Open a run, which supersedes the one that was open in its *lane*, and hydrate it.

        With *resume* it takes over the conversation entries of the run of the same *run_id* that
        did not come to its end.
        """
        begun = begin(self.caller, run_id, lane=lane, budget=budget, resume=resume)
        return DurableRun(begun)

    def history(
        self,
        key: str | None = None,
        *,
        op: Op | None = None,
        since: datetime | timedelta | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[EntryChange]:
        """Return the changes of the agent's entries, its runs' and the workspace's, newest first.

        Those of *key* alone where it is given, also from before it was forgotten; a key that was
        forgotten is None in them. Kept are the newest 20 of a key, for 90 days.
        """
        with coded():
            return history(self.caller, key, op=op, since=since, limit=limit, page=page)

    def redact(self, seq: int) -> EntryChange:
        """Take the content out of the change *seq*, which stays and says so; NotFound without it.

        Again changes nothing. When this returns the bytes are in no file of the database, unless
        the entry itself still has them.
        """
        return redact(self.caller, seq)

    def restore(self, key: str, seq: int) -> StoredEntry:
        """Write what the change *seq* of *key* held, as a new write.

        Raises NotFound when there is no such change, or it holds no content any more.
        """
        return restore(self.caller, key, seq)

    def sweep(self) -> Swept:
        """Remove what is over: expired entries, runs that lapsed, what the log no longer keeps."""
        return sweep(self.caller)

    def limits(self) -> DurableLimits:
        """Return the limits in force for this agent."""
        with coded():
            return limits_of(self.caller)

    def set_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits of this agent's own; None lets the workspace's apply again.

        A cap below what is held raises MemoryFull, which says how many would go; with *evict*
        they do, coldest first.
        """
        return set_limits(self.caller, limits, evict=evict)

    def export_markdown(
        self, directory: str | PathLike[str], *, include_workspace: bool = True
    ) -> ExportReport:
        """Write each entry to a file of its own below *directory*; conversation entries stay out.

        The directory is absent, empty, or an earlier export of this agent, in which files of
        entries that are gone are removed; anything else is InvalidInput.
        """
        return export_markdown(self.caller, directory, include_workspace=include_workspace)

    def import_markdown(
        self,
        directory: str | PathLike[str],
        mode: Mode = "upsert",
        *,
        dry_run: bool = False,
        rebind: bool = False,
    ) -> ImportReport:
        """Take in the files of *directory* in one transaction; what cannot go in is `rejected`.

        `replace` besides forgets the agent's entries that no file holds; if any file is rejected
        it changes nothing and raises ImportRefused. A *dry_run* only says what would be done.
        With *rebind* another agent's files are taken as this one's.
        """
        how = How(mode=mode, dry_run=dry_run, rebind=rebind)
        return import_markdown(self.caller, directory, how)

    def promote(
        self,
        memory: Promotes,
        key: str,
        *,
        category: str,
        as_key: str | None = None,
        tags: Iterable[str] = (),
    ) -> StoredEntry:
        """Store what *memory*, of one run, has under *key*: text as it is, other values as JSON.

        The key loses its namespace (`shared:owner` becomes `owner`) unless *as_key* is given.
        Raises NotFound when nothing is there, and what `set` raises.
        """
        what = promotion(memory, key, as_key)
        return promote(self.caller, what, category=category, tags=tags)
