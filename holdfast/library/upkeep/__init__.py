"""Maintain a whole database: backup, restore, verify, doctor."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
