"""Memory for AI agents: five memories on one engine, behind many doors."""

from typing import TYPE_CHECKING

from holdfast.ground.lazy import lazily, public

if TYPE_CHECKING:
    from msgspec import UNSET as UNSET

    from holdfast import aio as aio
    from holdfast import errors as errors
    from holdfast import keys as keys
    from holdfast import messages as messages
    from holdfast import tools as tools
    from holdfast.ground.pages import Page as Page
    from holdfast.ground.scope import Actor as Actor
    from holdfast.ground.secrets import looks_like_secret as looks_like_secret
    from holdfast.library.holdfast import Holdfast as Holdfast
    from holdfast.library.open import open as open
    from holdfast.memories.longterm.block import recalled_block as recalled_block
    from holdfast.memories.longterm.memory import LongTermMemory as LongTermMemory
    from holdfast.memories.longterm.records import Item as Item
    from holdfast.memories.longterm.records import LongTermOptions as LongTermOptions
    from holdfast.memories.longterm.records import Recalled as Recalled
    from holdfast.memories.longterm.records import Remembered as Remembered
    from holdfast.memories.longterm.records import Turn as Turn
    from holdfast.memories.longterm.records import Weights as Weights
    from holdfast.memories.run.entry import RunEntry as RunEntry
    from holdfast.memories.run.entry import RunLimits as RunLimits
    from holdfast.memories.run.memory import RunMemory as RunMemory
    from holdfast.memories.state.cells import StateChange as StateChange
    from holdfast.memories.state.cells import ValueInfo as ValueInfo
    from holdfast.memories.state.history import View as View
    from holdfast.memories.state.history import Window as Window
    from holdfast.memories.state.message import StateLimits as StateLimits
    from holdfast.memories.state.result import InferenceResult as InferenceResult
    from holdfast.memories.state.result import Usage as Usage
    from holdfast.memories.state.run_records import RunRecord as RunRecord
    from holdfast.memories.state.state import NetworkState as NetworkState
    from holdfast.memories.state.thread import ThreadMessage as ThreadMessage
    from holdfast.memories.state.thread import ThreadTurn as ThreadTurn

__all__ = [
    "UNSET",
    "Actor",
    "Holdfast",
    "InferenceResult",
    "Item",
    "LongTermMemory",
    "LongTermOptions",
    "NetworkState",
    "Page",
    "Recalled",
    "Remembered",
    "RunEntry",
    "RunLimits",
    "RunMemory",
    "RunRecord",
    "StateChange",
    "StateLimits",
    "ThreadMessage",
    "ThreadTurn",
    "Turn",
    "Usage",
    "ValueInfo",
    "View",
    "Weights",
    "Window",
    "aio",
    "errors",
    "keys",
    "looks_like_secret",
    "messages",
    "open",
    "recalled_block",
    "tools",
]

__getattr__ = lazily(
    __name__,
    {
        "UNSET": "msgspec",
        "Actor": "holdfast.ground.scope",
        "InferenceResult": "holdfast.memories.state.result",
        "NetworkState": "holdfast.memories.state.state",
        "RunRecord": "holdfast.memories.state.run_records",
        "ThreadMessage": "holdfast.memories.state.thread",
        "ThreadTurn": "holdfast.memories.state.thread",
        "StateChange": "holdfast.memories.state.cells",
        "StateLimits": "holdfast.memories.state.message",
        "ValueInfo": "holdfast.memories.state.cells",
        "View": "holdfast.memories.state.history",
        "Window": "holdfast.memories.state.history",
        "Item": "holdfast.memories.longterm.records",
        "LongTermMemory": "holdfast.memories.longterm.memory",
        "LongTermOptions": "holdfast.memories.longterm.records",
        "Recalled": "holdfast.memories.longterm.records",
        "Remembered": "holdfast.memories.longterm.records",
        "RunEntry": "holdfast.memories.run.entry",
        "RunLimits": "holdfast.memories.run.entry",
        "RunMemory": "holdfast.memories.run.memory",
        "Turn": "holdfast.memories.longterm.records",
        "Usage": "holdfast.memories.state.result",
        "Weights": "holdfast.memories.longterm.records",
        "Holdfast": "holdfast.library.holdfast",
        "Page": "holdfast.ground.pages",
        "aio": "holdfast.aio",
        "errors": "holdfast.errors",
        "keys": "holdfast.keys",
        "looks_like_secret": "holdfast.ground.secrets",
        "messages": "holdfast.messages",
        "open": "holdfast.library.open",
        "recalled_block": "holdfast.memories.longterm.block",
        "tools": "holdfast.tools",
    },
)

__dir__ = public(__name__)
