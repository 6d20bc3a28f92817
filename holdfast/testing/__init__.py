"""Test support for users of Holdfast: contracts, models, fakes."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
