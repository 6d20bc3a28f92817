"""What keeps a conversation between runs: loads a thread's results, and takes in what is new.

A history is an object with any of the methods below, each plain or awaitable: the protocols say
one each, and `History` is whatever has one of them.
"""

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import ThreadMessage

T = TypeVar("T")

Given: TypeAlias = T | Awaitable[T]
Results: TypeAlias = Sequence[InferenceResult | Mapping[str, object]]

METHODS: Final = (
    "create_thread",
    "get",
    "append_user_message",
    "append_results",
    "get_run",
    "start_run",
    "end_run",
)
"""What a history may have."""


class HistoryContext(Struct, frozen=True, kw_only=True):
    """Which thread and run a history is asked about.

    `thread_id` is None until there is one; `network` is None for an agent that runs alone.
    """

    run_id: str
    thread_id: str | None = None
    input: str = ""
    state: NetworkState | None = None
    network: Any = None


@runtime_checkable
class CreatesThreads(Protocol):
    """Names the thread of a run that was given none."""

    def create_thread(self, ctx: HistoryContext) -> Given[str]:
        """Return the id of a new thread; asked once."""
        ...


@runtime_checkable
class GivesResults(Protocol):
    """Knows what came of earlier runs."""

    def get(self, ctx: HistoryContext) -> Given[Results]:
        """Return the thread's results or their dicts, oldest first; [] for an unknown thread.

        Asked once, for a thread that was given and a state that holds nothing yet.
        """
        ...


@runtime_checkable
class TakesUserMessages(Protocol):
    """Keeps what users say."""

    def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> object:
        """Keep what the user said; asked once, after `get`, and not when nothing was said."""
        ...


@runtime_checkable
class TakesResults(Protocol):
    """Keeps what agents make."""

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
        """Keep *results*, which are new; asked after each call of an agent, never with none."""
        ...


@runtime_checkable
class EndsRuns(Protocol):
    """Hears how runs end."""

    def end_run(self, ctx: HistoryContext, summary: RunRecord) -> object:
        """Hear how the run ended: its status, stop reason and usage; asked once."""
        ...


@runtime_checkable
class KeepsRuns(Protocol):
    """Keeps records of runs, so that one which ended is not run again under its id."""

    def get_run(self, ctx: HistoryContext) -> Given[RunRecord | None]:
        """Return the record of the run, or None."""
        ...

    def start_run(self, ctx: HistoryContext, record: RunRecord) -> object:
        """Keep the record of a run that has begun."""
        ...


History: TypeAlias = (
    CreatesThreads | GivesResults | TakesUserMessages | TakesResults | EndsRuns | KeepsRuns
)
"""Any object that has one of these methods, or more."""


async def asked(history: History, method: str, *given: object) -> Any:
    """Return what *method* of *history* gives for *given*; None where it has no such method."""
    found = getattr(history, method, None)
    if found is None:
        return None
    answer = found(*given)
    return await answer if inspect.isawaitable(answer) else answer


def has_any(history: object) -> bool:
    """Tell whether *history* has any of the methods, so that its runs need a thread."""
    return any(getattr(history, method, None) is not None for method in METHODS)
