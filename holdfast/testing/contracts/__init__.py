"""Contracts, written once; every engine and door subclasses them."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
