"""Disk faults below SQLite: system calls that fail on demand."""

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw

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
