"""Context manager that runs a mount in a subprocess."""

import os
import select
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any, Literal, cast

import msgspec
from msgspec import Struct

from holdfast.doors.mount.process.registry import Register, status_of
from holdfast.doors.mount.process.setup import absolute
from holdfast.doors.mount.process.system import at
from holdfast.doors.mount.process.unmount import detach
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import JSONObject

READY_SECONDS, END_SECONDS = 30.0, 20.0

_LOG_BYTES_MAX = 2_000
_LINE_MOST = 1 << 16


class Process(Struct, frozen=True, kw_only=True):
    """Options of `holdfast mount` that `mounted` passes on."""

    read_only: bool = False
    mode: Literal["auto", "fuse", "sync"] = "auto"
    deadline: float | None = None
    grace: float | None = None
    spool: str | None = None
    cache: int | None = None
    allow_other: bool = False

    def words(self) -> list[str]:
        """Return the options as command line arguments."""
        words = [f"--mode={self.mode}"]
        words += ["--read-only"] if self.read_only else []
        words += ["--allow-other"] if self.allow_other else []
        for name in ("deadline", "grace", "spool", "cache"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}={value}"]
        return words


class Mount:
    """A mount that is ready, with the path of each store."""

    def __init__(self, process: subprocess.Popen[bytes], ready: JSONObject) -> None:
        self.process, self.ready = process, ready
        self.directory = Path(ready["dir"])
        stores = cast("list[dict[str, Any]]", ready["stores"])
        self.paths = {store["slug"]: Path(store["path"]) for store in stores}

    def status(self) -> JSONObject:
        """Return the current status of the mount."""
        return status_of(self.directory, Register())


@contextmanager
def mounted(
    hf: Holdfast,
    directory: Path | str,
    *,
    session: str | None = None,
    stores: Sequence[str] = (),
    **options: Any,
) -> Generator[Mount]:
    """Mount the stores of *session*, or *stores*, on *directory* until the block ends.

    This runs `holdfast mount` in a subprocess, on the target that *hf* was opened with. A handle
    of a session needs no *session*. *options* are those of `Process`. At the end of the block
    everything is saved and the process has exited, also after an error. Raise Unavailable, with
    the process's messages, if it cannot mount, and if something had to be spooled.
    """
    command, environment = _command(hf, session)
    words = [*command, str(directory), "--json", *(f"--store={each}" for each in stores)]
    place = absolute(directory)
    with TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*words, *Process(**options).words()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        try:
            yield Mount(process, _ready(process, log))
            code = _ended(process)
            if code != 0:
                what = "ended with something not saved" if code > 0 else "was killed"
                raise _failed(f"The mount {what}", log)
        finally:
            _reap(process, place)


def _command(hf: Holdfast, session: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment, which hides the credential from `ps`."""
    opened = hf.opened
    if opened is None or opened.target == ":memory:":
        reason = "is reached by this process alone"
        raise InvalidInput("hf", reason, next="Open a file, PostgreSQL or a server.")
    own = hf.actor.id if hf.actor.kind == "session" else None
    words = [sys.executable, "-m", "holdfast.doors.cli.main", "mount"]
    words += [f"--session={session or own}"] if session or own else []
    if opened.api_key is None:
        words += [f"--workspace={hf.workspace}"]
    environment = {**os.environ, "HOLDFAST_DB": opened.target}
    environment.pop("HOLDFAST_API_KEY", None)
    environment |= {"HOLDFAST_API_KEY": opened.api_key} if opened.api_key else {}
    return words, environment


def _ready(process: subprocess.Popen[bytes], log: IO[bytes]) -> JSONObject:
    """Return the status from the process's first line; Unavailable if none comes."""
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    line, until = b"", monotonic() + READY_SECONDS
    while not line.endswith(b"\n"):
        left = until - monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise _failed(f"The mount was not ready within {READY_SECONDS:g} s", log)
        part = os.read(process.stdout.fileno(), _LINE_MOST)
        if not part:
            process.wait(END_SECONDS)
            raise _failed("The mount could not start", log)
        line += part
    return msgspec.json.decode(line)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Terminate the process and return its exit code; -1 if it does not end in time."""
    process.terminate()
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return -1


def _reap(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Kill the process if it still runs, and detach its mount."""
    if _ended(process) == -1:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    left = at(directory)
    if left is not None and left.pid == process.pid:
        with suppress(OSError):
            detach(directory, lazy=True)


def _failed(what: str, log: IO[bytes]) -> Unavailable:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_BYTES_MAX))
    message = log.read().decode(errors="replace").strip().removeprefix("holdfast: ")
    return Unavailable(f"{what}: {message or 'no message'}", reason="closed", next="")
