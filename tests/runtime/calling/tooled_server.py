"""An MCP server with a few tools, on its standard streams or, given `http`, on a free port.

It adds its process id to the file named by `STARTED`, and a line for each listing of its tools.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool


def add(number: int, to: int = 1) -> int:
    """Add two numbers."""
    return number + to


def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


def environment(name: str) -> str:
    """Tell a variable of the environment."""
    return os.environ.get(name, "")


def die() -> None:
    """End the server."""
    os._exit(1)


def strange() -> str:
    """Take what nobody can look up."""
    return "never"


def note(line: str) -> None:
    """Write *line* where the test looks."""
    if path := os.environ.get("STARTED"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class Noting(MCPServer[Any]):
    """Says when its tools are listed."""

    async def list_tools(self, *args: Any, **kwargs: Any) -> Any:
        note("listed")
        return await super().list_tools(*args, **kwargs)


def served() -> MCPServer[Any]:
    """Return the server."""
    foreign = {"type": "object", "properties": {"x": {"$ref": "https://example.org/x.json"}}}
    unknown = Tool.from_function(strange).model_copy(update={"parameters": foreign})
    known = [Tool.from_function(each) for each in (add, fail, environment, die)]
    return Noting("tooled", log_level="CRITICAL", tools=[*known, unknown])


async def on_a_port(server: MCPServer[Any]) -> None:
    """Serve on a free port of this machine, and say which."""
    # On standard streams it starts without it.
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = server.streamable_http_app()
        config = uvicorn.Config(app, log_level="error", lifespan="on")
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    note(str(os.getpid()))
    if sys.argv[1:] == ["http"]:
        anyio.run(on_a_port, served())
    else:
        served().run("stdio")
