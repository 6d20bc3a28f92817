"""Faults of the calls that a process makes on the files of a folder, as `faults.c` injects them.

A plan says which calls fail and how. The processes that have loaded the library share its file, so
a test plans the faults of its own process and of a server alike.
"""

import errno
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

from holdfast.ground.errors import Corrupt, Unavailable

_SOURCE = Path(__file__).with_name("faults.c")
_PLAN = struct.Struct("=IIIIiIIIq9I64s256s")
_SEEN, _FIRED, _HELD, _AHEAD, _TOOK, _LAST = 20, 24, 28, 32, 40, 140

SHORT = 0
"""Transfer half of the bytes, and report so."""
HOLD = -1
"""Let the call wait until the plan ends, then succeed."""
LASTING = 0
"""All calls fail from the first one on."""


class Call(IntFlag):
    """Kinds of calls on files."""

    OPEN = 1
    READ = 2
    WRITE = 4
    SYNC = 8
    SIZE = 16
    REMOVE = 32
    RENAME = 64
    MAP = 128
    FOLDER = 256


ERRORS: dict[Call, tuple[int, ...]] = {
    Call.OPEN: (errno.EMFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO),
    Call.READ: (errno.EIO, SHORT),
    Call.WRITE: (errno.ENOSPC, errno.EDQUOT, errno.EIO, SHORT),
    Call.SYNC: (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    Call.SIZE: (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    Call.REMOVE: (errno.EIO,),
    Call.RENAME: (errno.EIO, errno.ENOSPC),
    Call.MAP: (errno.ENOMEM,),
    Call.FOLDER: (errno.ENOSPC, errno.EDQUOT),
}
"""How each kind of call fails."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Fault(NamedTuple):
    """The call of a kind that fails, counted from 1, and how; for once or lasting."""

    call: Call
    number: int
    error: int
    times: int

    def __str__(self) -> str:
        how = "short" if self.error == SHORT else errno.errorcode[self.error]
        lasting = "lasting" if self.times == LASTING else "once"
        return f"{self.call.name} {self.number} {how} {lasting}"

    def is_a(self, kind: str) -> bool:
        """Return whether it is of *kind*: `CALL:ERROR:TIMES`, of which the last parts may lack."""
        own = (self.call.name, errno.errorcode.get(self.error), str(self.times))
        return all(wanted in ("", mine) for wanted, mine in zip(kind.split(":"), own, strict=False))

    @property
    def is_full(self) -> bool:
        """Whether the disk or the quota is full."""
        return self.error in NO_SPACE

    def explains(self, error: Unavailable) -> bool:
        """Return whether *error* is one that this fault may have for callers."""
        if self.error == SHORT:
            return False
        if isinstance(error, Corrupt):
            return self.call == Call.READ
        if self.call == Call.WRITE and self.is_full:
            return error.reason == "full"
        return error.reason == "io" or (self.is_full and error.reason == "full")


def faults_of(counts: dict[Call, int]) -> Iterator[Fault]:
    """Yield every fault of a scenario that makes so many calls of each kind."""
    for call, count in counts.items():
        for number in range(1, count + 1):
            for error in ERRORS[call]:
                for times in (1, LASTING):
                    yield Fault(call, number, error, times)


def built_faults(folder: Path) -> Path:
    """Compile the library into *folder*; return the path to preload."""
    library = folder / "faults.so"
    command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, _SOURCE]
    subprocess.run(command, check=True)
    return library


def faulty(library: Path, root: Path, plan: Path) -> dict[str, str]:
    """Return the environment of a process whose calls on files below *root* fail by *plan*."""
    names = {"LD_PRELOAD": library, "FAULTS_ROOT": root.resolve(), "FAULTS_PLAN": plan}
    return dict(os.environ) | {name: str(value) for name, value in names.items()}


class FaultPlan:
    """The plan in the file *path*, which is created if it is missing."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def arm(self, fault: Fault, *, ending: str = "") -> None:
        """Let *fault* happen on files that end in *ending*, counted from the next call."""
        self._write(fault, ending)

    def count(self, *, ending: str = "") -> None:
        """Count calls, and let none fail."""
        self._write(Fault(Call(0), 0, 0, 0), ending)

    def heal(self) -> None:
        """Let every call succeed from now on."""
        self._memory[0:4] = bytes(4)

    def _write(self, fault: Fault, ending: str) -> None:
        self.heal()
        ahead = self._number(_AHEAD, "q")
        how = (fault.call, fault.number, fault.times, fault.error)
        plan = _PLAN.pack(0, *how, 0, 0, 0, ahead, *[0] * 9, ending.encode(), b"")
        self._memory[: len(plan)] = plan
        self._memory[0:4] = struct.pack("=I", 1)

    @property
    def fired(self) -> int:
        """How many calls failed since the plan was armed."""
        return self._number(_FIRED, "I")

    @property
    def is_failing(self) -> bool:
        """Whether calls fail now, and one has."""
        return self._number(0, "I") == 1 and self.fired > 0

    @property
    def held(self) -> int:
        """How many calls wait now."""
        return self._number(_HELD, "I")

    @property
    def counts(self) -> dict[Call, int]:
        """How many calls of each kind were made since the plan was armed."""
        found = struct.unpack_from("=9I", self._memory, _TOOK)
        return {call: count for call, count in zip(Call, found, strict=True) if count}

    @property
    def last(self) -> str:
        """The call that failed last."""
        return self._memory[_LAST : _LAST + 256].split(b"\0")[0].decode(errors="replace")

    def set_clock(self, ahead: int) -> None:
        """Let the clock of the day be *ahead* seconds ahead, or behind if negative."""
        struct.pack_into("=q", self._memory, _AHEAD, ahead)

    def _number(self, at: int, form: str) -> int:
        return struct.unpack_from(f"={form}", self._memory, at)[0]
