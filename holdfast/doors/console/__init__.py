"""The web console: what agents remember, shown to a person and put right by them.

The names of a chat's turn need the extra `agents`.
"""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
