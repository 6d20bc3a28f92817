"""Serve one host over standard input and output: `holdfast mcp`."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from mcp.server.stdio import stdio_server

from holdfast.doors.mcp.changes import ChangeHub, events_of, feed_of
from holdfast.doors.mcp.graph_tools import graph_of
from holdfast.doors.mcp.host_tool import encoded
from holdfast.doors.mcp.owners import HostMemories
from holdfast.doors.mcp.server import MemoryServer, host_of
from holdfast.library.graph import export_records, import_lines
from holdfast.library.settings import location

THREADS: Final = 16
"""Calls that run at the same time."""
ENDING: Final = 5.0
"""Seconds that calls in flight have once the host is gone, or on SIGTERM."""
MEMORY_FILE: Final = "MEMORY_FILE_PATH"
"""The environment variable of the reference server: a file that is imported once."""


class Calls:
    """Runs calls on threads, and waits for those in flight at the end."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-mcp")
        self._changed = threading.Condition()
        self._running = 0

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return *work*(), run on a thread; a caller that is cancelled does not stop it."""
        bound = partial(copy_context().run, partial(self._counted, work))
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    def _counted(self, work: Callable[[], Any]) -> Any:
        with self._changed:
            self._running += 1
        try:
            return work()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def finish(self, seconds: float) -> bool:
        """Begin no further call, and wait for those that run; return whether all ended."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, seconds)


def serve(memories: HostMemories, *, remote: bool) -> int:
    """Serve *memories* until standard input ends or SIGTERM; return the exit code."""
    host = host_of(memories)
    _import_once(memories)
    print(_start_line(memories), file=sys.stderr, flush=True)  # noqa: T201
    return asyncio.run(_serve(memories, remote=remote, host=host))


async def _serve(memories: HostMemories, *, remote: bool, host: Any) -> int:
    calls = Calls()
    hub = ChangeHub(events_of(memories.hf) if remote else feed_of(memories.hf), calls.run)
    served = MemoryServer(lambda _: host, calls.run, hub)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    async def talk() -> None:
        async with stdio_server() as (received, sent):
            await served.server.run(received, sent, served.server.create_initialization_options())

    talking = asyncio.ensure_future(talk())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({talking, stopped}, return_when=asyncio.FIRST_COMPLETED)
    hub.close()
    finished = await asyncio.to_thread(calls.finish, ENDING)
    if talking.done():
        stopped.cancel()
        if _all_read(talking) and finished:
            return 0
    # A thread is blocked in reading standard input, or in a call: nothing can end it. Or the host
    # has closed standard output, and flushing it would fail.
    await asyncio.sleep(0)
    memories.hf.close()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(0)


def _all_read(talking: "asyncio.Task[None]") -> bool:
    """Return whether the host read all; raise the error of *talking*, if any."""
    read = True
    try:
        talking.result()
    except* OSError:
        read = False
    return read


def _start_line(memories: HostMemories) -> str:
    owners, parts = memories.owners, list[str]()
    if memories.disabled:
        parts.append("long-term memory is disabled by HOLDFAST_LTM_ENABLED=0")
    elif memories.longterm is not None:
        parts.append(f"remembers for {owners.user}")
    if owners.agent is not None:
        parts.append(f"durable memory of {owners.agent}")
    if memories.store is not None:
        kind = "graph" if owners.profile == "graph" else "notes"
        new = "" if memories.store.id() is not None else " (new)"
        parts.append(f'{kind} in "{memories.store.name}"{new}')
    if owners.read_only:
        parts.append("read only")
    parts.append(location(memories.hf.opened, memories.hf.workspace))
    return f"holdfast mcp: {', '.join(parts)}"


def _import_once(memories: HostMemories) -> None:
    """Import the reference server's file into a graph that has no entity."""
    name = os.environ.get(MEMORY_FILE)
    if memories.owners.profile != "graph" or not name or memories.owners.read_only:
        return
    graph = graph_of(memories)
    if not graph.entities() and Path(name).is_file():
        report = import_file(memories, Path(name))
        print(f"holdfast mcp: imported {name}: {report}", file=sys.stderr)  # noqa: T201


def import_file(memories: HostMemories, path: Path) -> str:
    """Import a file of the reference server; return the counts as JSON."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        report = import_lines(graph_of(memories), lines, _show_progress)
    return msgspec.json.encode(report).decode()


def _show_progress(done: int, of: int) -> None:
    if done < of:
        print(f"holdfast mcp: {done:,} of {of:,} entities", file=sys.stderr)  # noqa: T201


def export_file(memories: HostMemories, path: Path) -> str:
    """Write the graph as a file of the reference server; return the counts as JSON."""
    lines = [encoded(each) for each in export_records(graph_of(memories))]
    partial_file = path.with_name(f".{path.name}.{os.getpid()}")
    partial_file.touch(mode=0o600)
    partial_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    partial_file.replace(path)
    return msgspec.json.encode({"lines": len(lines)}).decode()
