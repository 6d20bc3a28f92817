"""Contracts for a storage engine, a history, checkpoints or a vector provider of your own."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
