"""The tool `memory` on a store, called as our own loops call it."""

from collections.abc import Iterator

import pytest
from contracts.files import FilesContract
from contracts.files_commands import Clear, Run, view

import holdfast
from holdfast.ground.errors import ToolRefused
from holdfast.library.holdfast import Holdfast
from holdfast.tools import Tool, files
from holdfast.tools.base import CALLS
from holdfast.tools.files import clear as clear_files


def call_the_tool(
    hf: Holdfast,
    store_id: str,
    arguments: object,
    /,
    *,
    prefix: str = "/",
    read_only: bool = False,
) -> str:
    [tool] = files(hf, store_id, prefix=prefix, read_only=read_only)
    answer = tool.call(arguments)
    assert isinstance(answer, str)
    return answer


def clear_the_tools_files(
    hf: Holdfast, store_id: str, /, *, prefix: str = "/", read_only: bool = False
) -> str:
    return clear_files(hf, store_id, prefix, read_only=read_only)


class TestTheTool(FilesContract):
    @pytest.fixture
    def run(self) -> Run:
        return call_the_tool

    @pytest.fixture
    def clear(self) -> Clear:
        return clear_the_tools_files


@pytest.fixture
def tool() -> Iterator[Tool]:
    with holdfast.open(":memory:") as hf:
        [tool] = files(hf, hf.memory_stores.create(name="Notes").id)
        yield tool


@pytest.fixture
def read_only_tool() -> Iterator[Tool]:
    with holdfast.open(":memory:") as hf:
        [tool] = files(hf, hf.memory_stores.create(name="Notes").id, read_only=True)
        yield tool


def test_the_tool_is_one_named_memory_with_six_commands(tool: Tool) -> None:
    assert (tool.id, tool.name) == ("files.memory", "memory")
    assert tool.parameters["required"] == ["command"]
    assert tool.parameters["additionalProperties"] is False
    assert tool.parameters["properties"]["command"]["enum"] == [
        "view",
        "create",
        "str_replace",
        "insert",
        "delete",
        "rename",
    ]


def test_a_model_is_told_what_each_parameter_is_for(tool: Tool) -> None:
    assert "/memories" in tool.description
    assert len(tool.parameters["properties"]) == 10
    assert all(len(each["description"]) > 20 for each in tool.parameters["properties"].values())


def test_a_read_only_tool_offers_only_the_view(read_only_tool: Tool) -> None:
    properties = read_only_tool.parameters["properties"]

    assert list(properties) == ["command", "path", "view_range"]
    assert properties["command"]["enum"] == ["view"]


def test_each_call_is_counted_by_its_command(tool: Tool) -> None:
    before = CALLS.numbers()

    tool.call(view("/memories"))
    with pytest.raises(ToolRefused):
        tool.call(view("/memories/no"))
    with pytest.raises(ToolRefused):
        tool.call({"command": "undo"})

    counted = {key: n - before.get(key, 0) for key, n in CALLS.numbers().items()}
    assert counted["memory", "view", "ok"] == 1
    assert counted["memory", "view", "refused"] == 1
    assert counted["memory", "", "refused"] == 1
