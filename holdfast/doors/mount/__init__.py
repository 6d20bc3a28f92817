"""Memory stores as directories of files, through FUSE or as a synced directory."""

from holdfast.doors.mount.process.process import Mount, mounted

__all__ = ["Mount", "mounted"]
