"""A mount in a process of its own, for as long as a block lasts."""

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

_SAID_MOST = 2_000
_LINE_MOST = 1 << 16


class Process(Struct, frozen=True, kw_only=True):
    """The options of the mount's process that have no argument of their own."""

    read_only: bool = False
    mode: Literal["auto", "fuse", "sync"] = "auto"
    deadline: float | None = None
    grace: float | None = None
    spool: str | None = None
    cache: int | None = None
    allow_other: bool = False

    def words(self) -> list[str]:
        """Return them as the command line has them."""
        words = [f"--mode={self.mode}"]
        words += ["--read-only"] if self.read_only else []
        words += ["--allow-other"] if self.allow_other else []
        for name in ("deadline", "grace", "spool", "cache"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}={value}"]
        return words


class Mount:
    """A mount that is ready: where each store is, and how it is."""

    def __init__(self, process: subprocess.Popen[bytes], ready: JSONObject) -> None:
        self.process, self.ready = process, ready
        self.directory = Path(ready["dir"])
        stores = cast("list[dict[str, Any]]", ready["stores"])
        self.paths = {store["slug"]: Path(store["path"]) for store in stores}

    def status(self) -> JSONObject:
        """Return what the mount says of itself now."""
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
    """Mount what *session* attaches, or *stores*, on *directory* until the block ends.

    It is `holdfast mount` in a process of its own, on the target that *hf* was opened with; a
    handle narrowed to a session needs to name none. *options* are those of `Process`. At the end
    everything is saved, and the process is gone, also after an error. Raises Unavailable with
    what the process said when it cannot mount, and when something had to be spooled.
    """
    command, environment = _command(hf, session)
    words = [*command, str(directory), "--json", *(f"--store={each}" for each in stores)]
    place = absolute(directory)
    with TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*words, *Process(**options).words()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
        )
        try:
            yield Mount(process, _ready(process, said))
            code = _ended(process)
            if code != 0:
                what = "ended with something not saved" if code > 0 else "was killed"
                raise _failed(f"The mount {what}", said)
        finally:
            _reap(process, place)


def _command(hf: Holdfast, session: str | None) -> tuple[list[str], dict[str, str]]:
    """Return what to run, and its environment: a credential is not for others to read."""
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


def _ready(process: subprocess.Popen[bytes], said: IO[bytes]) -> JSONObject:
    """Return the process's first line, once it is there."""
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    line, until = b"", monotonic() + READY_SECONDS
    while not line.endswith(b"\n"):
        left = until - monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise _failed(f"The mount was not ready within {READY_SECONDS:g} s", said)
        part = os.read(process.stdout.fileno(), _LINE_MOST)
        if not part:
            process.wait(END_SECONDS)
            raise _failed("The mount could not start", said)
        line += part
    return msgspec.json.decode(line)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Ask the process to end, if it has not, and return its exit code."""
    process.terminate()
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return -1


def _reap(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Leave neither the process nor what it mounted."""
    if _ended(process) == -1:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    left = at(directory)
    if left is not None and left.pid == process.pid:
        with suppress(OSError):
            detach(directory, lazy=True)


def _failed(what: str, said: IO[bytes]) -> Unavailable:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _SAID_MOST))
    told = said.read().decode(errors="replace").strip().removeprefix("holdfast: ")
    return Unavailable(f"{what}: {told or 'no message'}", reason="closed", next="")
