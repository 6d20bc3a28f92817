"""Long-term memory: facts and turns of a user, recalled in later sessions."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
