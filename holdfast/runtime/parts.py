"""What an agent is made of, in all the forms it may be given in, and the names of its tools."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic_ai import Tool as ModelTool
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.toolsets import AbstractToolset

from holdfast.ground.errors import ToolNameTaken
from holdfast.runtime.hooks import AnyRun
from holdfast.tools.base import Tool

AnyTool: TypeAlias = Tool | ModelTool[Any] | Callable[..., Any]
AnyToolset: TypeAlias = AbstractToolset[Any]
AnyModel: TypeAlias = Model | KnownModelName | str
Instructions: TypeAlias = str | Callable[[AnyRun], str | Awaitable[str]]


def name_of(tool: AnyTool) -> str:
    """Return the name a model sees *tool* by."""
    if isinstance(tool, Tool | ModelTool):
        return tool.name
    whole = _whole(tool)
    return getattr(whole, "__name__", type(whole).__name__)


def named(*toolsets: Iterable[AnyTool]) -> dict[str, AnyTool]:
    """Lay *toolsets* side by side by name; ToolNameTaken on a clash."""
    table: dict[str, AnyTool] = {}
    for tools in toolsets:
        for tool in tools:
            name = name_of(tool)
            if name in table:
                raise ToolNameTaken(name, _id_of(table[name]), _id_of(tool))
            table[name] = tool
    return table


def plain_function(function: Any) -> Any:
    """Return the function that *function*, a partial or an object to be called, comes down to."""
    whole = _whole(function)
    return whole if inspect.isroutine(whole) else whole.__call__


def _whole(function: Any) -> Any:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def _id_of(tool: AnyTool) -> str:
    if isinstance(tool, Tool):
        return tool.id
    if isinstance(tool, ModelTool):
        return getattr(cast("ModelTool[Any]", tool).function, "__qualname__", tool.name)
    return getattr(plain_function(tool), "__qualname__", name_of(tool))
