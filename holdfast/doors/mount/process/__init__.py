"""The process of a mount: setup, main loop, registry and unmounting."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
