"""Memory for AI agents: five memories on one engine, behind many doors."""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
