"""Layer 1: the storage engines. SQL dialects end here."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
