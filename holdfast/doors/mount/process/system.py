"""Requirements of a mount on this machine, and its mount table.

The inspected paths and functions are arguments, so that a test can simulate a machine without them.
"""

import ctypes
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from errno import ENOTCONN
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Literal, TypeVar

from msgspec import Struct

from holdfast.doors.mount.storage.spool import Spool, default_root
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import MissingExtra, Refused

LIBRARIES = ("libfuse3.so.3", "libfuse3.so.4")
PACKAGES = ("mfusepy", "watchfiles")
INSTALL = "Debian, Ubuntu: apt install libfuse3-3 fuse3."
CONTAINERS = "In a container: --device /dev/fuse --cap-add SYS_ADMIN."
INSTEAD = "Or use --mode sync."

_SYS_ADMIN = 1 << 21
"""The capability to mount, as a bit of the masks in /proc/self/status."""


class Need(Struct, frozen=True, kw_only=True):
    """One requirement of a mount: whether it is met, a message, and what to do."""

    name: str
    met: bool
    says: str
    next: str = ""

    def __str__(self) -> str:
        """Return the message and what to do, as one line."""
        return f"{self.says} {self.next}" if self.next else self.says


class Machine(Struct, frozen=True, kw_only=True):
    """Paths and functions to check requirements with; this machine by default."""

    load: Callable[[str], object] = ctypes.CDLL
    which: Callable[[str], str | None] = shutil.which
    find: Callable[[str], object | None] = find_spec
    device: Path = Path("/dev/fuse")
    settings: Path = Path("/etc/fuse.conf")
    process: Path = Path("/proc/self/status")
    user: int = os.geteuid()


HERE = Machine()


def needs(machine: Machine = HERE) -> tuple[Need, ...]:
    """Return all requirements, met or not, in the order in which to fix them."""
    return (
        _extra(machine),
        _library(machine),
        _fusermount(machine),
        _device(machine),
        _allow_other(machine),
    )


def require(machine: Machine, *, fuse: bool, allow_other: bool = False) -> None:
    """Raise MissingExtra or Refused, with what to do, if a requirement is not met.

    Without *fuse* it is for a synced directory, which needs only the extra.
    """
    if not _extra(machine).met:
        raise MissingExtra("mount")
    lacking = lacking_for_fuse(machine) if fuse else None
    if lacking is None and fuse and allow_other and not _allow_other(machine).met:
        lacking = _allow_other(machine)
    if lacking is not None:
        raise Refused(lacking.says, next=lacking.next)


def lacking_for_fuse(machine: Machine = HERE) -> Need | None:
    """Return the first requirement of FUSE that is not met, or None."""
    wanted = (_library, _fusermount, _device)
    return next((need for each in wanted if not (need := each(machine)).met), None)


def _extra(machine: Machine) -> Need:
    absent = [name for name in PACKAGES if machine.find(name) is None]
    missing = MissingExtra("mount")
    return Need(
        name="extra",
        met=not absent,
        says=missing.message if absent else ", ".join(PACKAGES),
        next=missing.next if absent else "",
    )


def _library(machine: Machine) -> Need:
    for name in LIBRARIES:
        with suppress(OSError):
            machine.load(name)
            return Need(name="libfuse3", met=True, says=name)
    next = f"{INSTALL} {INSTEAD}"
    return Need(name="libfuse3", met=False, says="libfuse3 is not installed.", next=next)


def _fusermount(machine: Machine) -> Need:
    found = machine.which("fusermount3")
    if found is None and machine.user != 0:
        says, next = "fusermount3 is not installed.", f"{INSTALL} {INSTEAD}"
        return Need(name="fusermount3", met=False, says=says, next=next)
    return Need(name="fusermount3", met=True, says=found or "missing; root does not need it")


def _device(machine: Machine) -> Need:
    shown, next = machine.device, f"{CONTAINERS} {INSTEAD}"
    if not shown.exists():
        return Need(name="/dev/fuse", met=False, says=f"{shown} is missing.", next=next)
    try:
        os.close(os.open(shown, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        says = f"{shown} may not be opened: {error.strerror}."
        return Need(name="/dev/fuse", met=False, says=says, next=next)
    if not _may_mount(machine):
        says = f"{shown} is there, but mounting is not permitted."
        return Need(name="/dev/fuse", met=False, says=says, next=next)
    return Need(name="/dev/fuse", met=True, says="readable and writable")


def _may_mount(machine: Machine) -> bool:
    """Check whether this user (root, or another through fusermount3) may mount.

    True if that is unknown.
    """
    mask = "CapEff" if machine.user == 0 else "CapBnd"
    try:
        lines = machine.process.read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    found = next((line for line in lines if line.startswith(f"{mask}:")), None)
    return found is None or bool(int(found.split()[1], 16) & _SYS_ADMIN)


def _allow_other(machine: Machine) -> Need:
    if machine.user == 0:
        return Need(name="allow other", met=True, says="root may")
    try:
        lines = machine.settings.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    if "user_allow_other" in map(str.strip, lines):
        return Need(name="allow other", met=True, says=f"{machine.settings} permits it")
    return Need(
        name="allow other",
        met=False,
        says=f"{machine.settings} does not permit --allow-other.",
        next="Add the line: user_allow_other",
    )


# A Holdfast mount has its process in the mount table, so that a mount with a dead process, or one
# that does not answer, is identified without a request to it.

T = TypeVar("T")
State = Literal["live", "dead", "silent"]

TYPE = "fuse.holdfast"
SOURCE = "holdfast"
TABLE = Path("/proc/self/mountinfo")

PATIENCE = 2.0
"""Seconds that a mount has to answer; a stopped process does not."""

_OCTAL = re.compile(r"\\([0-7]{3})")


class Mounted(Struct, frozen=True, kw_only=True):
    """One entry of the mount table."""

    directory: Path
    kind: str
    source: str

    @property
    def ours(self) -> bool:
        """Whether it is a mount of memory stores."""
        return self.kind == TYPE

    @property
    def pid(self) -> int | None:
        """The process that serves it, if it is ours."""
        name, _, number = self.source.partition(":")
        return int(number) if self.ours and name == SOURCE and number.isdecimal() else None

    def state(self) -> State:
        """Return whether its process lives and answers."""
        return answered(lambda: _state(self.directory), "silent")


def answered(look: Callable[[], T], silent: T) -> T:
    """Return *look*(), or *silent* if a mount on its way does not answer in 2 seconds."""
    seen: list[T] = []
    looking = Thread(target=lambda: seen.append(look()), daemon=True)
    looking.start()
    looking.join(PATIENCE)
    return seen[0] if seen else silent


def source_of(pid: int) -> str:
    """Return the source to mount with, from which `Mounted.pid` reads *pid*."""
    return f"{SOURCE}:{pid}"


def at(directory: Path, *, table: Path = TABLE) -> Mounted | None:
    """Return the topmost mount at *directory*, an absolute path, or None."""
    found = None
    for each in mounts(table=table):
        if each.directory == directory:
            found = each
    return found


def mounts(*, table: Path = TABLE) -> list[Mounted]:
    """Return the mount table, in the order of mounting."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [_mounted(line) for line in lines]


def _mounted(line: str) -> Mounted:
    before, _, after = line.partition(" - ")
    kind, source, *_ = after.split(" ")
    place = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
    return Mounted(directory=Path(place), kind=kind, source=source)


def _state(directory: Path) -> State:
    try:
        os.statvfs(directory)  # the kernel would answer `stat` from its cache for a dead process
    except OSError as error:
        return "dead" if error.errno == ENOTCONN else "live"
    return "live"


SHOWN = 3
"""Spool entries listed by name; the rest is counted."""


class MachineCheck(Struct, frozen=True, kw_only=True):
    """One check of the machine; an *optional* one matters only for mounts."""

    name: str
    ok: bool
    says: str
    optional: bool


def look(machine: Machine = HERE, spool: Spool | None = None) -> list[MachineCheck]:
    """Check the requirements of a mount and the spool; change nothing."""
    spool = spool or Spool(default_root(), clock=SystemClock())
    lacks = [
        MachineCheck(name=f"mount: {need.name}", ok=need.met, says=str(need), optional=True)
        for need in needs(machine)
    ]
    return [*lacks, _spool(spool)]


def _spool(spool: Spool) -> MachineCheck:
    # A living mount is about to save the entries that it holds.
    left = [(path, each) for path, each in spool.list() if not spool.held(path)]
    says = "nothing is queued"
    if left:
        shown = "; ".join(f"{path} ({each.errno} {each.path})" for path, each in left[:SHOWN])
        more = f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        says = f"{len(left)} not saved: {shown}{more}. Mount the store again, or save them by hand."
    return MachineCheck(name="mount: spool", ok=not left, says=says, optional=False)
