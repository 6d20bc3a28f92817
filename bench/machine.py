"""What a reader needs to judge a run: the machine, what ran on it, and how busy it was."""

import hashlib
import os
import platform
import socket
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

_PACKAGES = (
    "apsw",
    "msgspec",
    "psycopg",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "typer",
    "rich",
)


class Load(Struct, frozen=True, kw_only=True):
    """Runnable tasks over the last minute, for each core."""

    a_core: float

    @property
    def busy(self) -> bool:
        """Whether others took so much of the machine that the figures must be doubted."""
        return self.a_core > 1


class Machine(Struct, frozen=True, kw_only=True):
    """Where a run took place."""

    cpu: str
    cores: int
    memory_mb: int
    file_system: str
    kernel: str
    python: str
    sqlite: str
    packages: dict[str, str]
    host: str


def connected(path: Path) -> Any:
    """Return the driver's connection to *path*; its stubs name types that are nowhere."""
    return apsw.Connection(str(path))


def load() -> Load:
    """Return the present load."""
    return Load(a_core=round(os.getloadavg()[0] / (os.cpu_count() or 1), 2))


def here() -> Machine:
    """Return this machine."""
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name"),
        cores=os.cpu_count() or 1,
        memory_mb=int(_field("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        file_system=_file_system(tempfile.gettempdir()),
        kernel=platform.release(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=apsw.sqlite_lib_version(),
        packages={name: found for name in _PACKAGES if (found := _version(name))},
        host=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8],
    )


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _file_system(path: str) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    over = [(point, kind) for point, kind in mounts if Path(path).is_relative_to(point)]
    return max(over, key=lambda mount: len(mount[0]))[1]
