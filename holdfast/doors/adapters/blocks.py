"""Blocks for a model's request, and what is remembered after it, for several hosts.

A block is data: it is put into one request, escaped and within a budget, and enters no transcript.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any, Final

from holdfast import LongTermMemory, recalled_block
from holdfast.doors.adapters.tools import blocking_handle, chosen_user
from holdfast.ground.errors import HoldfastError
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions

RECALL_MOST: Final = 2.0
"""Seconds that a recall may take; a request goes on without it then."""
BUDGET: Final = 8_192
USERS_CACHED: Final = 1_024
_QUERY_CHARACTERS: Final = 2_048

_log = logging.getLogger(__name__)

User = str | Callable[[Any], str]
"""The name of a user, or a function of the host's context that returns it."""


class UserMemories:
    """Long-term memories by user, and perhaps the durable memory of one agent.

    Naming a user enables long-term memory; HOLDFAST_LTM_ENABLED=0 still disables it, and then
    nothing is recalled or remembered.
    """

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
        if not callable(user):
            chosen_user(user, None)
        self.hf = blocking_handle(hf)
        self._user, self._agent, self._namespace = user, agent, namespace
        self._k, self._budget = k, budget
        self._models = {"embedder": embedder, "extractor": extractor, "options": options}
        self._lock = Lock()
        self._cache: dict[tuple[str, str], LongTermMemory | None] = {}

    def user(self, context: Any = None) -> str:
        """Return the user of *context*; InvalidInput if none is named."""
        return chosen_user(self._user, context)

    def longterm(self, user: str, namespace: str | None = None) -> LongTermMemory | None:
        """Return the memory of *user*, None if it is disabled."""
        key = user, namespace or self._namespace
        with self._lock:
            if key not in self._cache:
                if len(self._cache) >= USERS_CACHED:
                    self._cache.clear()
                self._cache[key] = self.hf.longterm(
                    user, namespace=key[1], enabled=True, **self._models
                )
                if self._cache[key] is None:
                    _log.warning("long-term memory is disabled by HOLDFAST_LTM_ENABLED=0")
            return self._cache[key]

    def hydration(self, context: Any = None) -> str:
        """Return what the agent knows, for the instructions of one request; "" without an agent."""
        if self._agent is None:
            return ""
        name = self._agent(context) if callable(self._agent) else self._agent
        return self.hf.durable(name).hydrate().render()

    def block(self, user: str, query: str) -> str:
        """Return what is recalled for *query*, as a block; "" if nothing fits or recall fails."""
        if not query.strip():
            return ""
        try:
            return _recalls().submit(self._block, user, query).result(RECALL_MOST)
        except (HoldfastError, TimeoutError) as error:
            return _without(error)

    async def ablock(self, user: str, query: str) -> str:
        """Return the same as `block`, from an event loop."""
        if not query.strip():
            return ""
        recalled: Future[str] = _recalls().submit(self._block, user, query)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(recalled), RECALL_MOST)
        except (HoldfastError, TimeoutError) as error:
            return _without(error)

    def remember(
        self, user: str, messages: Iterable[Mapping[str, str]], thread: str | None
    ) -> None:
        """Record *messages*, each with `role` and `content`, of the conversation *thread*."""
        memory, said = self.longterm(user), [each for each in messages if each["content"].strip()]
        if memory is not None and said:
            memory.remember_conversation(said, thread)

    def _block(self, user: str, query: str) -> str:
        memory = self.longterm(user)
        if memory is None:
            return ""
        return recalled_block(memory.recall(query[:_QUERY_CHARACTERS], self._k), self._budget)


@cache
def _recalls() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(16, thread_name_prefix="holdfast-recall")


def _without(error: Exception) -> str:
    _log.warning("a request goes on without what is remembered: %s", type(error).__name__)
    return ""


def latest(texts: Sequence[str]) -> str:
    """Return the last of *texts* that is not empty, or ""."""
    return next((each for each in reversed(texts) if each.strip()), "")
