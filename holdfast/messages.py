"""Messages of a network under a public name: types, and functions that make them."""

from holdfast.memories.state.history import ErrorKind as ErrorKind
from holdfast.memories.state.history import GivenMessage as GivenMessage
from holdfast.memories.state.history import Message as Message
from holdfast.memories.state.history import Omitted as Omitted
from holdfast.memories.state.history import TextMessage as TextMessage
from holdfast.memories.state.history import ToolCall as ToolCall
from holdfast.memories.state.history import ToolCallMessage as ToolCallMessage
from holdfast.memories.state.history import ToolResultMessage as ToolResultMessage
from holdfast.memories.state.history import Window as Window
from holdfast.memories.state.history import assistant as assistant
from holdfast.memories.state.history import call as call
from holdfast.memories.state.history import from_dict as from_dict
from holdfast.memories.state.history import result as result
from holdfast.memories.state.history import select as select
from holdfast.memories.state.history import size_bytes as size_bytes
from holdfast.memories.state.history import system as system
from holdfast.memories.state.history import text as text
from holdfast.memories.state.history import user as user
from holdfast.memories.state.history import window as window
