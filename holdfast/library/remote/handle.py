"""Remote handle: the methods of Holdfast, its stores and sessions, over HTTP."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NoReturn, Self, cast

from msgspec.structs import replace

from holdfast import library, memories
from holdfast.engines.base import Engine
from holdfast.ground.clock import SystemClock, to_microseconds
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    PathTaken,
    Unsupported,
)
from holdfast.ground.events import Event
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor, WriteSubject, checked_name
from holdfast.ground.trust import WriterTier
from holdfast.library.activity import Sample
from holdfast.library.consolidations import Consolidations
from holdfast.library.erasure.erasures import Erasures
from holdfast.library.erasure.records import ForgetReport, MentionChoice
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import LongTermSpec
from holdfast.library.operations.consolidations import CONSOLIDATIONS
from holdfast.library.operations.durable import FORGET
from holdfast.library.operations.erasures import ERASURES, SUBJECTS
from holdfast.library.operations.sessions import AGENTS, ENVIRONMENTS, KEYS, SESSIONS
from holdfast.library.operations.stores import MEMORIES, MEMORY_STORES, PAST_MEMORIES, VERSIONS
from holdfast.library.operations.workspace import WORKSPACE
from holdfast.library.remote.calls import (
    MemoryRequests,
    RemoteMemory,
    Settle,
    arguments_of,
    decoded,
    identity,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.library.remote.client import Connections, WireClient
from holdfast.library.remote.durable import remote_durable, remote_workspace
from holdfast.library.remote.longterm import longterm, longterm_data
from holdfast.library.remote.runs import RemoteRuns, RemoteThreads
from holdfast.library.remote.streams import RemoteEvents
from holdfast.library.spans import DURABLE, traced
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import AgentSummary, DurableLimits, LimitsChanged, Swept
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Person
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import Deleted, Identity, Memory, MemoryPrefix

_log = logging.getLogger(__name__)

# After a broken connection a write may have been done. A create and a delete are safe to repeat:
# the second response shows the result of the first. The outcome of any other write stays unknown.


def _created(memories: Memories, arguments: Mapping[str, Any]) -> Memory:
    """Create the memory again, or return an equal one of ours at its path."""
    try:
        return perform(memories, "create", arguments)
    except PathTaken as taken:
        place, id = {"memory_store_id": arguments["memory_store_id"]}, taken.conflicting_memory_id
        requests = requests_of(memories)
        found = memories.retrieve(id, **place)
        head = RemoteVersions(requests).retrieve(found.memory_version_id, **place, view="basic")
        same = (found.path, found.content) == (arguments["path"], arguments["content"])
        if not same or head.created_by != identity(requests.client).actor:
            raise
        return memories.retrieve(id, **place, view=arguments["view"] or "basic")


def _deleted(kind: Any) -> Mapping[str, Settle]:
    """Return how to repeat a delete: an object that is not found was deleted before."""

    def settle(memory: object, arguments: Mapping[str, Any]) -> Deleted:
        try:
            return perform(memory, "delete", arguments)
        except NotFound:
            return Deleted(id=next(iter(arguments.values())), type=kind)

    return {"delete": settle}


RemotePastMemories: Final = remote_memory(PAST_MEMORIES)


def _list(self: Memories, *args: Any, **kwargs: Any) -> Page[Memory | MemoryPrefix]:
    arguments = arguments_of(self, "list", *args, **kwargs)
    past = arguments["at"] is not None
    return perform(RemotePastMemories(requests_of(self)) if past else self, "list", arguments)


RemoteMemories: Final = remote_memory(
    MEMORIES, settle={"create": _created, **_deleted("memory_deleted")}, list=_list
)
RemoteVersions: Final = remote_memory(VERSIONS)


class _StoresParts(RemoteMemory):
    def __init__(self, requests: MemoryRequests) -> None:
        super().__init__(requests)
        self.memories, self.memory_versions = RemoteMemories(requests), RemoteVersions(requests)


RemoteMemoryStores: Final = remote_memory(
    MEMORY_STORES, _StoresParts, settle=_deleted("memory_store_deleted")
)
RemoteSessions: Final = remote_memory(SESSIONS, settle=_deleted("session_deleted"))
RemoteAgents: Final = remote_memory(AGENTS)
RemoteEnvironments: Final = remote_memory(ENVIRONMENTS)
RemoteKeys: Final = remote_memory(KEYS)
RemoteWorkspace: Final = remote_memory(WORKSPACE)
RemoteConsolidations: Final = remote_memory(CONSOLIDATIONS, wait=Consolidations.wait)
RemoteErasures: Final = remote_memory(ERASURES, verify=Erasures.verify)
RemoteSubjects: Final = remote_memory(SUBJECTS)


class RemoteHoldfast:
    """All memories of one workspace of a server, accessed with one credential.

    Opened by `holdfast.open("https://…")`, which sends no request: the first call does. Threads
    may share it. As a context manager it closes on every exit.
    """

    def __init__(
        self, client: WireClient, *, on_close: Callable[[], None], trace_content: bool = False
    ) -> None:
        self._client, self._on_close, self._open = client, on_close, True
        self._narrowed: set[RemoteHoldfast] = set()
        self.opened = replace(client.opened, trace_content=trace_content)
        self.events = RemoteEvents(client, SystemClock())
        requests = MemoryRequests(client=client)
        self.memory_stores = RemoteMemoryStores(requests)
        self.sessions = RemoteSessions(requests)
        self.agents = RemoteAgents(requests)
        self.environments = RemoteEnvironments(requests)
        self.keys = RemoteKeys(requests)
        self.threads = RemoteThreads(requests)
        self.runs = RemoteRuns(requests)
        self._workspace = remote_workspace(client)
        self._overview = RemoteWorkspace(requests)
        self.consolidations = RemoteConsolidations(requests)
        self.erasures = RemoteErasures(requests)
        self.subjects = RemoteSubjects(requests)

    @cached_property
    def _identity(self) -> Identity:
        return identity(self._client)

    def save_run(
        self, memory: "memories.RunMemory", store_id: str, *, prefix: str = "/runs/"
    ) -> "library.Saved":
        """Save the results of a run's tasks as memories of the store *store_id*."""
        return library.save_run(self.memory_stores, memory, store_id, prefix=prefix)

    def durable(self, agent: str) -> DurableMemory:
        """Return the durable memory of *agent*; InvalidInput for a bad name."""
        memory = remote_durable(self._client, agent)
        content = self.opened.trace_content
        return traced(memory, DURABLE, store=agent, content=content, remote=True)

    def durable_agents(
        self, limit: int | None = 100, page: str | None = None
    ) -> Page[AgentSummary]:
        """Return the agents of the workspace that have durable memory, by name."""
        return self._workspace.durable_agents(limit, page)

    def durable_limits(self) -> DurableLimits:
        """Return the default limits of the workspace's agents, and of shared entries."""
        return self._workspace.durable_limits()

    def set_durable_limits(self, *, evict: bool = False, **limits: int | None) -> LimitsChanged:
        """Set limits for the whole workspace; None restores the default."""
        return self._workspace.set_durable_limits(evict=evict, **limits)

    def sweep(self) -> Swept:
        """Remove expired entries, lapsed runs and old changes of every agent."""
        return self._workspace.sweep()

    def forget_agent(
        self,
        agent: str,
        *,
        mentions: MentionChoice = "report",
        names: Iterable[str] = (),
        receipt: bool = True,
    ) -> ForgetReport:
        """Forget all data of *agent*, and its name, with a receipt in the ledger.

        Its open runs are refused from then on.
        """
        return self._workspace.forget_agent(agent, mentions=mentions, names=names, receipt=receipt)

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
    ) -> LongTermMemory | None:
        """Return the long-term memory of the user *user_id*; None if it is disabled.

        The server is queried, since it may enable or disable it too. Models are given by name,
        since objects cannot be sent.
        """
        spec = LongTermSpec(
            user_id=user_id,
            namespace=namespace,
            workspace_id=workspace_id,
            enabled=enabled,
            embedder=embedder,
            extractor=extractor,
            options=options or LongTermOptions(),
        )
        return longterm(self._client, spec, trace_content=self.opened.trace_content)

    def longterm_data(
        self, user_id: str, *, namespace: str = "chat", workspace_id: str | None = None
    ) -> LongTermData:
        """Return a user's data to list and to forget, also while memory is disabled."""
        spec = LongTermSpec(user_id=user_id, namespace=namespace, workspace_id=workspace_id)
        return longterm_data(self._client, spec, trace_content=self.opened.trace_content)

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
        """Import *files* which another program exported; they are parsed here."""
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
        return library.import_files(cast("Holdfast", self), kind, files, options, enabled=enabled)

    def forget_user(
        self,
        user_id: str,
        *,
        mentions: MentionChoice = "report",
        names: Iterable[str] = (),
        receipt: bool = True,
    ) -> ForgetReport:
        """Forget all data of the user *user_id*, in every memory, and the name."""
        options = {"mentions": mentions, "names": [*names], "receipt": receipt}
        answer = self._client.write("POST", FORGET.path, {"user": user_id, **options})
        return decoded(FORGET.result.decode, answer)

    def longterm_people(
        self, prefix: str = "", limit: int | None = 50, page: str | None = None
    ) -> Page[Person]:
        """Return the collections of the users that have a long-term memory, by user."""
        return self._overview.longterm_people(prefix, limit, page)

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
        """Return stored events of the workspace, newest first, as far as they are kept."""
        return self._overview.activity(
            types, owner=owner, id=id, actor=actor, limit=limit, page=page
        )

    def samples(self, days: int = 90) -> list[Sample]:
        """Return the sizes of the workspace on each of the last *days* days, oldest first."""
        return self._overview.samples(days)

    @property
    def workspace(self) -> str:
        """The workspace of this handle, requested from the server once."""
        return self._identity.workspace

    @property
    def actor(self) -> Actor:
        """The actor of its writes, requested from the server once."""
        return self._identity.actor

    def acting(
        self,
        *,
        workspace: str | None = None,
        actor: Actor | None = None,
        session_id: str | None = None,
        through: Callable[[Engine], Engine] | None = None,
    ) -> "RemoteHoldfast":
        """Return a handle for another *workspace*, which an open server permits.

        Raises Unsupported for the other arguments: the credential determines the actor, and the
        engine is the server's.
        """
        given = {"actor": actor, "session_id": session_id, "through": through}
        for name, value in given.items():
            if value is not None:
                raise Unsupported(f"{name} over HTTP", next="Open a handle with another api_key.")
        client = self._client.acting(workspace=workspace)
        return RemoteHoldfast(
            client, on_close=client.close, trace_content=self.opened.trace_content
        )

    def for_subject(
        self, user: str, *, fenced: bool = True, since: datetime | None = None
    ) -> "RemoteHoldfast":
        """Return this handle for work about the person *user*, as in one conversation.

        Durable entries and versions of memories that it writes are linked to the person, in the
        same transaction. Once the person is erased it refuses them with Forgotten, and turns of
        threads, new runs, and what its long-term memory of the person would store, unless it is
        not *fenced*. The work began at *since*, or else now by the clock of the server, of which
        that is requested.
        """
        checked_name("user", user)
        began = (since or identity(self._client).at) if fenced else None
        subject = WriteSubject(user=user, since=None if began is None else to_microseconds(began))
        client = self._client.acting(subject=subject)
        return RemoteHoldfast(
            client, on_close=client.close, trace_content=self.opened.trace_content
        )

    def for_tier(self, tier: WriterTier) -> "RemoteHoldfast":
        """Return this handle for writes of *tier*, such as `assistant`.

        Tools of agents write so. What it writes to stores and durable memory has this tier, or the
        credential's own if that is lower. Raises InvalidInput for another tier.
        """
        client = self._client.acting(tier=tier)
        return RemoteHoldfast(
            client, on_close=client.close, trace_content=self.opened.trace_content
        )

    def for_session(self, session_id: str) -> "RemoteHoldfast":
        """Return this handle narrowed to the stores that *session_id* attaches.

        It has the access of each attachment, and a session token of its own, which is revoked
        when it closes. Raises NotFound, and NotAuthenticated if the session is archived.
        """
        try:
            token = self.sessions.create_token(session_id)
        except InvalidInput as archived:
            raise NotAuthenticated from archived
        client = self._client.acting(api_key=token.token)

        def ended() -> None:
            client.close()
            self._narrowed.discard(narrowed)
            try:
                self.sessions.revoke_token(token.id, session_id=session_id)
            except HoldfastError as error:
                # The token ends with its session in any case, so closing does not fail.
                _log.warning("%s was not revoked: %s", token.id, type(error).__name__)

        narrowed = RemoteHoldfast(client, on_close=ended, trace_content=self.opened.trace_content)
        self._narrowed.add(narrowed)
        return narrowed

    # The arguments below are those of the embedded handle's methods.

    def configure_runs(
        self, *, versions: int | None = None, bytes: int | None = None, ended: int | None = None
    ) -> NoReturn:
        """Raise Unsupported: configure the runs of a database on its machine."""
        del versions, bytes, ended
        raise _elsewhere("configure_runs")

    @cached_property
    def canaries(self) -> "memories.Canaries":
        """Canaries: each call raises Unsupported, as they are made where the database is."""
        return memories.Canaries(_no_collection)

    def backup(self, path: str | Path, *, force: bool = False) -> NoReturn:  # noqa: ARG002
        """Raise Unsupported: run a backup on the database's machine."""
        raise _elsewhere("backup")

    def verify(self, *, quick: bool = False) -> NoReturn:  # noqa: ARG002
        """Raise Unsupported: verify a database on its machine."""
        raise _elsewhere("verify")

    def restore(self, path: str | Path) -> NoReturn:  # noqa: ARG002
        """Raise Unsupported: restore a backup on the database's machine."""
        raise _elsewhere("restore")

    def scrub(self) -> NoReturn:
        """Raise Unsupported: the server scrubs by itself after erasures."""
        raise _elsewhere("scrub")

    def doctor(self) -> NoReturn:
        """Raise Unsupported: run the doctor on the database's machine."""
        raise _elsewhere("doctor")

    def close(self) -> None:
        """End subscriptions, revoke tokens of narrowed handles, close connections."""
        if self._open:
            self._open = False
            cast("Any", self.runs).attachments.close()
            for each in tuple(self._narrowed):
                each.close()
            self.events.close()
            self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _no_collection(_user: str) -> NoReturn:
    raise Unsupported("canaries over HTTP", next="Make them where the database is.")


def _elsewhere(feature: str) -> Unsupported:
    return Unsupported(
        f"{feature} over HTTP", next=f"Run holdfast {feature} --db where the database is."
    )


def open_remote(
    url: str,
    *,
    workspace: str = "default",
    actor: Actor | None = None,
    api_key: str | None = None,
    trace_content: bool = False,
) -> Holdfast:
    """Return a handle on the server at *url*; sends no request yet.

    It has the methods of Holdfast.

    A *workspace* other than "default" is sent to the server; otherwise it is the key's own. The
    server determines the actor by *api_key*, so an *actor* here is InvalidInput.
    """
    if actor is not None:
        reason = "is the credential's over HTTP"
        raise InvalidInput("actor", reason, next="Give an api_key instead.")
    connections = Connections(url)
    client = WireClient(connections, api_key=api_key, workspace=workspace)
    handle = RemoteHoldfast(client, on_close=connections.close, trace_content=trace_content)
    return cast("Holdfast", handle)
