"""The tool `memory` through the anthropic SDK's own tool classes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import BetaMemoryTool20250818ViewCommand
from contracts.files import FilesContract
from contracts.files_commands import Clear, Run, create, view

import holdfast.aio
from holdfast.doors.adapters.anthropic_tool import AsyncHoldfastMemoryTool, HoldfastMemoryTool
from holdfast.ground.errors import InvalidInput, ToolRefused, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import CALLS


def refused_or(act: Callable[[], object]) -> str:
    try:
        said = act()
    except ToolError as error:
        raise ToolRefused(str(error.content)) from error
    assert isinstance(said, str)
    return said


def call_plainly(
    hf: Holdfast,
    store_id: str,
    arguments: object,
    /,
    *,
    prefix: str = "/",
    read_only: bool = False,
) -> str:
    tool = HoldfastMemoryTool(hf, store_id, prefix=prefix, read_only=read_only)
    return refused_or(lambda: tool.call(arguments))


def clear_plainly(
    hf: Holdfast, store_id: str, /, *, prefix: str = "/", read_only: bool = False
) -> str:
    tool = HoldfastMemoryTool(hf, store_id, prefix=prefix, read_only=read_only)
    return refused_or(tool.clear_all_memory)


def call_awaiting(
    hf: Holdfast,
    store_id: str,
    arguments: object,
    /,
    *,
    prefix: str = "/",
    read_only: bool = False,
) -> str:
    tool = AsyncHoldfastMemoryTool(hf, store_id, prefix=prefix, read_only=read_only)
    return refused_or(lambda: anyio.run(tool.call, arguments))


def clear_awaiting(
    hf: Holdfast, store_id: str, /, *, prefix: str = "/", read_only: bool = False
) -> str:
    tool = AsyncHoldfastMemoryTool(hf, store_id, prefix=prefix, read_only=read_only)
    return refused_or(lambda: anyio.run(tool.clear_all_memory))


class TestThroughTheSyncAdapter(FilesContract):
    @pytest.fixture
    def run(self) -> Run:
        return call_plainly

    @pytest.fixture
    def clear(self) -> Clear:
        return clear_plainly


class TestThroughTheAsyncAdapter(FilesContract):
    @pytest.fixture
    def run(self) -> Run:
        return call_awaiting

    @pytest.fixture
    def clear(self) -> Clear:
        return clear_awaiting


@pytest.fixture
def here() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def store_id(here: Holdfast) -> str:
    return here.memory_stores.create(name="Notes").id


def test_they_stand_where_the_sdks_own_classes_stood(here: Holdfast, store_id: str) -> None:
    cache = {"type": "ephemeral", "ttl": "1h"}
    told = {"type": "memory_20250818", "name": "memory"}

    plain, awaiting = HoldfastMemoryTool(here, store_id), AsyncHoldfastMemoryTool(here, store_id)

    assert isinstance(plain, BetaAbstractMemoryTool)
    assert isinstance(awaiting, BetaAsyncAbstractMemoryTool)
    assert plain.name == awaiting.name == "memory"
    assert plain.to_dict() == awaiting.to_dict() == told
    for make in (HoldfastMemoryTool, AsyncHoldfastMemoryTool):
        tool: Any = make(here, store_id, cache_control=cache)  # pyright: ignore[reportArgumentType] - a plain dict, as a user writes it
        assert tool.to_dict() == {**told, "cache_control": cache}


def test_a_subclass_may_step_in_at_a_command(here: Holdfast, store_id: str) -> None:
    class Shouting(HoldfastMemoryTool):
        def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
            return super().view(command).upper()

    assert str(Shouting(here, store_id).call(view("/memories"))).endswith("0B\t/MEMORIES")


def test_a_call_is_counted_once(here: Holdfast, store_id: str) -> None:
    before = CALLS.numbers()
    tool = HoldfastMemoryTool(here, store_id)

    tool.call(view("/memories"))
    with pytest.raises(ToolError):
        tool.call({"command": "view"})

    counted = {key: n - before.get(key, 0) for key, n in CALLS.numbers().items()}
    assert counted["memory", "view", "ok"] == 1
    assert counted["memory", "view", "refused"] == 1


def test_trouble_of_the_engine_is_not_the_models_fault(here: Holdfast, store_id: str) -> None:
    here.close()

    with pytest.raises(Unavailable):
        HoldfastMemoryTool(here, store_id).call(view("/memories"))
    with pytest.raises(Unavailable):
        anyio.run(AsyncHoldfastMemoryTool(here, store_id).call, create("/memories/a.md"))


def test_a_prefix_that_is_no_directory_is_refused_at_once(here: Holdfast, store_id: str) -> None:
    for make in (HoldfastMemoryTool, AsyncHoldfastMemoryTool):
        with pytest.raises(InvalidInput):
            make(here, store_id, prefix="/agents")


def test_many_commands_at_a_time_go_through_an_awaitable_handle() -> None:
    async def scene() -> str:
        hf = await holdfast.aio.open(":memory:")
        store = await hf.memory_stores.create(name="Notes")
        tool = AsyncHoldfastMemoryTool(hf, store.id)
        async with anyio.create_task_group() as tasks:
            for n in range(100):
                tasks.start_soon(tool.call, create(f"/memories/{n:02}.md"))
        said = str(await tool.call(view("/memories")))
        await hf.close()
        return said

    assert anyio.run(scene).count("\n1B\t") == 100


def test_without_the_sdk_the_error_names_it_and_the_command() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    ).stdout

    assert said == "anthropic pip install 'holdfast[anthropic]'\n"


WITHOUT = """
import sys
sys.modules["anthropic"] = sys.modules["anyio"] = None
from holdfast.ground.errors import MissingExtra
try:
    from holdfast.doors.adapters.anthropic_tool import HoldfastMemoryTool
except MissingExtra as error:
    print(error.extra, error.command)
"""
