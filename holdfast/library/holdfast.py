"""Holdfast: one engine, with the memories on it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.engines.base import Engine
from holdfast.ground.errors import NotAuthenticated
from holdfast.ground.events import EventBus
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor, Scope, checked_actor, checked_name
from holdfast.library.erasure import ForgetReport
from holdfast.library.settings import HandleTarget
from holdfast.memories.durable.records import AgentSummary, DurableLimits, LimitsChanged, Swept
from holdfast.memories.longterm.cache_budget import CACHE_BYTES
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed
from holdfast.memories.stores.stores import MemoryStores

if TYPE_CHECKING:
    from holdfast.library.bridges import Saved
    from holdfast.library.upkeep.backup import BackupReport
    from holdfast.library.upkeep.verify import VerifyReport
    from holdfast.memories.durable.memory import DurableMemory
    from holdfast.memories.longterm.context import Shared
    from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
    from holdfast.memories.run.memory import RunMemory
    from holdfast.memories.run.records.mirror import Attachments
    from holdfast.memories.run.records.runs import Runs
    from holdfast.memories.state.threads import NetworkRuns, Threads
    from holdfast.memories.stores.agents import Agents, Environments
    from holdfast.memories.stores.credentials import Keys
    from holdfast.memories.stores.sessions import Sessions


class Holdfast:
    """All memories of one workspace, accessed by one actor.

    Opened by `holdfast.open()`. As a context manager it closes on every exit.
    """

    def __init__(
        self,
        engine: Engine,
        caller: StoresContext,
        *,
        root: "Holdfast | None" = None,
        opened: HandleTarget | None = None,
    ) -> None:
        self.engine, self._caller, self._root = engine, caller, root
        self.opened = opened
        self._longterm: Shared | None = None
        self._attachments: Attachments | None = None
        self._making = Lock()
        self.events: EventBus = engine.events
        self.memory_stores = MemoryStores(caller)

    @cached_property
    def sessions(self) -> "Sessions":
        """Sessions: the stores that a running agent may access.

        Like the properties below, it is loaded on first use.
        """
        from holdfast.memories.stores.sessions import Sessions

        return Sessions(self._caller)

    @cached_property
    def agents(self) -> "Agents":
        """Agents that sessions refer to."""
        from holdfast.memories.stores.agents import Agents

        return Agents(self._caller)

    @cached_property
    def environments(self) -> "Environments":
        """Environments that sessions refer to."""
        from holdfast.memories.stores.agents import Environments

        return Environments(self._caller)

    @cached_property
    def keys(self) -> "Keys":
        """API keys of a server."""
        from holdfast.memories.stores.credentials import Keys

        return Keys(self._caller)

    @cached_property
    def threads(self) -> "Threads":
        """Threads: messages to networks of agents and their results, over many runs."""
        from holdfast.library.threads import threads

        return threads(self._caller)

    @cached_property
    def network_runs(self) -> "NetworkRuns":
        """Records of network runs."""
        from holdfast.library.threads import network_runs

        return network_runs(self._caller)

    @property
    def run_attachments(self) -> "Attachments":
        """Runs attached through any handle on this engine, in this process."""
        from holdfast.memories.run.records.mirror import Attachments

        if self._root is not None:
            return self._root.run_attachments
        with self._making:
            self._attachments = self._attachments or Attachments()
        return self._attachments

    @cached_property
    def runs(self) -> "Runs":
        """Runs of agents, visible to other clients during and after the run."""
        from holdfast.library.runs import runs

        return runs(self._caller, self.run_attachments)

    def save_run(self, memory: "RunMemory", store_id: str, *, prefix: str = "/runs/") -> "Saved":
        """Save the results of a run's tasks as memories of the store *store_id*.

        The path of each is *prefix*, the run's id and the task's; text is stored as it is, other
        values as JSON. `skipped` lists results that break a limit of the store, with the error.
        """
        from holdfast.library.bridges import save_run

        return save_run(self.memory_stores, memory, store_id, prefix=prefix)

    def durable(self, agent: str) -> "DurableMemory":
        """Return the durable memory of *agent*; InvalidInput for a bad name."""
        from holdfast.library.durable import durable

        return durable(self._caller, agent, trace_content=self._trace_content)

    def durable_agents(
        self, limit: int | None = 100, page: str | None = None
    ) -> Page[AgentSummary]:
        """Return the agents of the workspace that have durable memory, by name."""
        from holdfast.library.durable import durable_agents

        return durable_agents(self._caller, limit, page)

    def durable_limits(self) -> DurableLimits:
        """Return the default limits of the workspace's agents, and of shared entries."""
        from holdfast.library.durable import durable_limits

        return durable_limits(self._caller)

    def set_durable_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits for the whole workspace; None restores the default.

        A cap below the entries of an agent raises MemoryFull with the number to evict; with
        *evict* they are evicted, coldest first.
        """
        from holdfast.library.durable import set_durable_limits

        return set_durable_limits(self._caller, limits, evict=evict)

    def sweep(self) -> Swept:
        """Remove expired entries, lapsed runs and old changes of every agent."""
        from holdfast.library.durable import sweep

        return sweep(self._caller)

    def forget_agent(self, agent: str) -> ForgetReport:
        """Forget all data of *agent*, and its name.

        Its open runs are refused from then on.
        """
        from holdfast.library.durable import forget_agent

        return forget_agent(self._caller, agent)

    @property
    def longterm_shared(self) -> "Shared":
        """State that the long-term memories of all handles on this engine share."""
        from holdfast.memories.longterm.context import Shared

        if self._root is not None:
            return self._root.longterm_shared
        with self._making:
            budget = self.opened.cache_bytes if self.opened else CACHE_BYTES
            self._longterm = self._longterm or Shared(budget)
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
    ) -> "LongTermMemory | None":
        """Return the long-term memory of the user *user_id*; None if it is disabled.

        It is enabled if *enabled* or HOLDFAST_LTM_ENABLED enables it and neither disables it.
        *namespace* and *workspace_id* separate collections of the same user.
        """
        from holdfast.library.longterm import LongTermSpec, longterm

        spec = LongTermSpec(
            user_id=user_id,
            namespace=namespace,
            workspace_id=workspace_id,
            enabled=enabled,
            embedder=embedder,
            extractor=extractor,
            options=options or LongTermOptions(),
        )
        return longterm(self._caller, self.longterm_shared, spec, trace_content=self._trace_content)

    def longterm_data(
        self, user_id: str, *, namespace: str = "chat", workspace_id: str | None = None
    ) -> "LongTermData":
        """Return a user's data to list and to forget, also while memory is disabled."""
        from holdfast.library.longterm import LongTermSpec, longterm_data

        spec = LongTermSpec(user_id=user_id, namespace=namespace, workspace_id=workspace_id)
        return longterm_data(
            self._caller, self.longterm_shared, spec, trace_content=self._trace_content
        )

    def forget_user(self, user_id: str) -> ForgetReport:
        """Forget all data of the user *user_id*, in every collection, and the name."""
        from holdfast.library.longterm import forget_user

        return forget_user(self._caller, self.longterm_shared, user_id)

    @property
    def _trace_content(self) -> bool:
        return self.opened is not None and self.opened.trace_content

    @property
    def workspace(self) -> str:
        """The workspace of this handle."""
        return self._caller.workspace

    @property
    def actor(self) -> Actor:
        """The actor of its writes."""
        return self._caller.actor

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
        caller = self._caller
        workspace = checked_name("workspace", workspace) if workspace else caller.workspace
        engine = self.engine.scoped(Scope(workspace=workspace))
        return Holdfast(
            self.engine,
            StoresContext(
                engine=through(engine) if through else engine,
                workspace=workspace,
                actor=checked_actor(actor or caller.actor),
                clock=caller.clock,
                ids=caller.ids,
                session_id=session_id,
            ),
            root=self._root or self,
            opened=self.opened,
        )

    def for_session(self, session_id: str) -> "Holdfast":
        """Return this handle narrowed to the stores that *session_id* attaches.

        Access is enforced, and the session is the actor of writes. Raises NotFound, and
        NotAuthenticated if the session is archived.
        """
        session = self.sessions.retrieve(session_id)
        if session.archived_at is not None:
            raise NotAuthenticated
        return self.acting(actor=Actor.session(session_id), session_id=session_id)

    def backup(self, path: str | Path, *, force: bool = False) -> "BackupReport":
        """Write a snapshot of the whole database to one file; see `holdfast backup`."""
        from holdfast.library.upkeep.backup import backup

        refuse_narrowed(self._caller, "admin")
        return backup(self.engine, path, force=force)

    def verify(self, *, quick: bool = False) -> "VerifyReport":
        """Check the integrity of the whole database; see `holdfast verify`."""
        from holdfast.library.upkeep.verify import verify

        refuse_narrowed(self._caller, "admin")
        return verify(self.engine, quick=quick)

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
