"""Long-term memory behind the memory store of Strands."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast import LongTermMemory, tools
from holdfast.doors.adapters.blocks import User, UserMemories
from holdfast.doors.adapters.tools import finished, offered
from holdfast.ground.errors import HoldfastError, MissingExtra, NotPermitted
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions, Recalled
from holdfast.tools.base import Tool

try:
    from strands.memory.types import AddMessagesContext, MemoryEntry, MemoryStore, SearchOptions
    from strands.tools.tools import PythonAgentTool
    from strands.types.tools import AgentTool, ToolResult, ToolUse
except ImportError as error:
    raise MissingExtra("strands", command="pip install strands-agents") from error

if TYPE_CHECKING:
    from strands.memory.extraction.types import ExtractionConfig
    from strands.types.content import Message

FOUND = 5
KINDS = frozenset({"fact", "preference", "decision", "event"})


class HoldfastMemoryStore(MemoryStore):
    """The memory store of Strands on the long-term memory of *user*.

    Without *writable* it only searches. A batch of messages that is retried is stored once.
    """

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: User,
        name: str = "holdfast",
        namespace: str = "chat",
        writable: bool = True,
        extraction: "ExtractionConfig | bool | None" = None,
        max_search_results: int | None = FOUND,
        embedder: Any = None,
        extractor: Any = None,
        options: LongTermOptions | None = None,
    ) -> None:
        self._memories = UserMemories(
            hf,
            user=user,
            namespace=namespace,
            embedder=embedder,
            extractor=extractor,
            options=options,
        )
        self.name, self.writable, self.extraction = name, writable, extraction
        self.description: str | None = "What this user said in earlier conversations."
        self.max_search_results = max_search_results

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled."""
        return self._memory() is not None

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return what is remembered for *query*, best first."""
        most = (options or {}).get("max_search_results") or self.max_search_results or FOUND

        def work() -> list[MemoryEntry]:
            memory = self._memory()
            found = memory.recall(query, most) if memory is not None and query.strip() else []
            return [_entry(each, self.name) for each in found]

        return await finished(work)

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Remember one text; the same text again is stored once."""
        self._refuse_read_only()
        about = metadata or {}
        kind = about.get("kind")

        def work() -> None:
            memory = self._memory()
            if memory is not None and content.strip():
                memory.remember(content, kind if kind in KINDS else "fact")

        await finished(work)

    async def add_messages(
        self, messages: "list[Message]", context: AddMessagesContext | None = None
    ) -> None:
        """Record the texts of *messages*, with their roles; blocks of tools are left out."""
        del context
        self._refuse_read_only()
        said = [{"role": each["role"], "content": _text(each)} for each in messages]
        await finished(lambda: self._memories.remember(self._memories.user(), said, None))

    def get_tools(self) -> list[AgentTool]:
        """Return the tool with which a model forgets."""
        memory = self._memory()
        if memory is None or not self.writable:
            return []
        return tools_for([each for each in tools.longterm(memory) if each.name == "ltm_forget"])

    def _memory(self) -> LongTermMemory | None:
        return self._memories.longterm(self._memories.user())

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
    def call(use: ToolUse, **_: Any) -> ToolResult:
        try:
            answer, status = tool.call(use["input"]), "success"
        except HoldfastError as error:
            answer, status = str(error), "error"
        content = {"text": answer} if isinstance(answer, str) else {"json": answer}
        return {"toolUseId": use["toolUseId"], "status": status, "content": [content]}  # pyright: ignore[reportReturnType]

    spec = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"json": tool.parameters},
    }
    return PythonAgentTool(tool.name, spec, call)  # pyright: ignore[reportArgumentType]


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
