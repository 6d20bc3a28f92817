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
    """Everything one workspace remembers, seen by one actor.

    Made by `holdfast.open()`. As a context manager it closes on every way out.
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
        """Which stores an agent at work reaches. Loaded, like what follows, when asked for."""
        from holdfast.memories.stores.sessions import Sessions

        return Sessions(self._caller)

    @cached_property
    def agents(self) -> "Agents":
        """The agents that sessions name."""
        from holdfast.memories.stores.agents import Agents

        return Agents(self._caller)

    @cached_property
    def environments(self) -> "Environments":
        """The environments that sessions name."""
        from holdfast.memories.stores.agents import Environments

        return Environments(self._caller)

    @cached_property
    def keys(self) -> "Keys":
        """The keys to a server."""
        from holdfast.memories.stores.credentials import Keys

        return Keys(self._caller)

    @cached_property
    def threads(self) -> "Threads":
        """What was said to networks of agents, and what came of it, over many runs."""
        from holdfast.library.threads import threads

        return threads(self._caller)

    @cached_property
    def network_runs(self) -> "NetworkRuns":
        """The runs of networks, as they were recorded."""
        from holdfast.library.threads import network_runs

        return network_runs(self._caller)

    @property
    def run_attachments(self) -> "Attachments":
        """The runs that are attached through any handle on this engine, in this process."""
        from holdfast.memories.run.records.mirror import Attachments

        if self._root is not None:
            return self._root.run_attachments
        with self._making:
            self._attachments = self._attachments or Attachments()
        return self._attachments

    @cached_property
    def runs(self) -> "Runs":
        """The runs of agents, visible to others while they last and after."""
        from holdfast.library.runs import runs

        return runs(self._caller, self.run_attachments)

    def save_run(self, memory: "RunMemory", store_id: str, *, prefix: str = "/runs/") -> "Saved":
        """Keep what the tasks of a run came to as memories of the store *store_id*.

        Each is at *prefix*, the run's id and the task's: text as it is, other values as JSON. What
        breaks a limit of the store is in `skipped`, with its error.
        """
        from holdfast.library.bridges import save_run

        return save_run(self.memory_stores, memory, store_id, prefix=prefix)

    def durable(self, agent: str) -> "DurableMemory":
        """Return what the agent named *agent* keeps between runs; InvalidInput for a bad name."""
        from holdfast.library.durable import durable

        return durable(self._caller, agent, trace_content=self._trace_content)

    def durable_agents(
        self, limit: int | None = 100, page: str | None = None
    ) -> Page[AgentSummary]:
        """Return the agents of the workspace that have durable memory, by name."""
        from holdfast.library.durable import durable_agents

        return durable_agents(self._caller, limit, page)

    def durable_limits(self) -> DurableLimits:
        """Return the limits of agents that have none of their own, and of what they share."""
        from holdfast.library.durable import durable_limits

        return durable_limits(self._caller)

    def set_durable_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits for the whole workspace; None lets the default apply again.

        A cap below what anybody holds raises MemoryFull, which says how many would go; with
        *evict* they do, coldest first.
        """
        from holdfast.library.durable import set_durable_limits

        return set_durable_limits(self._caller, limits, evict=evict)

    def sweep(self) -> Swept:
        """Remove what is over of every agent: expired entries, runs that lapsed, old changes."""
        from holdfast.library.durable import sweep

        return sweep(self._caller)

    def forget_agent(self, agent: str) -> ForgetReport:
        """Forget all that is *agent*'s, and its name; runs it has open are refused from then on."""
        from holdfast.library.durable import forget_agent

        return forget_agent(self._caller, agent)

    @property
    def longterm_shared(self) -> "Shared":
        """What long-term memories have in common, of all handles on this engine."""
        from holdfast.memories.longterm.context import Shared

        if self._root is not None:
            return self._root.longterm_shared
        with self._making:
            room = self.opened.cache_bytes if self.opened else CACHE_BYTES
            self._longterm = self._longterm or Shared(room)
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
        """Return what is remembered of the user *user_id* across sessions; None where it is off.

        It is on where *enabled* or HOLDFAST_LTM_ENABLED says so, and neither says no. A
        *namespace* or *workspace_id* of the caller's own keeps collections apart.
        """
        from holdfast.library.longterm import LongTermSpec, longterm

        asked = LongTermSpec(
            user_id=user_id,
            namespace=namespace,
            workspace_id=workspace_id,
            enabled=enabled,
            embedder=embedder,
            extractor=extractor,
            options=options or LongTermOptions(),
        )
        return longterm(
            self._caller, self.longterm_shared, asked, trace_content=self._trace_content
        )

    def longterm_data(
        self, user_id: str, *, namespace: str = "chat", workspace_id: str | None = None
    ) -> "LongTermData":
        """Return what is kept of a user, to see and to forget, whatever the switch says."""
        from holdfast.library.longterm import LongTermSpec, longterm_data

        asked = LongTermSpec(user_id=user_id, namespace=namespace, workspace_id=workspace_id)
        return longterm_data(
            self._caller, self.longterm_shared, asked, trace_content=self._trace_content
        )

    def forget_user(self, user_id: str) -> ForgetReport:
        """Forget all that is the user *user_id*'s, in every collection, and the name."""
        from holdfast.library.longterm import forget_user

        return forget_user(self._caller, self.longterm_shared, user_id)

    @property
    def _trace_content(self) -> bool:
        return self.opened is not None and self.opened.trace_content

    @property
    def workspace(self) -> str:
        """The workspace this handle reaches."""
        return self._caller.workspace

    @property
    def actor(self) -> Actor:
        """Who its writes are by."""
        return self._caller.actor

    def acting(
        self,
        *,
        workspace: str | None = None,
        actor: Actor | None = None,
        session_id: str | None = None,
        through: Callable[[Engine], Engine] | None = None,
    ) -> "Holdfast":
        """Return this handle for another *workspace*, *actor* or session, on the same engine.

        *through* wraps the scoped engine, for a door whose writes are awaited. Raises
        InvalidInput for what cannot name a workspace, and for an agent as the actor.
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
        """Return this handle narrowed to what the session *session_id* attaches.

        Access is enforced, and writes are the session's. Raises NotFound, and NotAuthenticated
        when the session is archived.
        """
        session = self.sessions.retrieve(session_id)
        if session.archived_at is not None:
            raise NotAuthenticated
        return self.acting(actor=Actor.session(session_id), session_id=session_id)

    def backup(self, path: str | Path, *, force: bool = False) -> "BackupReport":
        """Write the whole database as it is now to one file; see `holdfast backup`."""
        from holdfast.library.upkeep.backup import backup

        refuse_narrowed(self._caller, "admin")
        return backup(self.engine, path, force=force)

    def verify(self, *, quick: bool = False) -> "VerifyReport":
        """Check that everything is there and what it says; see `holdfast verify`."""
        from holdfast.library.upkeep.verify import verify

        refuse_narrowed(self._caller, "admin")
        return verify(self.engine, quick=quick)

    def close(self) -> None:
        """Finish what waits and let go of the database; again does nothing.

        What `acting` and `for_session` gave shares the database of the handle it came from, and
        leaves it open.
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
