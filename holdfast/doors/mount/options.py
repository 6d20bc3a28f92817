"""The settings of one mount."""

from pathlib import Path

from msgspec import Struct

MIB = 1024 * 1024


class MountOptions(Struct, frozen=True, kw_only=True):
    """How a mount behaves; each is an option of `holdfast mount`."""

    spool: Path
    deadline: float = 5.0
    """Seconds within which every request is answered, but for one more."""
    grace: float = 3.0
    """Seconds after which a temporary file that is still there becomes a memory."""
    cache_bytes: int = 64 * MIB
    read_only: bool = False
    session_id: str | None = None
