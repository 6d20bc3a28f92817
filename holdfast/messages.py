"""What is said along a network, under a public name: message types and their makers."""

from holdfast.memories.state.messages import ErrorKind as ErrorKind
from holdfast.memories.state.messages import GivenMessage as GivenMessage
from holdfast.memories.state.messages import Message as Message
from holdfast.memories.state.messages import Omitted as Omitted
from holdfast.memories.state.messages import TextMessage as TextMessage
from holdfast.memories.state.messages import ToolCall as ToolCall
from holdfast.memories.state.messages import ToolCallMessage as ToolCallMessage
from holdfast.memories.state.messages import ToolResultMessage as ToolResultMessage
from holdfast.memories.state.messages import Window as Window
from holdfast.memories.state.messages import assistant as assistant
from holdfast.memories.state.messages import call as call
from holdfast.memories.state.messages import from_dict as from_dict
from holdfast.memories.state.messages import result as result
from holdfast.memories.state.messages import select as select
from holdfast.memories.state.messages import size_bytes as size_bytes
from holdfast.memories.state.messages import system as system
from holdfast.memories.state.messages import text as text
from holdfast.memories.state.messages import user as user
from holdfast.memories.state.messages import window as window
