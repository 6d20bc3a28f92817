"""The handle on a server has the face of the embedded one, method for method."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.ground.events import EventBus
from holdfast.library import aio
from holdfast.library.bridges import Saved
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import open as open_here
from holdfast.library.remote.durable import RemoteDurable, RemoteDurableRun, RemoteEntries
from holdfast.library.remote.handle import (
    RemoteAgents,
    RemoteEnvironments,
    RemoteHoldfast,
    RemoteKeys,
    RemoteMemories,
    RemoteMemoryStores,
    RemoteSessions,
    RemoteVersions,
)
from holdfast.library.remote.longterm import RemoteLongTermData, RemoteLongTermMemory
from holdfast.library.remote.runs import RemoteRuns, RemoteThreads
from holdfast.library.remote.streams import RemoteEvents
from holdfast.memories.durable.markdown.transfer import Mode
from holdfast.memories.durable.memory import DurableEntries, DurableMemory, DurableRun
from holdfast.memories.durable.write import Promotes
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.runs import Runs
from holdfast.memories.state.threads import Threads
from holdfast.memories.stores.agents import Agents, Environments
from holdfast.memories.stores.credentials import Keys
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.sessions import Sessions
from holdfast.memories.stores.stores import MemoryStores
from holdfast.memories.stores.versions import Versions

PAIRS: list[tuple[type, Any, type]] = [
    (Holdfast, RemoteHoldfast, aio.AsyncHoldfast),
    (MemoryStores, RemoteMemoryStores, aio.AsyncMemoryStores),
    (Memories, RemoteMemories, aio.AsyncMemories),
    (Versions, RemoteVersions, aio.AsyncVersions),
    (Sessions, RemoteSessions, aio.AsyncSessions),
    (Agents, RemoteAgents, aio.AsyncAgents),
    (Environments, RemoteEnvironments, aio.AsyncEnvironments),
    (Keys, RemoteKeys, aio.AsyncKeys),
    (DurableEntries, RemoteEntries, aio.AsyncDurableEntries),
    (DurableMemory, RemoteDurable, aio.AsyncDurableMemory),
    (DurableRun, RemoteDurableRun, aio.AsyncDurableRun),
    (LongTermData, RemoteLongTermData, aio.AsyncLongTermData),
    (LongTermMemory, RemoteLongTermMemory, aio.AsyncLongTermMemory),
    (Runs, RemoteRuns, aio.AsyncRuns),
    (Threads, RemoteThreads, aio.AsyncThreads),
    (EventBus, RemoteEvents, aio.AsyncEvents),
]

ELSEWHERE = {
    # The commands of the same names; a remote handle says where to run them.
    RemoteHoldfast: {"restore", "scrub", "doctor"},
    # An embedded bus ends with its engine.
    RemoteEvents: {"close"},
}
FOR_DOORS = {"acting", "publish", "by_tool"}
READY = {"durable", "longterm_data"}
"""Methods that do no input or output, so that what they return needs no await."""
LATE: dict[str, Any] = {
    "Mode": Mode,
    "Promotes": Promotes,
    "LongTermOptions | None": LongTermOptions | None,
    "RunMemory": RunMemory,
    "memories.RunMemory": RunMemory,
    "Saved": Saved,
}
"""Types that a module of ours names without loading them."""
OF_THE_SAME_FACE: dict[Any, Any] = {}
"""A run or a memory is of the handle that gave it."""


def methods(of: type) -> dict[str, Callable[..., Any]]:
    return {
        name: each
        for name, each in vars(of).items()
        if inspect.isfunction(each) and not name.startswith("_")
    }


def parameters(of: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(of).parameters.values()
    return [each.replace(annotation=LATE.get(each.annotation, each.annotation)) for each in found]


def returned(of: Callable[..., Any]) -> Any:
    return inspect.signature(of, eval_str=True, locals=LATE).return_annotation


@pytest.mark.parametrize(("here", "remote", "_"), PAIRS)
def test_both_have_the_same_methods(here: type, remote: type, _: type) -> None:
    ours = set(methods(here))
    theirs = set(methods(remote)) - ELSEWHERE.get(remote, set())

    assert ours == theirs


@pytest.mark.parametrize(
    ("here", "there"),
    [
        pytest.param(each, methods(remote)[name], id=f"{remote.__name__}.{name}")
        for embedded, remote, _ in PAIRS
        for name, each in methods(embedded).items()
        if name in methods(remote)
    ],
)
def test_a_method_takes_the_same(here: Callable[..., Any], there: Callable[..., Any]) -> None:
    assert parameters(here) == parameters(there)


@pytest.mark.parametrize(
    ("here", "awaitable"),
    [
        pytest.param(each, methods(other).get(name), id=f"{other.__name__}.{name}")
        for embedded, _, other in PAIRS
        for name, each in methods(embedded).items()
        if name not in FOR_DOORS
    ],
)
def test_a_coroutine_takes_the_same(
    here: Callable[..., Any], awaitable: Callable[..., Any]
) -> None:
    assert inspect.iscoroutinefunction(awaitable) == (awaitable.__name__ not in READY)
    assert parameters(here) == parameters(awaitable)


def test_opening_takes_the_same() -> None:
    assert parameters(open_here) == parameters(aio.open)


def test_a_remote_record_is_the_embedded_one() -> None:
    for embedded, remote, _ in PAIRS[1:-1]:
        for name, each in methods(embedded).items():
            kind = returned(each)
            there = returned(methods(remote)[name])
            assert OF_THE_SAME_FACE.get(there, there) == kind, name
