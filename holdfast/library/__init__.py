"""Layer 3: `open()` and `Holdfast`, one engine with the memories on it."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
