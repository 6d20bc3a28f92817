"""Scan text for credentials before it is stored or sent to a model."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
