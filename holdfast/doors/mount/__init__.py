"""Memory stores as directories of ordinary files, through FUSE or as a synced directory."""

from holdfast.doors.mount.life.process import Mount, mounted

__all__ = ["Mount", "mounted"]
