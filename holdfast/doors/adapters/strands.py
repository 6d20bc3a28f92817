"""Long-term memory behind Strands' memory store; tools for its agents."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.doors.adapters.blocks import K_MOST, UserMemories
from holdfast.doors.adapters.tools import finished, offered, required, result_of
from holdfast.ground.errors import MissingExtra, NotPermitted, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import Recalled
from holdfast.tools.base import Tool

try:
    from strands.memory.types import AddMessagesContext, MemoryEntry, MemoryStore, SearchOptions
    from strands.tools.tools import PythonAgentTool
    from strands.types.tools import AgentTool, ToolResult, ToolSpec, ToolUse
except ImportError as error:
    raise MissingExtra("strands-agents", command="pip install strands-agents") from error

if TYPE_CHECKING:
    from strands.memory.extraction.types import ExtractionConfig
    from strands.types.content import Message


class HoldfastMemoryStore(MemoryStore):
    """The memory store of Strands on the long-term memory of *user*.

    The messages that one object is given are one conversation, and a batch that is retried is
    stored once. Without *writable* it only searches. *models* are `embedder`, `extractor` and
    `options` of long-term memory.
    """

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: str,
        name: str = "holdfast",
        namespace: str = "chat",
        writable: bool = True,
        extraction: "ExtractionConfig | bool | None" = None,
        max_search_results: int | None = 5,
        **models: Any,
    ) -> None:
        self._user = required("user", user)
        self._memories = UserMemories(hf, user=user, namespace=namespace, **models)
        self._thread = f"strands:{uuid4().hex}"
        self.name, self.writable, self.extraction = name, writable, extraction
        self.description: str | None = "What this user said in earlier conversations."
        self.max_search_results = max_search_results

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self._memories.enabled

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return what is remembered for *query*, best first, at most 100 entries."""
        most = (options or {}).get("max_search_results", self.max_search_results)
        k = None if most is None else min(max(most, 0), K_MOST)
        found = await finished(lambda: self._memories.recalled(self._user, query, k=k))
        return [_entry(each, self.name) for each in found]

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Remember one text; the same text again is stored once."""
        self._refuse_read_only()
        about = metadata or {}
        await finished(lambda: self._memories.remember_text(self._user, content, about))

    async def add_messages(
        self, messages: "list[Message]", context: AddMessagesContext | None = None
    ) -> None:
        """Record the texts of *messages*, with their roles; blocks of tools are left out."""
        self._refuse_read_only()
        said: list[dict[str, Any]] = [
            {"role": each["role"], "content": _text(each)} for each in messages
        ]
        numbers = context.sequence_numbers if context is not None else None
        for number, each in zip(numbers or (), said, strict=False):
            each["event_id"] = _event_id(number, each)
        await finished(lambda: self._memories.remember(self._user, said, self._thread))

    def get_tools(self) -> list[AgentTool]:
        """Return the tool with which a model forgets."""
        if not self.writable:
            return []
        found = [each for tools in self._memories.tools() for each in tools]
        return tools_for([each for each in found if each.name == "ltm_forget"])

    def _refuse_read_only(self) -> None:
        if not self.writable:
            raise NotPermitted(
                f"The memory store {self.name} is read only.",
                needed="writable=True",
                next="Open it with writable=True to write.",
            )


def tools_for(*toolsets: Iterable[Tool]) -> list[AgentTool]:
    """Return tools of ours as Strands takes them; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> AgentTool:
    async def call(use: ToolUse, **_: Any) -> ToolResult:
        id = use["toolUseId"]
        try:
            text = await finished(lambda: result_of(tool, use["input"]))
        except ToolRefused as refused:
            return {"toolUseId": id, "status": "error", "content": [{"text": str(refused)}]}
        return {"toolUseId": id, "status": "success", "content": [{"text": text}]}

    spec: ToolSpec = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": deepcopy(tool.parameters)},  # older releases write into it
    }
    return PythonAgentTool(tool.name, spec, call)


def _event_id(number: int, message: Mapping[str, Any]) -> str:
    """Return the id of a message: agents that share a store number their own from 0."""
    said = f"{message['role']}\0{message['content']}".encode("utf-8", "surrogatepass")
    return f"{number}-{sha256(said).hexdigest()}"


def _text(message: "Message") -> str:
    return "\n".join(each["text"] for each in message["content"] if "text" in each)


def _entry(found: Recalled, store: str) -> MemoryEntry:
    about = {
        "id": found.id,
        "kind": found.item.kind if found.item else None,
        "score": found.score,
        "why": str(found.why["text"]),
    }
    return MemoryEntry(content=found.text, store_name=store, metadata=about)
