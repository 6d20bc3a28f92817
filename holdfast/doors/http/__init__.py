"""The HTTP server.

The names of the runtime need the extra `agents`.
"""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
