"""Blocks for the requests of several hosts, and what is remembered after them.

A block is data: it is put into one request, escaped and within a budget, and enters no transcript.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from threading import Lock
from typing import Any, Final, cast, get_args

from msgspec.structs import replace

from holdfast import LongTermMemory, recalled_block
from holdfast.doors.adapters.tools import blocking_handle, chosen_user, required
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, LongTermOff
from holdfast.ground.events import Event
from holdfast.ground.validation import is_number
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.bridges import NamedStore
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import is_disabled_here
from holdfast.memories.longterm.records import Kind, LongTermOptions, Recalled
from holdfast.tools import durable, files, longterm
from holdfast.tools.base import JSON, Tool

RECALL_MOST: Final = 2.0
"""Seconds that a recall may take; a request goes on without it then."""
BUDGET: Final = 8_192
K_MOST: Final = 100
USERS_CACHED: Final = 1_024
_QUERY_CHARACTERS: Final = 2_048
_KINDS: Final = frozenset(get_args(Kind))
_IMPORTANCE: Final = 0.5
_EXPECTED: Final = frozenset({"role", "blank", "seen"})
"""Reasons to pass over a message that are no loss."""

_log = logging.getLogger(__name__)

User = str | Callable[[Any], str]
"""The name of a user, or a function of the host's context that returns it."""


class UserMemories:
    """Long-term memories by user, and perhaps the durable memory of one agent.

    Naming a user enables long-term memory; HOLDFAST_LTM_ENABLED=0 still disables it, and then
    nothing is recalled or remembered.
    """

    recall_seconds: float = RECALL_MOST

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: User,
        agent: str | Callable[[Any], str] | None = None,
        namespace: str = "chat",
        k: int = 5,
        budget: int = BUDGET,
        embedder: Any = None,
        extractor: Any = None,
        options: LongTermOptions | None = None,
    ) -> None:
        for field, name in (("user", user), ("agent", agent)):
            if not (callable(name) or (field == "agent" and name is None)):
                required(field, name)
        if not 0 <= k <= K_MOST:
            raise InvalidInput("k", f"must be 0 to {K_MOST}", limit=K_MOST, given=k)
        recalled_block((), budget)
        self.hf = blocking_handle(hf)
        self._user, self._agent, self._namespace = user, agent, namespace
        self._k, self._budget = k, budget
        self._models: dict[str, Any] = {
            "embedder": embedder,
            "extractor": extractor,
            "options": options,
        }
        self._lock = Lock()
        self._cache: dict[tuple[str, str], LongTermMemory] = {}
        self.enabled = True
        """Whether long-term memory is enabled, as far as is known."""
        if is_disabled_here():
            self._disable()

    def user(self, context: Any = None) -> str:
        """Return the user of *context*; InvalidInput if none is named."""
        return chosen_user(self._user, context)

    def agent(self, context: Any = None) -> str | None:
        """Return the agent of *context*, None without one; InvalidInput if none is named."""
        if self._agent is None:
            return None
        return required("agent", self._agent(context) if callable(self._agent) else self._agent)

    def longterm(self, user: str, namespace: str | None = None) -> LongTermMemory | None:
        """Return the memory of *user*, None if it is disabled."""
        if is_disabled_here():
            return self._disable()
        key = user, namespace or self._namespace
        with self._lock:
            memory = self._cache.get(key)
        if memory is not None:
            return memory
        # Without the lock: of a server that does not respond, other users do not wait.
        memory = self.hf.longterm(user, namespace=key[1], enabled=True, **self._models)
        if memory is None:
            return self._disable()
        with self._lock:
            if len(self._cache) >= USERS_CACHED:
                self._cache.clear()
            self.enabled = True
            return self._cache.setdefault(key, memory)

    def _disable(self) -> None:
        if self.enabled:
            _log.warning("long-term memory is disabled by HOLDFAST_LTM_ENABLED=0")
        self.enabled = False

    def hydration(self, context: Any = None) -> str:
        """Return what the agent knows, for one request's instructions; "" without one."""
        name = self.agent(context)
        return "" if name is None else self.hf.durable(name).hydrate().render()

    def block(self, user: str, query: str) -> str:
        """Return what is recalled for *query*, as a block; "" if nothing is."""
        if not query.strip():
            return ""
        recalled = _recalls().submit(self._block, user, query)
        try:
            return recalled.result(self.recall_seconds)
        except InvalidInput:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder is the user's, and raises anything
            recalled.cancel()
            return self._without(user, error)

    async def ablock(self, user: str, query: str) -> str:
        """Return the same as `block`, from an event loop."""
        if not query.strip():
            return ""
        recalled: Future[str] = _recalls().submit(self._block, user, query)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(recalled), self.recall_seconds)
        except InvalidInput:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder is the user's, and raises anything
            return self._without(user, error)

    def _without(self, user: str, error: Exception) -> str:
        """Log and publish that a request goes on without a recall, and return no block."""
        reason = type(error).__name__
        _log.warning("a request goes on without what is remembered: %s", reason)
        event = Event(
            type="longterm.degraded",
            at=SystemClock().now(),
            workspace="",
            owner=user,
            data={"reason": reason},
        )
        self.hf.events.publish(event)
        return ""

    def recalled(
        self, user: str, query: str, namespace: str | None = None, *, k: int | None = None
    ) -> list[Recalled]:
        """Return what is remembered for *query*, best first; raise what the recall raises."""
        memory = self.longterm(user, namespace)
        if memory is None or not query.strip():
            return []
        plain = query[:_QUERY_CHARACTERS].encode("utf-8", "replace").decode()
        return memory.recall(plain, self._k if k is None else k)

    def recalled_block(self, user: str, query: str) -> str:
        """Return the same as `block`, and raise what the recall raises."""
        return recalled_block(self.recalled(user, query), self._budget)

    def remember(
        self,
        user: str,
        messages: Iterable[Mapping[str, Any]],
        thread: str | None,
        namespace: str | None = None,
    ) -> None:
        """Record *messages*, each with `role` and `content`, of the conversation *thread*.

        What may not be stored, such as a secret, is logged by the reason.
        """
        memory = self.longterm(user, namespace)
        said = [each for each in messages if each["content"].strip()]
        if memory is None or not said:
            return
        for skipped in memory.remember_conversation(said, thread).skipped:
            if skipped.reason not in _EXPECTED:
                _log.warning("a message was not remembered: %s", skipped.reason)

    def remember_text(
        self, user: str, text: str, about: Mapping[str, Any], namespace: str | None = None
    ) -> None:
        """Remember one *text*, with the `kind` and the `importance` in *about*.

        A kind and an importance that are not valid are those of a plain fact.
        A text that may not be stored is logged by the reason, a secret by its kind.
        """
        memory = self.longterm(user, namespace)
        if memory is None or not text.strip():
            return
        kind, importance = about.get("kind"), about.get("importance")
        done = memory.remember(
            text,
            kind if isinstance(kind, str) and kind in _KINDS else "fact",
            importance if is_number(importance) and 0 <= importance <= 1 else _IMPORTANCE,
        )
        if done.outcome == "secret":
            _log.warning("a secret was not remembered: %s", ", ".join(done.reasons))

    def tools(
        self,
        context: Callable[[], Any] = lambda: None,
        *,
        of_user: bool = True,
        store: str | None = None,
    ) -> list[list[Tool]]:
        """Return the tools of long-term memory, of the agent's memory and of *store*.

        Each call is for the user and the agent of *context*() at that time. *store* is an id, or a
        name that the first file gives to a new store. Without *of_user* those of long-term memory
        are left out.
        """
        unbound = cast("Any", _Unbound())
        toolsets: list[list[Tool]] = []
        if of_user and self.enabled:
            found = partial(self._longterm_tools, context)
            toolsets.append(_for_each_call(longterm(unbound), found))
        if self._agent is not None:
            found = partial(self._durable_tools, context)
            toolsets.append(_for_each_call(durable(unbound), found))
        if store is not None:
            named = NamedStore(self.hf.memory_stores, store)
            toolsets.append(files(self.hf, named.id))
        return toolsets

    def _longterm_tools(self, context: Callable[[], Any]) -> list[Tool]:
        memory = self.longterm(self.user(context()))
        if memory is None:
            raise LongTermOff("server")
        return longterm(memory)

    def _durable_tools(self, context: Callable[[], Any]) -> list[Tool]:
        return durable(self.hf.durable(required("agent", self.agent(context()))))

    def _block(self, user: str, query: str) -> str:
        return self.recalled_block(user, query)


class _Unbound:
    """Stands for a memory where only the definitions of its tools are read."""

    def by_tool(self, _session: object = None) -> "_Unbound":
        return self


def _for_each_call(defined: Sequence[Tool], found: Callable[[], list[Tool]]) -> list[Tool]:
    """Return the tools *defined*, which work as those of their names in *found*()."""

    def work(name: str, arguments: object) -> JSON:
        [tool] = [each for each in found() if each.name == name]
        return tool.work(arguments)

    return [replace(each, work=partial(work, each.name)) for each in defined]


@cache
def _recalls() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(16, thread_name_prefix="holdfast-recall")


def latest(texts: Sequence[str]) -> str:
    """Return the last of *texts* that is not empty, or ""."""
    return next((each for each in reversed(texts) if each.strip()), "")
