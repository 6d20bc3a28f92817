"""Count the modules, functions and frames of the package that one operation passes through.

    python tests/architecture/flows.py NAME…     count flows, and print the counts of each as JSON

Each flow is counted in a forked process of its own, because a profile function reaches only the
threads that start after it was set, and because what another flow left behind would be counted too.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple, Protocol
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[2]
# The package beside the tests, whichever is installed.
sys.path.insert(0, str(ROOT))

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.runtime import Context, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.testing import ScriptedModel, call
from holdfast.testing.serving import serving

PACKAGE = f"{Path(holdfast.__file__).parent}/"
TESTING = f"{PACKAGE}testing/"
INLINED = {"<listcomp>", "<setcomp>", "<dictcomp>"}
TIMES = 5
"""Counted operations of one flow."""
WRITES = 100
"""Counted writes: after a commit a thread works on, and most of them meet it."""

Functions = frozenset[tuple[str, int, str]]
"""Functions by file, line and name."""


class Flow(NamedTuple):
    """What one operation passes through, and the most frames on one stack."""

    functions: Functions
    depth: int


class Counts(NamedTuple):
    """What every one of several operations passes through, and the least depth."""

    modules: int
    functions: int
    depth: int


class Counting(Protocol):
    """Counts between `begin` and `end`."""

    def begin(self) -> None:
        """Count from now on, from 0."""
        ...

    def end(self) -> Flow:
        """Stop counting, and return what was counted."""
        ...


def is_ours(frame: FrameType) -> bool:
    """Return whether *frame* runs code of the package, its test support apart.

    Comprehensions do not count: since Python 3.12 they have no frame of their own.
    """
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    return path.startswith(PACKAGE) and not path.startswith(TESTING) and name not in INLINED


class Recorder:
    """Records the calls of our functions on every thread that starts after it."""

    def __init__(self) -> None:
        self._functions: set[tuple[str, int, str]] = set()
        self._depth, self._active = 0, False
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if not self._active or event != "call" or not is_ours(frame):
            return
        code = frame.f_code
        self._functions.add((code.co_filename, code.co_firstlineno, code.co_name))
        depth, each = 1, frame.f_back
        while each is not None:
            depth += is_ours(each)
            each = each.f_back
        self._depth = max(self._depth, depth)

    def begin(self) -> None:
        """Count from now on, from 0."""
        self._functions, self._depth, self._active = set(), 0, True

    def end(self) -> Flow:
        """Stop counting, and return what was counted."""
        self._active = False
        return Flow(frozenset(self._functions), self._depth)


def least(
    recorder: Counting, prepare: Callable[[], Callable[[], object]], *, times: int = TIMES
) -> Counts:
    """Return the counts of the operations that *prepare* returns, after two warm ones.

    A function counts if every operation calls it: one that another thread runs meanwhile does not.
    """
    counted: list[Flow] = []
    for _ in range(2 + times):
        operation = prepare()
        recorder.begin()
        operation()
        counted.append(recorder.end())
    flows = counted[2:]
    functions = flows[0].functions.intersection(*(each.functions for each in flows))
    depth = min(each.depth for each in flows)
    return Counts(len({path for path, _, _ in functions}), len(functions), depth)


def library_create(recorder: Recorder, folder: Path) -> Counts:
    """Count `memories.create` on a SQLite file."""
    with holdfast.open(folder / "h.db") as hf:
        store, numbers = hf.memory_stores.create(name="Notes").id, count()
        create = hf.memory_stores.memories.create

        def prepare() -> Callable[[], object]:
            return partial(create, store, path=f"/{next(numbers)}.md", content="Tabs.")

        return least(recorder, prepare, times=WRITES)


def http_create(recorder: Recorder, folder: Path) -> Counts:
    """Count `POST /v1/memory_stores/{s}/memories`, from the request to the response."""
    with holdfast.open(folder / "h.db") as hf, serving(hf, clock=SystemClock()) as url:
        store, numbers = hf.memory_stores.create(name="Notes").id, count()

        def create(path: str) -> None:
            body = json.dumps({"path": path, "content": "Tabs."}).encode()
            headers = {"content-type": "application/json"}
            with urlopen(Request(f"{url}/v1/memory_stores/{store}/memories", body, headers)) as got:
                got.read()

        return least(recorder, lambda: partial(create, f"/{next(numbers)}.md"), times=WRITES)


def recall(recorder: Recorder, folder: Path) -> Counts:
    """Count `ltm.recall` by words, of a collection that is in the cache."""
    with holdfast.open(folder / "h.db") as hf:
        ltm = hf.longterm("ada", enabled=True, embedder=False)
        assert ltm is not None
        for text in ("Likes tabs", "Lives in Lisbon", "Has two dogs"):
            ltm.remember(text)
        return least(recorder, lambda: partial(ltm.recall, "Who likes tabs?"))


def mount_save(_: Recorder, folder: Path) -> Counts:
    """Count a save on a mount, from the kernel's request to the answer of `close`."""
    with holdfast.open(folder / "h.db") as hf:
        store = hf.memory_stores.create(name="Notes").id
    place = folder / "m"
    place.mkdir()
    words = ["mount", str(place), "--store", store, "--mode", "fuse", "--json"]
    words += ["--db", str(folder / "h.db"), "--spool", str(folder / "spool")]
    with counted_process(words) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline()
        (shown,) = place.iterdir()
        remote = RemoteRecorder(process)
        numbers = count()

        def save(content: bytes) -> None:
            file = os.open(shown / "a.md", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.write(file, content)
            os.close(file)

        return least(remote, lambda: partial(save, b"Tabs %d." % next(numbers)), times=WRITES)


def plan(recorder: Recorder, folder: Path) -> Counts:
    """Count the run of a plan of one step, whose model returns the result at once."""
    del folder
    schema = {"type": "object", "properties": {"ships": {"type": "integer"}}}

    model = ScriptedModel(lambda _: call("finish_step", result={"ships": 3}))

    def prepare() -> Callable[[], object]:
        step = Step(id="count", instructions="Count the ships.", output_schema=schema)
        task = Task(id="harbour", title="The harbour", steps=[step])
        made = TaskPlan(title="Harbour", tasks=[task])
        executor = ParallelTaskExecutor(plan=made, context=Context(model=model))
        return lambda: asyncio.run(executor.run())

    return least(recorder, prepare)


FLOWS = {
    "library create": library_create,
    "HTTP create": http_create,
    "recall": recall,
    "save on the mount": mount_save,
    "plan of one step": plan,
}
COUNTED_COMMAND = "--command"


class RemoteRecorder:
    """The recorder of a command that runs in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self) -> None:
        """Count from now on, from 0."""
        self._send("begin")

    def end(self) -> Flow:
        """Stop counting, and return what was counted."""
        functions, depth = json.loads(self._send("end"))
        return Flow(frozenset((path, line, name) for path, line, name in functions), depth)

    def _send(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextmanager
def counted_process(words: list[str]) -> Generator["subprocess.Popen[str]"]:
    """Run the command *words* of the command line with a recorder; it ends with the block."""
    command = [sys.executable, __file__, COUNTED_COMMAND, *words]
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        yield process
        # The command ends with its input, also if this process is killed.
        process.communicate(timeout=60)


def run_command(words: list[str]) -> None:
    """Run a command of the command line, and count between the lines `begin` and `end`."""

    def obey() -> None:
        for line in sys.stdin:
            if line == "begin\n":
                recorder.begin()
                answer = ""
            else:
                functions, depth = recorder.end()
                answer = json.dumps([sorted(functions), depth])
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=obey, daemon=True).start()
    recorder = Recorder()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sys.argv[1:] = words
    sys.exit(resolve_name(project["scripts"]["holdfast"])())


def main() -> None:
    """Print the counts of each flow, a line each, or run a command for one."""
    if sys.argv[1] == COUNTED_COMMAND:
        run_command(sys.argv[2:])
    for name in sys.argv[1:]:
        if (process := os.fork()) == 0:
            with TemporaryDirectory() as folder:
                sys.stdout.write(f"{json.dumps(FLOWS[name](Recorder(), Path(folder)))}\n")
            return
        if code := os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
            sys.exit(code)


if __name__ == "__main__":
    main()
