"""`holdfast mount` in a process of its own, as a person starts it, and the end it surely has."""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, NamedTuple

import msgspec
import pytest
from fork_server import ForkedHoldfast

HOLDFAST = str(Path(sys.prefix) / "bin" / "holdfast")
SECONDS = 60


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a mount says of one store."""

    id: str
    name: str
    slug: str
    path: str
    access: str
    archived_at: str | None
    memories: int
    cap: int
    unsaved: int
    retrying: int
    retried: int = 0
    spooled: int
    hidden: int
    saves: int
    refused: dict[str, int]
    failed: dict[str, int]
    promoted: int
    conflicts: int


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a mount says of itself."""

    type: str
    dir: str
    mode: str
    binding: str
    pid: int
    session_id: str | None
    state: str
    since: str
    spool: str
    feed_lag_seconds: float
    stores: list[StoreStatus]
    # Why a directory is synced rather than mounted; a mount has none.
    reason: str | None = None


class Target(NamedTuple):
    """What is mounted: where it is kept, and by what right."""

    db: str
    stores: tuple[str, ...] = ()
    session: str | None = None
    api_key: str | None = None

    def options(self) -> list[str]:
        """Return it as a command line says it."""
        named = [f"--store={each}" for each in self.stores]
        return [*named, *([f"--session={self.session}"] if self.session else []), f"--db={self.db}"]


def environment(api_key: str | None) -> dict[str, str]:
    """Return the process's environment, with none of the user's own settings of ours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return own | ({"HOLDFAST_API_KEY": api_key} if api_key else {})


def eventually(holds: Callable[[], object], *, within: float = 60) -> None:
    """Wait until *holds*() is true; it must be, in so many seconds."""
    end = monotonic() + within
    pause = select.poll()
    while not (last := holds()):
        assert monotonic() < end, f"after {within} s still {last!r}"
        pause.poll(5)


class Reaper:
    """The process that ends what this one cannot; see `reaper.py`."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("reaper.py"))
        # In a session of its own: what breaks off the run does not end it.
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, start_new_session=True
        )

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(SECONDS) == 0


class Mount:
    """A mount that is ready: its process, its directory, and what it says."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | ForkedHoldfast,
        said: IO[bytes],
        dir: Path,
        spool: Path,
    ) -> None:
        self.process, self.dir, self.spool = process, dir, spool
        ready, _, _ = select.select([said], [], [], SECONDS)
        assert ready, f"nothing said in {SECONDS} s; {self.says()}"
        line = said.readline()
        assert line, self.says()
        self.ready = msgspec.json.decode(line, type=Status)

    def says(self) -> str:
        """Return what the process wrote to its standard error."""
        return self.dir.with_name("log").read_text()

    def status(self) -> Status:
        return msgspec.json.decode(os.getxattr(self.dir, "user.holdfast.status"), type=Status)

    def store(self, number: int = 0) -> StoreStatus:
        return self.status().stores[number]

    def root(self, number: int = 0) -> Path:
        """Return the directory of a store."""
        return self.dir / self.ready.stores[number].slug

    def entries(self) -> list[Path]:
        """Return the files of bytes in the spool, oldest first."""
        return sorted(
            each
            for each in self.spool.rglob("*")
            if each.is_file() and each.with_name(f"{each.name}.json").exists()
        )

    def settled(self) -> bool:
        """Tell whether nothing waits to be saved, anywhere."""
        status = self.status()
        waiting = sum(each.unsaved + each.retrying + each.spooled for each in status.stores)
        return status.state == "ok" and waiting == 0 and not self.entries()

    def kill(self) -> None:
        """Kill the process, as a crash does."""
        self.process.kill()
        self.process.wait(SECONDS)

    def stop(self) -> int:
        """Ask the process to end, and return how it did."""
        self.process.terminate()
        return self.process.wait(SECONDS)


Start = Callable[..., AbstractContextManager[Mount]]


@contextmanager
def mounting(
    reaper: Reaper,
    target: Target,
    base: Path,
    *options: str,
    spool: Path | None = None,
    forks: bool = False,
) -> Generator[Mount]:
    """Mount *target* at *base*/m; at the end nothing of it is left, not even after a failure.

    With *forks* the process is forked from one that has imported the command already.
    """
    base.mkdir(exist_ok=True)
    dir, spool = base / "m", spool or base / "spool"
    line = ["mount", str(dir), *target.options(), f"--spool={spool}", "--json", *options]
    env = environment(target.api_key)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as said:
        with (base / "log").open("ab") as err, os.fdopen(write, "wb") as out:
            process = (
                ForkedHoldfast(*line, env=env, out=out.fileno(), err=err.fileno())
                if forks
                else subprocess.Popen(
                    [HOLDFAST, *line], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
            )
        reaper.say(f"watch {process.pid} {dir}")
        try:
            yield Mount(process, said, dir, spool)
        finally:
            try:
                end(process)
            finally:
                # Also when the run is broken off while it waits.
                process.kill()
                detach(dir)
            reaper.say(f"leave {process.pid}")


def end(process: subprocess.Popen[bytes] | ForkedHoldfast) -> None:
    """End a process, one that is stopped or hangs too, and wait until it is gone."""
    process.terminate()
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def detach(dir: Path) -> None:
    """Take away what is mounted at *dir*, if anything is, however often and however dead it is."""
    for command in (["fusermount3", "-u", "-z"], ["umount", "-l"]) * 3:
        if f" {dir} " not in Path("/proc/mounts").read_text():
            return
        subprocess.run([*command, str(dir)], check=False)
    pytest.fail(f"{dir} stays mounted")
