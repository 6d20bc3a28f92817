"""`hf.threads`: what users said to agents and what came of it, over many runs."""

from collections.abc import Iterable

from holdfast.ground.pages import Page
from holdfast.memories.state import thread_store
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import (
    PER_PAGE,
    TURNS_LISTED,
    Appended,
    Thread,
    ThreadsContext,
    ThreadTurn,
    TurnKind,
    list_threads,
    list_turns,
    results_of,
    retrieve_thread,
)
from holdfast.memories.state.thread_store import GivenTurn, delete_thread


class Threads:
    """The threads of a workspace: messages of users and results of agents, in order.

    >>> import holdfast
    >>> threads = holdfast.open(":memory:").threads
    >>> result = holdfast.InferenceResult(agent="writer", input="Hello")
    >>> threads.append("thread_7", [result]).stored == (result.id,)
    True
    >>> [turn.kind for turn in threads.turns("thread_7")]
    ['result']
    """

    def __init__(self, context: ThreadsContext) -> None:
        self._caller = context

    def retrieve(self, id: str) -> Thread:
        """Return the thread; `NotFound` if there is none."""
        self._caller.demand("read")
        return retrieve_thread(self._caller, id)

    def turns(
        self,
        id: str,
        limit: int | None = TURNS_LISTED,
        page: str | None = None,
        *,
        kind: TurnKind | None = None,
        last: int | None = None,
        user: str | None = None,
    ) -> Page[ThreadTurn]:
        """Return a page of the thread's turns, oldest first, of one *kind* or all.

        With *last* the turns are the newest so many, oldest first. A page ends early where turns
        are large. Raise `ScopeDenied` if the thread is not *user*'s.
        """
        self._caller.demand("read")
        return list_turns(self._caller, id, limit, page, kind, last=last, user=user)

    def results(self, id: str) -> list[InferenceResult]:
        """Return all results of the thread, oldest first."""
        self._caller.demand("read")
        return results_of(self._caller, id)

    def append(
        self, id: str, turns: Iterable[GivenTurn], *, user: str | None = None, fence: int = 0
    ) -> Appended:
        """Append *turns*, all or none, one after another; create the thread if needed.

        A new thread is *user*'s, and stays so. A turn that is stored already is skipped. Raise
        `ResultDiffers` if another one has its id, `ScopeDenied` if the thread is not *user*'s.
        With the *fence* of their run raise `StaleRun` once that has another owner.
        """
        self._caller.demand("write")
        return thread_store.append(self._caller, id, turns, user=user, fence=fence)

    def pop(
        self, id: str, kind: TurnKind = "foreign", *, user: str | None = None
    ) -> ThreadTurn | None:
        """Remove the last turn of *kind* for good and return it, or None.

        Raise `ScopeDenied` if the thread is not *user*'s.
        """
        self._caller.demand("write")
        return thread_store.pop(self._caller, id, kind, user=user)

    def delete(self, id: str) -> bool:
        """Delete the thread, its turns and its runs; return whether there was anything."""
        self._caller.demand("write")
        return delete_thread(self._caller, id)

    def list(
        self, limit: int | None = PER_PAGE, page: str | None = None, *, user: str | None = None
    ) -> Page[Thread]:
        """Return a page of the threads, of one *user* or all, newest first."""
        self._caller.demand("read")
        return list_threads(self._caller, limit, page, user)
