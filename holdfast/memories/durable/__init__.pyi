from holdfast.memories.durable.memory import DurableMemory as DurableMemory
from holdfast.memories.durable.memory import DurableRun as DurableRun
