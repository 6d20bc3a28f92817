"""Commands in processes that are forked from one that has imported the package.

    ForkedProcess[str](forked("serve", "--db", db), stderr=subprocess.PIPE)

runs `holdfast serve`, with the streams, the folder and the environment that it is given. A fork
takes milliseconds where an interpreter needs a second of a processor for its imports.

What is started is a small program. It hands its streams and arguments to the process that forks,
passes signals on, and ends as the forked process does.
"""

import atexit
import gc
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from selectors import EVENT_READ, PollSelector
from typing import AnyStr, NamedTuple, cast

HOLDFAST = "import sys; from holdfast.doors.cli.main import main; sys.exit(main())"
"""What the command `holdfast` runs."""

_IMPORTED = (
    *("holdfast.doors.console.app", "holdfast.doors.http.server", "holdfast.runtime"),
    *("holdfast.testing.scripted", "uvicorn", "uvloop"),
)
"""What is imported before the forks, besides the commands and the protocol of hosts."""

_SCRIPT = """
import runpy, sys, warnings

warnings.simplefilter("error")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Modules of the interpreter itself: this starts in a hundredth of a second.
_LAUNCH = """
import _signal, _socket, marshal, os, sys

passed = [getattr(_signal, "SIG" + each) for each in ("HUP", "INT", "QUIT", "TERM", "USR1")]
_signal.pthread_sigmask(_signal.SIG_BLOCK, passed)
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
job = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ)))
streams = b"".join(each.to_bytes(4, sys.byteorder) for each in range(3))
line.sendmsg([job], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
child = int(line.recv(16))
os.closerange(0, 3)

def pass_on(number, _):
    os.kill(child, _signal.SIGKILL if number == _signal.SIGUSR1 else number)

for each in passed:
    _signal.signal(each, pass_on)
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, passed)
code = int(line.recv(16))
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def forked(*argv: str | Path) -> list[str]:
    """Return a command line that runs `holdfast` with *argv* in a forked process."""
    return forked_code(HOLDFAST, *argv)


def forked_code(code: str, *argv: str | Path) -> list[str]:
    """Return a command line that runs *code* with *argv* in a forked process."""
    return [str(_python()), "-I", "-S", "-c", _LAUNCH, _started(), code, *map(str, argv)]


def forked_script(script: Path, *argv: str) -> list[str]:
    """Return a command line that runs *script*, which no warning may leave, in a forked process."""
    return forked_code(_SCRIPT, script, *argv)


class ForkedProcess(subprocess.Popen[AnyStr]):
    """`Popen` of such a command line.

    With `Popen` itself, `kill` does not wait for the end of the forked process.
    """

    def kill(self) -> None:
        """Kill the forked process, and what was started with it."""
        self.send_signal(signal.SIGUSR1)


class ForkedHoldfast:
    """`holdfast` with *argv* in a process that is forked from one which has imported it.

    As `subprocess.Popen`, of whose process it has the id: it can be stopped, killed and looked at.
    """

    def __init__(self, *argv: str, env: dict[str, str], out: int, err: int) -> None:
        job = marshal.dumps(([HOLDFAST, *argv], str(Path.cwd()), env))
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.connect(_started())
        with Path(os.devnull).open() as null:
            socket.send_fds(self._line, [job], [null.fileno(), out, err])
        self.pid = int(self._line.recv(16))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, once it is gone."""
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("holdfast", timeout or 0)
            self.returncode = int(self._line.recv(16))
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _python() -> Path:
    """Return the Python that has the package: this one, or that of an environment around it."""
    prefix = Path(sys.prefix)
    places = [each / "bin" for each in (prefix, *prefix.parents)]
    return next(each / "python" for each in places if (each / "holdfast").exists())


@cache
def _started() -> str:
    """Start the process that forks; return where it listens until this process ends."""
    folder, owner = Path(tempfile.mkdtemp(prefix="forked-")), os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(64)
        process = subprocess.Popen(
            [_python(), __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        if os.getpid() == owner:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
            shutil.rmtree(folder)

    atexit.register(end)
    return str(folder / "s")


class _Job(NamedTuple):
    """What a forked process runs, and where."""

    argv: list[str]
    folder: str
    environment: dict[str, str]


class _Fork(NamedTuple):
    """A forked process, its handle, and the line to what was started."""

    process: int
    handle: int
    line: socket.socket


def _serve(listener: socket.socket) -> _Job:
    """Fork for each line; return in the forked process, with its job."""
    with PollSelector() as selector:
        selector.register(0, EVENT_READ)
        selector.register(listener, EVENT_READ)
        while True:
            for key, _ in selector.select():
                fork = cast("_Fork | None", key.data)
                if key.fd == 0:
                    os.killpg(0, signal.SIGKILL)
                elif fork is None:
                    line, _ = listener.accept()
                    if (job := _fork(selector, line)) is not None:
                        return job
                elif key.fd == fork.handle:
                    code = os.waitstatus_to_exitcode(os.waitpid(fork.process, 0)[1])
                    _say(fork.line, code)
                    selector.unregister(fork.handle)
                    os.close(fork.handle)
                    if fork.line in selector.get_map():
                        selector.unregister(fork.line)
                    fork.line.close()
                elif fork.line.fileno() >= 0:
                    # What was started is gone.
                    selector.unregister(fork.line)
                    os.kill(fork.process, signal.SIGKILL)


def _fork(selector: PollSelector, line: socket.socket) -> _Job | None:
    """Fork for *line*; return its job in the forked process."""
    job, streams, _, _ = socket.recv_fds(line, 1_000_000, 3)
    if not job:
        line.close()
        return None
    process = os.fork()
    if process == 0:
        for key in tuple(selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif key.fd:
                os.close(key.fd)
        line.close()
        for number, each in enumerate(streams):
            os.dup2(each, number)
            os.close(each)
        return _Job(*marshal.loads(job))
    for each in streams:
        os.close(each)
    fork = _Fork(process, os.pidfd_open(process), line)
    _say(line, process)
    selector.register(fork.handle, EVENT_READ, fork)
    selector.register(line, EVENT_READ, fork)
    return None


def _say(line: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        line.send(str(number).encode())


def _main() -> None:
    """Import, fork, and run the job of each forked process."""
    sys.path[0] = ""
    for package in ("holdfast.doors.cli", "holdfast.doors.mcp"):
        for module in iter_modules(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    for module in _IMPORTED:
        import_module(module)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    job = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(job.folder)
    os.environ.clear()
    os.environ.update(job.environment)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whether a stream can be sought was found out for those of this process.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["-c", *job.argv[1:]]
    exec(job.argv[0], {"__name__": "__main__"})


if __name__ == "__main__":
    _main()
