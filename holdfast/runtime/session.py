"""A conversation of a user with an agent, with memory.

Before a turn, the agent gets its durable memory and recalled items about the user; after it, the
conversation is remembered. A failure of a memory never prevents a turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from holdfast import library, tools
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON
from holdfast.memories import durable as durable_memory
from holdfast.memories import longterm as longterm_memory
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.longterm.recall.block import BUDGET, recalled_block, without_blocks
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.state import history as messages
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import checked_id_or_none
from holdfast.memories.stores.session_input import store_note
from holdfast.runtime.agent import AgentHooks, AgentStart, AnyModel, UserMessage
from holdfast.runtime.concurrency import awaited, described
from holdfast.runtime.events import SessionEvent, SessionEventType
from holdfast.runtime.history import Discreet, EngineHistory, History
from holdfast.runtime.inference.agent import Agent, AgentRunOptions, run_alone, stream_alone
from holdfast.runtime.persistence import SessionPersistence

# A conversation without memory is worth more than none. So only a mistake in the arguments stops
# one here.

T = TypeVar("T")

FILES_ROOT: Final = "/memories"
"""Directory of the store's files, as the tool `memory` shows them."""
RECALL_SECONDS: Final = 2.0
"""Time limit of recall before a turn."""
NAMED: Final = 100
"""Entries of durable memory that a result names, and as many that were left out."""
FLUSH_SECONDS: Final = 2.0
"""Time limit of mining at close."""
UNAVAILABLE: Final = '<durable_memory unavailable="true"/>'
"""Seconds that a turn waits for recall."""


class SessionEvents:
    """The events of a session, in the order they happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: list[SessionEvent] = []

    def tell(self, type: SessionEventType, **data: object) -> None:
        """Add an event of *type*."""
        self.events.append(SessionEvent(type=type, at=self._clock.now(), data=data))

    def tell_failed(self, what: str, error: BaseException) -> None:
        """Add an event for the *error* of *what*."""
        self.tell("failed", what=what, error=type(error).__name__, message=described(error))


class Durably:
    """The durable run of a session: open, hydrate, close."""

    def __init__(self, events: SessionEvents) -> None:
        self._events = events
        self.run: durable_memory.DurableRun | None = None

    @property
    def hydration(self) -> Hydration | None:
        """The hydration; None if it failed."""
        return self.run.hydration if self.run else None

    @property
    def system_text(self) -> str:
        """The part of every turn's system text about durable memory."""
        return self.run.hydration.render() if self.run else UNAVAILABLE

    @property
    def given(self) -> dict[str, JSON] | None:
        """What the system text holds of it, in ids and numbers; None for nothing."""
        seen = self.hydration
        if seen is None or not (seen.entries or seen.omitted):
            return None
        omitted: list[JSON] = [
            {"id": each.id, "reason": each.reason} for each in seen.omitted[:NAMED]
        ]
        more = max(0, len(seen.entries) - NAMED) + len(seen.omitted) - len(omitted)
        return {
            "digest": seen.digest,
            "seq": seen.seq,
            "budget": seen.budget,
            "entries": [each.id for each in seen.entries[:NAMED]],
            "omitted": omitted,
            **({"more": more} if more else {}),
        }

    def open(self, memory: "durable_memory.DurableMemory", lane: str) -> None:
        """Begin a run of *memory* in *lane*; raise InvalidInput for invalid arguments."""
        try:
            self.run = memory.run(lane=lane)
        except InvalidInput:
            raise
        except HoldfastError as error:
            self._events.tell_failed("hydrate", error)
            return
        seen = self.run.hydration
        self._events.tell(
            "hydrated",
            run_id=self.run.run_id,
            entries=[each.key for each in seen.entries],
            size_bytes=seen.size_bytes,
            digest=seen.digest,
        )
        if seen.omitted:
            names = ("key", "category", "size_bytes", "reason")
            omitted = [{name: getattr(each, name) for name in names} for each in seen.omitted]
            self._events.tell("omitted", entries=omitted)

    def close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the run, as failed if an exception was raised."""
        if self.run is None:
            return
        try:
            self.run.__exit__(kind, error, trace)
        except HoldfastError as failure:
            self._events.tell_failed("close", failure)


class Recalling:
    """The long-term memory of a session, if any: recall before a turn, store after."""

    def __init__(self, events: SessionEvents, *, k: int, budget: int, thread_id: str) -> None:
        recalled_block((), budget)
        self.trust = SessionTrust(thread_id)
        self._events, self._k, self._budget = events, k, budget
        self.memory: longterm_memory.LongTermMemory | None = None
        self.given: dict[str, JSON] = {}
        """What the block of this turn holds, in ids and numbers."""
        self._is_echo = False

    def veto(self) -> None:
        """Use no memory in this session, whatever else is set."""
        self._events.tell("longterm_off", reason="vetoed")

    def open(self, find: "Callable[[], longterm_memory.LongTermMemory | None] | None") -> None:
        """Use the memory that *find* returns; *find* is None if no user was named."""
        if find is None:
            return self._events.tell("longterm_off", reason="no user was named")
        try:
            self.memory = find()
        except InvalidInput:
            raise
        except HoldfastError as error:
            return self._events.tell_failed("longterm", error)
        if self.memory is None:
            self._events.tell("longterm_off", reason="it is not switched on")
        return None

    async def block(self, text: str) -> str:
        """Return what is recalled for *text* as a block for the prompt; "" for nothing."""
        memory, query = self.memory, without_blocks(text).strip()
        self._is_echo = self.trust.is_echo(query, of_user=True)
        self.trust.add_said("" if self._is_echo else query)
        self.given = {"recalled": [], "left_out": 0}
        if memory is None or not query:
            return ""
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                found = await asyncio.to_thread(memory.recall, query, self._k)
            shown = recalled_block(found, self._budget)
        except TimeoutError:
            late = TimeoutError(f"nothing came within {RECALL_SECONDS:g} s")
            self._events.tell_failed("recall", late)
            return ""
        except Exception as error:  # noqa: BLE001 - an embedder is the user's, and raises anything
            self._events.tell_failed("recall", error)
            return ""
        lines = sum(line.startswith("- ") for line in shown.splitlines())
        # The block leaves out the lowest scores.
        best = sorted(found, key=lambda each: -each.score)[:lines]
        recalled: list[JSON] = [{"id": each.id, "score": round(each.score, 4)} for each in best]
        left_out = len(found) - lines
        self.given = {"recalled": recalled, "left_out": left_out}
        self.trust.add_recalled((each.text, each.tier) for each in found)
        self._events.tell("recalled", ids=[each.id for each in found], left_out=left_out)
        return shown

    async def take(self, said: str, answer: str, *, thread_id: str) -> None:
        """Remember the exchange of the user's *said* and the agent's *answer*."""
        memory = self.memory
        if memory is None:
            return
        echoes = self._is_echo, self.trust.is_echo(answer)
        turns = [
            {"role": role, "content": text, "held": "echo" if echo else None}
            for role, text, echo in zip(("user", "assistant"), (said, answer), echoes, strict=True)
        ]
        try:
            recorded = await asyncio.to_thread(memory.remember_conversation, turns, thread_id)
        except HoldfastError as error:
            self._events.tell_failed("remember", error)
            return
        self._events.tell(
            "stored",
            turns=[each.id for each in recorded.turns],
            skipped=[{"index": each.index, "reason": each.reason} for each in recorded.skipped],
            queued=recorded.queued,
            evicted=list(recorded.evicted),
        )

    def close(self) -> None:
        """Wait for mining up to its time limit, and emit the outcome."""
        if self.memory is None:
            return
        try:
            flushed = self.memory.flush(timeout=FLUSH_SECONDS)
        except HoldfastError as error:
            self._events.tell_failed("flush", error)
            return
        self._events.tell(
            "mined",
            items=[
                each.stored.id
                for each in flushed.results
                if each.stored and each.stored.held is None
            ],
            outcomes=[each.outcome for each in flushed.results],
            done=flushed.done,
            pending=flushed.pending,
            failed=flushed.failed,
        )


RECALLED: Final = 5
"""Default number of items and turns recalled before a turn."""

_ids: Final = Ids()


@dataclass(eq=False)
class Session:
    """A conversation of *user* with *agent*, with memories in *hf*.

    It is an async context manager. *id* names its thread and its lane of the durable memory of
    *agent_id*, which is the agent's name unless given. Its thread, its runs, and what its tools
    write to durable memory and the store are linked to *user*, and erased with them. *longterm*
    replaces the user's memory of *namespace*; False is a veto: nothing is recalled or recorded,
    whatever else is set. *extractor* mines its turns. With *auto_persist* the runs that its agent
    starts are recorded too. With *store* the agent has the files of that store. `send` takes a
    turn; `events` lists what the memories did, `last` is the last result.

    >>> import asyncio, holdfast
    >>> from holdfast.testing.scripted import ScriptedModel
    >>> ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Hello."]))
    >>> async def talk() -> str:
    ...     with holdfast.open(":memory:") as hf:
    ...         async with Session(ada, hf=hf) as session:
    ...             return (await session.send("Hi?")).text
    >>> asyncio.run(talk())
    'Hello.'
    """

    agent: Agent
    _: KW_ONLY
    hf: "library.Holdfast"
    id: str | None = None
    user: str | None = None
    namespace: str = "chat"
    agent_id: str | None = None
    model: AnyModel | None = None
    history: History | None = None
    longterm: "longterm_memory.LongTermMemory | Literal[False] | None" = None
    extractor: Any = UNSET
    auto_persist: bool = False
    store: str | None = None
    recall_k: int = RECALLED
    block_budget: int = BUDGET
    clock: Clock = field(default_factory=SystemClock)
    last: InferenceResult | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.longterm not in (None, False) and self.extractor is not UNSET:
            reason = "cannot be given beside a memory, which has its own"
            raise InvalidInput("extractor", reason, next="Give it where the memory is opened.")
        at = to_microseconds(self.clock.now())
        self.thread_id: str = checked_id_or_none("id", self.id) or _ids.new("thread", at)
        self.id = self.thread_id
        self._events = SessionEvents(self.clock)
        self._durably = Durably(self._events)
        self._recalling = Recalling(
            self._events, k=self.recall_k, budget=self.block_budget, thread_id=self.thread_id
        )
        self._equipped: Agent | None = None
        self._about = self.hf
        self._block = self._store_note = ""
        self._turn = asyncio.Lock()

    @property
    def events(self) -> Sequence[SessionEvent]:
        """The events of the session so far, oldest first."""
        return tuple(self._events.events)

    @property
    def hydration(self) -> Hydration | None:
        """The agent's hydrated durable memory; None before opening or after a failure."""
        return self._durably.hydration

    async def __aenter__(self) -> Self:
        if self._equipped is not None:
            raise InvalidInput("session", "is open already", next="Make another.")
        self._equipped = await asyncio.to_thread(self._opened)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._equipped = None
        await asyncio.to_thread(self._durably.close, kind, error, trace)
        await asyncio.to_thread(self._recalling.close)

    async def send(self, text: str) -> InferenceResult:
        """Take a turn: return the agent's result for *text*; raise RunFailed if it failed."""
        agent = self._agent()
        async with self._turn:
            options = await self._begin(text)
            try:
                result = await run_alone(agent, self._message(text), options)
            finally:
                self._keep(options)
            await self._recalling.take(text, result.text, thread_id=self.thread_id)
            return result

    async def stream(self, text: str) -> AsyncGenerator[RunEvent]:
        """Take a turn and yield its events as they happen; leaving early cancels it.

        RunFailed is raised after the last event, if it failed.
        """
        agent = self._agent()
        async with self._turn:
            options = await self._begin(text)
            try:
                async with aclosing(stream_alone(agent, self._message(text), options)) as events:
                    async for event in events:
                        if event.type == "run.completed":
                            # Before the last event, after which the reader may have left.
                            self._keep(options)
                            await self._take(text)
                        yield event
            finally:
                self._keep(options)

    def _agent(self) -> Agent:
        if self._equipped is None:
            raise InvalidInput("session", "is not open", next="Use it in `async with`.")
        return self._equipped

    def _opened(self) -> Agent:
        """Open the memories and return the agent equipped with them."""
        self._about = self.hf if self.user is None else self.hf.for_subject(self.user)
        memory = self._about.durable(self.agent_id or self.agent.name)
        if self.longterm is False:
            self._recalling.veto()
        else:
            self._recalling.open(self._finder())
        self._store_note = self._noted()
        self._durably.open(memory, self.thread_id)
        try:
            return self._equip(self._durably.run or memory)
        except BaseException as error:
            self._durably.close(type(error), error, error.__traceback__)
            raise

    def _equip(self, durable: "durable_memory.DurableMemory | durable_memory.DurableRun") -> Agent:
        equipment = [
            *tools.durable(durable),
            *tools.longterm(self._recalling.memory, session=self._recalling.trust),
            *(tools.files(self._about, self.store) if self.store is not None else ()),
        ]
        history = (
            self.history
            or self.agent.history
            or EngineHistory(self._about, user=self.user, clock=self.clock)
        )
        return self.agent.replace(
            tools=[*self.agent.tools, *equipment],
            hooks=self._hooks(),
            history=Discreet(history, lambda: self._system_text, self._given),
        )

    @property
    def _system_text(self) -> str:
        """The part of every turn's system text about memory."""
        return "\n\n".join(filter(None, (self._durably.system_text, self._store_note)))

    def _noted(self) -> str:
        """Return what the agent is to know of its store; "" without one."""
        if self.store is None:
            return ""
        try:
            store, actor = self.hf.memory_stores.retrieve(self.store), self.hf.actor
            access = "read_write" if store.archived_at is None else "read_only"
            if actor.kind == "session":
                access = self.hf.sessions.resource(actor.id, self.store).access
        except HoldfastError as error:
            self._events.tell_failed("store", error)
            return ""
        return store_note(store.name, store.description, access=access, place=FILES_ROOT)

    def _given(self) -> dict[str, JSON]:
        """Return what the prompt of this turn held from memory, to store with its result."""
        on, hydration = self._recalling.memory is not None, self._durably.given
        given: dict[str, JSON] = {"enabled": on}
        if hydration is not None:
            given["hydration"] = hydration
        return {"memory": {**given, **(self._recalling.given if on else {})}}

    def _finder(self) -> Any:
        """Return the function that opens the user's memory; None without a user."""
        given, user = self.longterm, self.user
        if given is not None:
            return lambda: given
        if user is None:
            return None
        extractor = None if self.extractor is UNSET else self.extractor
        return lambda: self._about.longterm(user, namespace=self.namespace, extractor=extractor)

    def _hooks(self) -> AgentHooks | None:
        if self._recalling.memory is None:
            return self.agent.hooks
        return replace(self.agent.hooks or AgentHooks(), on_start=self._start)

    async def _start(self, start: AgentStart) -> Any:
        """Insert the recalled block before the user's message, in the request only."""
        if self._block:
            block = messages.system(self._block)
            start = replace(start, history=(*start.history, block))
        theirs = self.agent.hooks.on_start if self.agent.hooks else None
        answer = await awaited(theirs(start)) if theirs else None
        if answer is None:
            return start
        return {"history": start.history, **answer} if isinstance(answer, dict) else answer

    async def _begin(self, text: str) -> AgentRunOptions:
        self._block = await self._recalling.block(text)
        return AgentRunOptions(
            model=self.model,
            state=NetworkState(clock=self.clock),
            thread_id=self.thread_id,
            run_id=_ids.new("run", to_microseconds(self.clock.now())),
            kind="session",
            user=self.user,
            session=SessionPersistence(
                user=self.user,
                memory=self._recalling.memory,
                on=self.auto_persist,
                vetoed=self.longterm is False,
            ),
        )

    def _message(self, text: str) -> UserMessage:
        return UserMessage(text, system_prompt=self._system_text or None)

    def _keep(self, options: AgentRunOptions) -> None:
        """Set `last` to the result of the turn, also of one cut short, if there is one."""
        state: NetworkState = options.state
        made = [each for each in state.results if each.run_id == options.run_id]
        self.last = made[-1] if made else self.last

    async def _take(self, text: str) -> None:
        if self.last is not None:
            await self._recalling.take(text, self.last.text, thread_id=self.thread_id)
