from holdfast.memories.durable.memory import DurableMemory as DurableMemory
from holdfast.memories.durable.runs import DurableRun as DurableRun
