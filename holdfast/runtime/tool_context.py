"""What a tool may know of the call it is part of."""

from typing import Any

from msgspec import Struct
from pydantic_ai.usage import RunUsage

from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec
from holdfast.runtime.context import Context


class ToolContext(Struct, frozen=True, kw_only=True):
    """The call a tool is part of; a first parameter annotated with it is filled, and not shown.

    `network` is the `NetworkRun`, None outside a network. `context` and `memory` are there in a
    plan or a team. What is written to `state` carries this call as its source.
    """

    agent: AgentSpec
    state: NetworkState
    run_id: str
    call_id: str
    tool_name: str
    usage: RunUsage
    network: Any = None
    context: Context | None = None
    memory: RunMemory | None = None
