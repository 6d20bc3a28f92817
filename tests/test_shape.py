"""The shape of the package: past these sizes a reader loses the thread.

Each exception is listed with its reason, and the lists only shrink: one that is no longer needed
fails too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "holdfast").rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef

LONG_MODULES = {
    "holdfast/library/aio.py": "generated, a line for each call there is",
    "holdfast/ground/errors.py": "the tree of errors, which is told in one place",
    "holdfast/testing/contracts/engine.py": "the port's promises, one test each",
}
LONG_FUNCTIONS: dict[str, str] = {}
FILTERS = "the contract's filters, each a word of the wire"
COLUMNS = "the columns of a row, by name"
ENTRY = "what an entry is, and how it is to be written"
MANY_PARAMETERS = {
    "holdfast/runtime/context.py:Context.__init__": "what a run is made of, mostly left out",
    "holdfast/tools/durable.py:Durable.list": FILTERS,
    "holdfast/doors/cli/mount.py:mount": "the command's options",
    "holdfast/doors/cli/durable.py:limits": "the command's options",
    "holdfast/doors/cli/durable.py:list_all": "the command's options",
    "holdfast/doors/cli/longterm.py:list_all": "the command's options",
    "holdfast/doors/cli/longterm.py:recall": "the command's options",
    "holdfast/doors/cli/longterm.py:remember": "the command's options",
    "holdfast/doors/cli/longterm.py:update": "the command's options",
    "holdfast/doors/cli/server.py:serve": "the command's options",
    "holdfast/doors/http/app.py:make_app": "how a server serves, mostly left out",
    "holdfast/doors/http/server.py:serve": "the command's options",
    "holdfast/doors/mount/filesystem/filesystem.py:Core.__init__": "what a mount is handed",
    "holdfast/library/aio.py:open": "the mirror of `open`",
    "holdfast/library/aio.py:AsyncDurableMemory.list": FILTERS,
    "holdfast/library/aio.py:AsyncDurableMemory.set": ENTRY,
    "holdfast/library/aio.py:AsyncDurableRun.list": FILTERS,
    "holdfast/library/aio.py:AsyncDurableRun.set": ENTRY,
    "holdfast/library/aio.py:AsyncHoldfast.longterm": "the mirror of `longterm`",
    "holdfast/library/aio.py:AsyncLongTermMemory.recall": FILTERS,
    "holdfast/library/aio.py:AsyncRuns.entries": FILTERS,
    "holdfast/library/aio.py:AsyncSessions.create": FILTERS,
    "holdfast/library/aio.py:AsyncSessions.list": FILTERS,
    "holdfast/library/aio.py:AsyncVersions.list": FILTERS,
    "holdfast/library/holdfast.py:Holdfast.longterm": "how a memory is opened, mostly left out",
    "holdfast/library/open.py:open": "what a handle is opened with, all but one left out",
    "holdfast/library/remote.py:RemoteHoldfast.longterm": "whose memory, and how it is to be",
    "holdfast/library/remote_durable.py:RemoteDurable.list": FILTERS,
    "holdfast/library/remote_durable.py:RemoteDurable.set": ENTRY,
    "holdfast/library/remote_durable_run.py:RemoteDurableRun.list": FILTERS,
    "holdfast/library/remote_durable_run.py:RemoteDurableRun.set": ENTRY,
    "holdfast/library/remote_longterm.py:RemoteLongTermMemory.recall": FILTERS,
    "holdfast/library/remote_memories.py:RemoteVersions.list": FILTERS,
    "holdfast/library/remote_runs.py:RemoteRuns.entries": FILTERS,
    "holdfast/library/remote_sessions.py:RemoteSessions.create": FILTERS,
    "holdfast/library/remote_sessions.py:RemoteSessions.list": FILTERS,
    "holdfast/memories/durable/memory.py:DurableMemory.list": FILTERS,
    "holdfast/memories/durable/memory.py:DurableMemory.set": ENTRY,
    "holdfast/memories/durable/runs.py:DurableRun.list": FILTERS,
    "holdfast/memories/durable/runs.py:DurableRun.set": ENTRY,
    "holdfast/memories/longterm/memory.py:LongTermMemory.recall": FILTERS,
    "holdfast/memories/run/entries.py:Kept.put": ENTRY,
    "holdfast/memories/run/memory.py:RunMemory.set": ENTRY,
    "holdfast/memories/run/records/runs.py:Runs.entries": FILTERS,
    "holdfast/memories/state/state.py:NetworkState.__init__": "what a state may begin with",
    "holdfast/runtime/mcp.py:McpServer.__init__": "how a server is reached",
    "holdfast/memories/stores/transaction.py:link": "what a link is made of",
    "holdfast/memories/stores/rows.py:memory_of": COLUMNS,
    "holdfast/memories/stores/rows.py:store_of": COLUMNS,
    "holdfast/memories/stores/rows.py:version_of": COLUMNS,
    "holdfast/memories/stores/sessions.py:Sessions.create": FILTERS,
    "holdfast/memories/stores/sessions.py:Sessions.list": FILTERS,
    "holdfast/memories/stores/versions.py:Versions.list": FILTERS,
    "holdfast/runtime/networks/network.py:Network.__init__": "what a network is given, by name",
    "holdfast/runtime/plans/executor.py:ParallelTaskExecutor.__init__": "what a plan is given",
    "holdfast/runtime/plans/planner.py:TaskPlanner.__init__": "what a planner is given, by name",
    "holdfast/runtime/plans/executor.py:TaskExecutor.__init__": "what a task is given, by name",
    "holdfast/runtime/team/board.py:TaskBoard.create": "what a task is",
    "holdfast/runtime/team/bus.py:MessageBus.send": "what a message is",
    "holdfast/runtime/team/executor.py:TeamExecutor.__init__": "what a team is given, by name",
}
MANY_METHODS = {
    "holdfast/runtime/context.py:Context": "a run, asked by all that is in it",
    "holdfast/runtime/team/board.py:TaskBoard": "the face of one board, whole",
    "holdfast/doors/mount/fuse/kernel.py:Operations": "what a file system is asked, one each",
    "holdfast/engines/postgres/engine.py:PostgresEngine": "the port, and what tests count",
    "holdfast/engines/sqlite/engine.py:SQLiteEngine": "the port, and what tests count",
    "holdfast/library/holdfast.py:Holdfast": "the face of all that there is",
    "holdfast/library/aio.py:AsyncHoldfast": "the face of all that there is",
    "holdfast/library/aio.py:AsyncDurableMemory": "the face of one memory, whole",
    "holdfast/library/remote.py:RemoteHoldfast": "the face of a handle, whole",
    "holdfast/library/remote_durable.py:RemoteDurable": "the face of one memory, whole",
    "holdfast/memories/durable/memory.py:DurableMemory": "the face of one memory, whole",
    "holdfast/memories/run/memory.py:RunMemory": "the face of one memory, whole",
    "holdfast/runtime/networks/run.py:NetworkRun": "the face of one run, whole",
    "holdfast/memories/longterm/transaction.py:CollectionTransaction": "the face of one collection",
    "holdfast/memories/state/state.py:NetworkState": "the face of one memory, whole",
    "holdfast/memories/state/cells.py:Store": "the state of one network, asked from all sides",
    "holdfast/engines/sqlite/transaction.py:SQLiteTransaction": "the port, and what groups ask",
    "holdfast/engines/sqlite/database.py:Database": "the state of one file, asked from all sides",
}


def name(module: Path) -> str:
    return module.relative_to(ROOT).as_posix()


def functions(module: Path) -> Iterator[tuple[str, Function]]:
    """Give each function of *module* under `path:Class.name`."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                yield f"{name(module)}:{owner}{child.name}", child


def lines(function: Function) -> int:
    """Return how long *function* is without its docstring and its parameters."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def parameters(function: Function) -> int:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([each for each in every if each.arg not in ("self", "cls")])


def public_methods(node: ast.ClassDef) -> int:
    return sum(
        isinstance(child, Function) and not child.name.startswith("_") for child in node.body
    )


def test_no_module_is_longer_than_one_sitting() -> None:
    long = {name(module) for module in MODULES if len(module.read_text().splitlines()) > 400}

    assert long == set(LONG_MODULES)


def test_a_function_fits_a_screen() -> None:
    long = {
        where for module in MODULES for where, function in functions(module) if lines(function) > 40
    }

    assert long == set(LONG_FUNCTIONS)


def test_what_travels_together_is_one_value() -> None:
    many = {
        where
        for module in MODULES
        for where, function in functions(module)
        if parameters(function) > 6 and "/testing/" not in where
    }

    assert many == set(MANY_PARAMETERS)


def test_a_class_has_no_more_methods_than_people_remember() -> None:
    many = {
        f"{name(module)}:{node.name}"
        for module in MODULES
        if "/testing/" not in name(module)
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and public_methods(node) > 12
    }

    assert many == set(MANY_METHODS)


@pytest.mark.parametrize("module", [m for m in MODULES if m.name == "__init__.py"], ids=name)
def test_a_table_of_contents_is_no_chapter(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))

    assert not any(isinstance(node, Function | ast.ClassDef) for node in ast.walk(tree))


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_a_module_says_why_it_exists(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
