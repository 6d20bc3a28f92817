"""Holdfast: one engine, with the memories on it."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Self

from msgspec.structs import replace

from holdfast import library, memories
from holdfast.engines.base import Engine
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import NotAuthenticated
from holdfast.ground.events import Event, EventBus
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor, Scope, WriteSubject, checked_actor, checked_name
from holdfast.ground.trust import WriterTier, checked_tier
from holdfast.library.erasure.records import ErasureOptions, ForgetReport, MentionChoice
from holdfast.library.settings import HandleTarget
from holdfast.memories.durable.records import (
    AgentSummary,
    DurableLimits,
    LimitsChanged,
    Swept,
    coded,
)
from holdfast.memories.longterm.cache_budget import CACHE_BYTES
from holdfast.memories.longterm.records import LongTermOptions, Person
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed
from holdfast.memories.stores.stores import MemoryStores

EVERY = "*"
"""Wildcard for every agent in a scope of upkeep."""

# `memories` and `library` load what they name on first use.


class Holdfast:
    """All memories of one workspace, accessed by one actor.

    Opened by `holdfast.open()`. As a context manager it closes on every exit.
    """

    def __init__(
        self,
        engine: Engine,
        context: StoresContext,
        *,
        root: "Holdfast | None" = None,
        opened: HandleTarget | None = None,
    ) -> None:
        self.engine, self._context, self._root = engine, context, root
        self.opened = opened
        self._longterm: memories.Shared | None = None
        self._attachments: memories.Attachments | None = None
        self._making = Lock()
        self.events: EventBus = engine.events
        self.memory_stores = MemoryStores(context)

    @cached_property
    def sessions(self) -> "memories.Sessions":
        """Sessions: the stores that a running agent may access."""
        return memories.Sessions(self._context)

    @cached_property
    def agents(self) -> "memories.Agents":
        """Agents that sessions refer to."""
        return memories.Agents(self._context)

    @cached_property
    def environments(self) -> "memories.Environments":
        """Environments that sessions refer to."""
        return memories.Environments(self._context)

    @cached_property
    def keys(self) -> "memories.Keys":
        """API keys of a server."""
        return memories.Keys(self._context)

    @cached_property
    def threads(self) -> "memories.Threads":
        """Threads: messages to networks of agents and their results, over many runs."""
        return memories.Threads(self._threads_context())

    @cached_property
    def canaries(self) -> "memories.Canaries":
        """Canaries: planted texts that show, where they appear, that a memory was copied."""
        return memories.Canaries(lambda user: self.longterm_data(user).context)

    @property
    def run_attachments(self) -> "memories.Attachments":
        """Runs attached through any handle on this engine, in this process."""
        if self._root is not None:
            return self._root.run_attachments
        with self._making:
            self._attachments = self._attachments or memories.Attachments()
        return self._attachments

    @cached_property
    def runs(self) -> "memories.Runs":
        """Runs of agents, visible to other clients during and after the run."""
        context = memories.RunsContext(
            engine=self._context.engine,
            workspace=self.workspace,
            clock=self._context.clock,
            demand=partial(refuse_narrowed, self._context),
            actor=self._context.actor,
            subject=self._context.subject,
        )
        return memories.Runs(context, self.run_attachments)

    def save_run(
        self, memory: "memories.RunMemory", store_id: str, *, prefix: str = "/runs/"
    ) -> "library.Saved":
        """Save the results of a run's tasks as memories of the store *store_id*.

        The path of each is *prefix*, the run's id and the task's; text is stored as it is, other
        values as JSON. `skipped` lists results that break a limit of the store, with the error.
        """
        stores = self.for_tier("assistant").memory_stores
        return library.save_run(stores, memory, store_id, prefix=prefix)

    def durable(self, agent: str) -> "memories.DurableMemory":
        """Return the durable memory of *agent*; InvalidInput for a bad name."""
        with coded():
            refuse_narrowed(self._context, "write")
            checked_name("agent", agent)
        memory = memories.DurableMemory(self._agent_context(agent, agent))
        return library.traced(memory, library.DURABLE, store=agent, content=self._trace_content)

    def durable_agents(
        self, limit: int | None = 100, page: str | None = None
    ) -> Page[AgentSummary]:
        """Return the agents of the workspace that have durable memory, by name."""
        with coded():
            return memories.list_agents(self._every_agent("read"), limit=limit, page=page)

    def durable_limits(self) -> DurableLimits:
        """Return the default limits of the workspace's agents, and of shared entries."""
        with coded():
            return memories.limits_of(self._every_agent("read"))

    def set_durable_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits for the whole workspace; None restores the default.

        A cap below the entries of an agent raises MemoryFull with the number to evict; with
        *evict* they are evicted, coldest first.
        """
        with coded():
            context = self._every_agent("admin")
        return memories.set_workspace_limits(context, limits, evict=evict)

    def sweep(self) -> Swept:
        """Remove expired entries, lapsed runs and old changes of every agent.

        Files of stores and rows of long-term memory that were held for 30 days are forgotten.
        """
        with coded():
            swept = memories.sweep_all(self._every_agent("admin"))
        library.forget_held(
            self.engine, self.longterm_shared, self._context.clock, workspace=self.workspace
        )
        return swept

    def forget_agent(
        self,
        agent: str,
        *,
        mentions: MentionChoice = "report",
        names: Iterable[str] = (),
        receipt: bool = True,
    ) -> ForgetReport:
        """Forget all data of *agent*, and its name, with a receipt in the ledger.

        Its open runs are refused from then on. *mentions* and *names* are as of `forget_user`.
        """
        options = ErasureOptions(mentions=mentions, names=tuple(names), receipt=receipt)
        with coded():
            return library.forget_agent(self._context, self.longterm_shared, agent, options)

    @property
    def longterm_shared(self) -> "memories.Shared":
        """State that the long-term memories of all handles on this engine share."""
        if self._root is not None:
            return self._root.longterm_shared
        with self._making:
            budget = self.opened.cache_bytes if self.opened else CACHE_BYTES
            self._longterm = self._longterm or memories.Shared(budget)
        return self._longterm

    def longterm(
        self,
        user_id: str,
        *,
        namespace: str = "chat",
        workspace_id: str | None = None,
        enabled: bool | None = None,
        embedder: Any = None,
        extractor: Any = None,
        options: LongTermOptions | None = None,
    ) -> "memories.LongTermMemory | None":
        """Return the long-term memory of the user *user_id*; None if it is disabled.

        It is enabled if *enabled* or HOLDFAST_LTM_ENABLED enables it and neither disables it.
        *namespace* and *workspace_id* separate collections of the same user.
        """
        spec = library.LongTermSpec(
            user_id=user_id,
            namespace=namespace,
            workspace_id=workspace_id,
            enabled=enabled,
            embedder=embedder,
            extractor=extractor,
            options=options or LongTermOptions(),
        )
        return library.open_longterm(
            self._context, self.longterm_shared, spec, trace_content=self._trace_content
        )

    def longterm_data(
        self, user_id: str, *, namespace: str = "chat", workspace_id: str | None = None
    ) -> "memories.LongTermData":
        """Return a user's data to list and to forget, also while memory is disabled."""
        spec = library.LongTermSpec(user_id=user_id, namespace=namespace, workspace_id=workspace_id)
        return library.open_longterm_data(
            self._context, self.longterm_shared, spec, trace_content=self._trace_content
        )

    def import_(
        self,
        kind: str,
        files: Iterable[str | PathLike[str] | BinaryIO],
        *,
        user: str | None = None,
        agent: str | None = None,
        store: str | None = None,
        namespace: str = "chat",
        workspace_id: str | None = None,
        human: Iterable[str] = (),
        dry_run: bool = False,
        mine: bool = False,
        limit: int | None = None,
        enabled: bool | None = True,
    ) -> "library.FileImport":
        """Import *files*, paths or open binary files, which another program exported.

        *kind* is `mem0`, `langmem`, `letta`, `mcp-graph`, `chatgpt` or `claude`. Facts and
        messages go to the memory of *user*; `*` keeps the users of mem0. What is no fact about a
        person goes to *store*. *agent* admits one agent's records, *human* names blocks of Letta
        about the user, *limit* is the most records to read. *mine* queues messages for mining. A
        dry run writes nothing, and returns the same report. Importing twice is importing once.
        """
        options = library.ImportOptions(
            user=user,
            agent=agent,
            store=store,
            namespace=namespace,
            workspace_id=workspace_id,
            human=tuple(human),
            dry_run=dry_run,
            mine=mine,
            limit=limit,
        )
        target = self.for_tier("imported")
        return library.import_files(target, kind, files, options, enabled=enabled)

    def forget_user(
        self,
        user_id: str,
        *,
        mentions: MentionChoice = "report",
        names: Iterable[str] = (),
        receipt: bool = True,
    ) -> ForgetReport:
        """Forget all data of the user *user_id*, in every memory, and the name.

        Texts of others that name the user, by id or one of *names*, are reported; with *mentions*
        "redact" the names in stores and durable entries become `[erased]`, "ignore" does not
        search. The receipt is in the report, and in `hf.erasures`, unless something is pending.
        """
        options = ErasureOptions(mentions=mentions, names=tuple(names), receipt=receipt)
        return library.forget_user(self._context, self.longterm_shared, user_id, options)

    @cached_property
    def erasures(self) -> "library.Erasures":
        """Ledger of erasures: their receipts, and the checks of these."""
        return library.Erasures(self._context)

    @cached_property
    def consolidations(self) -> "library.Consolidations":
        """Jobs that propose changes to memories of users, and decisions on them."""
        return library.Consolidations(self._context, self.longterm_shared)

    @cached_property
    def subjects(self) -> "library.Subjects":
        """Links of objects to the people that they belong to."""
        return library.Subjects(self._context)

    def longterm_people(
        self, prefix: str = "", limit: int | None = 50, page: str | None = None
    ) -> Page[Person]:
        """Return the collections of the users that have a long-term memory, by user.

        Only users with a name that begins with *prefix*.
        """
        refuse_narrowed(self._context, "read")
        engine = self._context.engine
        return memories.list_people(engine, self.workspace, prefix, limit=limit, page=page)

    def activity(
        self,
        types: Iterable[str] | None = None,
        *,
        owner: str | None = None,
        id: str | None = None,
        actor: str | None = None,
        limit: int | None = 50,
        page: str | None = None,
    ) -> Page[Event]:
        """Return stored events of the workspace, newest first, as far as they are kept.

        *types* are types in full, *owner* an agent or a user, *id* any of an event's ids, *actor*
        the id of its author. One call looks at 20,000 stored events at most: a page may have fewer
        than *limit*, or none, and a next page.
        """
        filters = library.EventFilter(types=types, owner=owner, id=id, actor=actor)
        return library.list_events(self._context, filters, limit=limit, page=page)

    def samples(self, days: int = 90) -> "list[library.Sample]":
        """Return the sizes of the workspace on each of the last *days* days, oldest first.

        A server takes them every hour, and stores one row a day, for 400 days.
        """
        return library.list_samples(self._context, self._context.clock.now(), days=days)

    @property
    def _trace_content(self) -> bool:
        return self.opened is not None and self.opened.trace_content

    @property
    def workspace(self) -> str:
        """The workspace of this handle."""
        return self._context.workspace

    @property
    def actor(self) -> Actor:
        """The actor of its writes."""
        return self._context.actor

    def acting(
        self,
        *,
        workspace: str | None = None,
        actor: Actor | None = None,
        session_id: str | None = None,
        through: Callable[[Engine], Engine] | None = None,
    ) -> "Holdfast":
        """Return a handle for another *workspace*, *actor* or session on this engine.

        *through* wraps the scoped engine, for an entry point with awaited writes. Raises
        InvalidInput for an invalid workspace name, and for an agent as the actor.
        """
        context = self._context
        workspace = checked_name("workspace", workspace) if workspace else context.workspace
        engine = self.engine.scoped(Scope(workspace=workspace))
        return Holdfast(
            self.engine,
            StoresContext(
                engine=through(engine) if through else engine,
                workspace=workspace,
                actor=checked_actor(actor or context.actor),
                clock=context.clock,
                ids=context.ids,
                session_id=session_id,
            ),
            root=self._root or self,
            opened=self.opened,
        )

    def for_subject(
        self, user: str, *, fenced: bool = True, since: datetime | None = None
    ) -> "Holdfast":
        """Return this handle for work about the person *user*, as in one conversation.

        Durable entries and versions of memories that it writes are linked to the person, in the
        same transaction. Once the person is erased it refuses them with Forgotten, and turns of
        threads, new runs, and what its long-term memory of the person would store, unless it is
        not *fenced*. The work began at *since*, an aware datetime, or else now. Raises InvalidInput
        for a bad name.
        """
        began = self._context.now() if since is None else to_microseconds(since)
        subject = WriteSubject(user=checked_name("user", user), since=began if fenced else None)
        context = replace(self._context, subject=subject)
        return Holdfast(self.engine, context, root=self._root or self, opened=self.opened)

    def for_tier(self, tier: WriterTier) -> "Holdfast":
        """Return this handle for writes of *tier*, such as `assistant`.

        Tools of agents write so. What it writes to stores and durable memory has this tier, or the
        actor's own if that is lower. Texts that are `outside` or `imported` are held if they give
        orders to a machine. Raises InvalidInput for another tier.
        """
        context = replace(self._context, tier=checked_tier(tier))
        return Holdfast(self.engine, context, root=self._root or self, opened=self.opened)

    def for_session(self, session_id: str) -> "Holdfast":
        """Return this handle narrowed to the stores that *session_id* attaches.

        Access is enforced, and the session is the actor of writes. Raises NotFound, and
        NotAuthenticated if the session is archived.
        """
        session = self.sessions.retrieve(session_id)
        if session.archived_at is not None:
            raise NotAuthenticated
        return self.acting(actor=Actor.session(session_id), session_id=session_id)

    def configure_runs(
        self, *, versions: int | None = None, bytes: int | None = None, ended: int | None = None
    ) -> "memories.RunRoom":
        """Set how much the workspace keeps of its runs; return all limits.

        Past *versions* or *bytes* of one run the oldest versions are folded into one. Past *ended*
        the oldest records of runs that are over are evicted. None leaves a limit as it is.
        """
        refuse_narrowed(self._context, "admin")
        return memories.configure_runs(
            self.runs.context, versions=versions, bytes=bytes, ended=ended
        )

    def backup(self, path: str | Path, *, force: bool = False) -> "library.BackupReport":
        """Write a snapshot of the whole database to one file; see `holdfast backup`."""
        refuse_narrowed(self._context, "admin")
        return library.backup(self.engine, path, force=force)

    def verify(self, *, quick: bool = False) -> "library.VerifyReport":
        """Check the integrity of the whole database; see `holdfast verify`."""
        refuse_narrowed(self._context, "admin")
        return library.verify(self.engine, quick=quick)

    def _threads_context(self) -> "memories.ThreadsContext":
        return memories.ThreadsContext(
            engine=self._context.engine,
            workspace=self.workspace,
            clock=self._context.clock,
            demand=partial(refuse_narrowed, self._context),
            subject=self._context.subject,
        )

    def _every_agent(self, needed: str) -> "memories.AgentContext":
        refuse_narrowed(self._context, needed)
        return self._agent_context(memories.SHARED, EVERY)

    def _agent_context(self, agent: str, reach: str) -> "memories.AgentContext":
        context = self._context
        return memories.AgentContext(
            engine=context.engine.scoped(Scope(workspace=context.workspace, agent=reach)),
            workspace=context.workspace,
            agent=agent,
            actor=context.actor,
            clock=context.clock,
            ids=context.ids,
            subject=context.subject,
            tier=context.tier,
        )

    def close(self) -> None:
        """Finish pending writes and release the database; repeating it does nothing.

        A handle from `acting` or `for_session` shares the database of its origin, and leaves it
        open.
        """
        if self._root is None:
            if self._attachments is not None:
                self._attachments.close()
            if self._longterm is not None:
                self._longterm.close()
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
