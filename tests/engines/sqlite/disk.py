"""Disk faults below SQLite: system calls that fail, and files as a power loss leaves them."""

import ctypes
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Literal

import apsw
from msgspec import Struct

Call = Literal["pread", "pwrite"]

_TRANSFER = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    use_errno=True,
)


class Disk(apsw.VFS):
    """SQLite's own file layer, whose reads and writes fail on demand."""

    def __init__(self) -> None:
        super().__init__("disk", "unix")
        self._faults: list[tuple[Call, str, int]] = []
        # What SQLite calls must not be collected.
        self._kept = [self._replace("pread"), self._replace("pwrite")]

    def fail(self, call: Call, suffix: str, number: int, *, times: int = 1) -> None:
        """Fail the next *times* of *call* on a file that ends in *suffix*, with *number*."""
        self._faults.extend((call, suffix, number) for _ in range(times))

    def heal(self) -> None:
        """Let all calls succeed from now on."""
        self._faults.clear()

    @property
    def pending(self) -> int:
        """How many calls are still to fail."""
        return len(self._faults)

    def restore(self) -> None:
        """Give SQLite its system calls back."""
        for name, _ in self._kept:
            self.xSetSystemCall(name, 0)
        self.unregister()

    def _replace(self, call: Call) -> tuple[str, object]:
        name = next(each for each in (f"{call}64", call) if self.xGetSystemCall(each))
        real = _TRANSFER(self.xGetSystemCall(name) or 0)

        def transfer(fd: int, buffer: int, size: int, offset: int) -> int:
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            for fault in self._faults:
                if fault[0] == call and path.endswith(fault[1]):
                    self._faults.remove(fault)
                    ctypes.set_errno(fault[2])
                    return -1
            return real(fd, buffer, size, offset)

        replaced = _TRANSFER(transfer)
        self.xSetSystemCall(name, ctypes.cast(replaced, ctypes.c_void_p).value or 0)
        return name, replaced


@contextmanager
def faulty_disk() -> Generator[Disk]:
    """Give the disk that SQLite uses within the block."""
    disk = Disk()
    try:
        yield disk
    finally:
        disk.restore()


class Step(Struct, frozen=True):
    """One change of a file: `write`, `truncate`, `sync`, or `delete`."""

    kind: Literal["write", "truncate", "sync", "delete"]
    name: str
    offset: int = 0
    data: bytes = b""


class _File(apsw.VFSFile):
    def __init__(self, steps: list[Step], name: str | apsw.URIFilename | None, flags: list[int]):
        super().__init__("unix", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._steps, self._name = steps, Path(path or "").name

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        # The driver's stub names a type that is not known on the oldest Python we run on.
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]
        self._steps.append(Step("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        self._steps.append(Step("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._steps.append(Step("sync", self._name))


class _Recorder(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("recorder", "unix", makedefault=True)
        self.steps: list[Step] = []

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self.steps, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        self.steps.append(Step("delete", Path(filename).name))


@contextmanager
def recorded_steps() -> Generator[list[Step]]:
    """Give the list of what SQLite does to files within the block."""
    recorder = _Recorder()
    try:
        yield recorder.steps
    finally:
        recorder.unregister()


Files = dict[str, bytes]


def after_power_loss(steps: list[Step]) -> Iterator[Files]:
    """Give what a folder may hold when the power fails after *steps*.

    What was not synced is there, missing, zeros, or there in part, in each file for itself. A
    deletion may be undone as long as no new file was synced after it.
    """
    durable, present, deleted = Files(), Files(), Files()
    for step in steps:
        name, content = step.name, present.get(step.name, b"")
        if step.kind == "write":
            content = content.ljust(step.offset, b"\0")
            present[name] = (
                content[: step.offset] + step.data + content[step.offset + len(step.data) :]
            )
        elif step.kind == "truncate":
            present[name] = content[: step.offset].ljust(step.offset, b"\0")
        elif step.kind == "sync":
            if name not in durable:
                deleted.clear()
            durable[name] = content
        else:
            present.pop(name, None)
            deleted[name] = durable.pop(name, b"")
    choices = {name: _choices(durable.get(name), content) for name, content in present.items()}
    for name, content in deleted.items():
        choices[name] = [*choices.get(name, [None]), content]
    for chosen in product(*choices.values()):
        found = zip(choices, chosen, strict=True)
        yield {name: content for name, content in found if content is not None}


def _choices(durable: bytes | None, present: bytes) -> list[bytes | None]:
    if durable == present:
        return [present]
    before = durable or b""
    start = next(
        (n for n, (a, b) in enumerate(zip(before, present, strict=False)) if a != b), len(before)
    )
    part = start + (len(present) - start) // 16
    zeros = present[:start].ljust(len(present), b"\0")
    return [durable, present, zeros, present[:part] + before[part:]]
