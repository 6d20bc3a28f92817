"""Durable memory: what one agent knows between runs.

Entries have a key and a category; the category sets their lifetime.
"""

from holdfast.ground.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
