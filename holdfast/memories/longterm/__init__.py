"""Long-term memory: facts and turns of a user, recalled in later sessions."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily

if TYPE_CHECKING:
    from holdfast.memories.longterm.memory import LongTermMemory as LongTermMemory

__all__ = ["LongTermMemory"]

__getattr__ = lazily(__name__, {"LongTermMemory": "holdfast.memories.longterm.memory"})
