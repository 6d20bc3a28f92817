"""Our tools as LangChain and LangGraph take them."""

from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from holdfast.doors.adapters.tools import finished, offered, result_of
from holdfast.ground.errors import ToolRefused
from holdfast.tools.base import Tool


def tools_for(*toolsets: Iterable[Tool]) -> list[BaseTool]:
    """Return tools of ours as LangChain takes them; ToolNameTaken if a name repeats."""
    return [_HoldfastTool(each) for each in offered(toolsets)]


class _HoldfastTool(BaseTool):
    """One tool of ours; a mistake of the model reaches it as an error of the tool."""

    _tool: Tool = PrivateAttr()

    def __init__(self, tool: Tool) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            args_schema=tool.parameters,
            handle_tool_error=True,
        )
        self._tool = tool

    def _run(self, /, **arguments: Any) -> str:
        try:
            return result_of(self._tool, arguments)
        except ToolRefused as refused:
            raise ToolException(str(refused)) from refused

    async def _arun(self, /, **arguments: Any) -> str:
        return await finished(lambda: self._run(**arguments))
