"""Memory stores as directories of files, through FUSE or as a synced directory."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
