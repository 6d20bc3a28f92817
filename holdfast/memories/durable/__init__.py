"""Durable memory: what one agent knows between runs.

Entries have a key and a category; the category sets their lifetime.
"""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily

if TYPE_CHECKING:
    from holdfast.memories.durable.memory import DurableMemory as DurableMemory
    from holdfast.memories.durable.runs import DurableRun as DurableRun

__all__ = ["DurableMemory", "DurableRun"]

__getattr__ = lazily(
    __name__,
    {
        "DurableMemory": "holdfast.memories.durable.memory",
        "DurableRun": "holdfast.memories.durable.runs",
    },
)
