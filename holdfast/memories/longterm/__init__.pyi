from holdfast.memories.longterm.memory import LongTermMemory as LongTermMemory
