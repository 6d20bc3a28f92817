"""Long-term memory as a block of LlamaIndex's memory; tools for its agents."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from holdfast.doors.adapters.blocks import BUDGET, UserMemories, latest
from holdfast.doors.adapters.conversation import plain_name
from holdfast.doors.adapters.tools import finished, offered, required, result_of
from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import Tool

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
    from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
    from llama_index.core.memory.memory import BaseMemoryBlock
    from llama_index.core.tools.types import AsyncBaseTool, ToolMetadata, ToolOutput
    from llama_index.core.utils import get_tokenizer  # pyright: ignore[reportUnknownVariableType]
except ImportError as error:
    raise MissingExtra("llama-index-core", command="pip install llama-index-core") from error

_SPEAKERS: Final = {
    MessageRole.USER: "user",
    MessageRole.ASSISTANT: "assistant",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
}
_MODELS: Final = ("embedder", "extractor", "options")
_LEFT_OUT = re.compile(r"\(([0-9]+) more left out\)")


class HoldfastMemoryBlock(BaseMemoryBlock[str]):
    """What is remembered about *user*, by the last message of the conversation.

    What leaves short-term memory is remembered, by session. *fields* are those of the block, and
    `embedder`, `extractor` and `options` of long-term memory.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "holdfast"
    namespace: str = Field(default="chat", exclude=True)
    k: int = Field(default=5, exclude=True)
    budget: int = Field(default=BUDGET, exclude=True)
    _memories: UserMemories = PrivateAttr()
    _user: str = PrivateAttr()

    def __init__(self, *, hf: "Holdfast | AsyncHoldfast", user: str, **fields: Any) -> None:
        models = {name: fields.pop(name, None) for name in _MODELS}
        super().__init__(**fields)
        self._user = required("user", user)
        self._memories = UserMemories(
            hf, user=user, namespace=self.namespace, k=self.k, budget=self.budget, **models
        )

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self._memories.enabled

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        query = latest([_text(each) for each in messages or () if each.role == MessageRole.USER])
        return await finished(lambda: self._memories.recalled_block(self._user, query))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str | None, list[dict[str, str]]] = {}
        for each in messages:
            if (role := _SPEAKERS.get(each.role)) is not None:
                session = each.additional_kwargs.get("session_id")
                thread = plain_name(session) if isinstance(session, str) else None
                by_session.setdefault(thread, []).append({"role": role, "content": _text(each)})

        def work() -> None:
            for thread, said in by_session.items():
                self._memories.remember(self._user, said, thread)

        await finished(work)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return *content* without its last lines; None if no line is left."""
        if not content:
            return None
        tokens = cast("Callable[[str], list[Any]]", get_tokenizer())
        most = len(tokens(content)) - tokens_to_truncate
        opening, says, *lines, closing = content.split("\n")
        out = 0
        if lines and (found := _LEFT_OUT.fullmatch(lines[-1])) is not None:
            out = int(found[1])
            lines.pop()
        while lines:
            left = [f"({out} more left out)"] if out else []
            shown = "\n".join((opening, says, *lines, *left, closing))
            if len(tokens(shown)) <= most:
                return shown
            lines.pop()
            out += 1
        return None


def tools_for(*toolsets: Iterable[Tool]) -> list[AsyncBaseTool]:
    """Return tools of ours as LlamaIndex takes them; ToolNameTaken if a name repeats."""
    return [_HoldfastTool(each) for each in offered(toolsets)]


class _Metadata(ToolMetadata):
    """The metadata of a tool of ours, with its schema as it is."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(description=tool.description, name=tool.name)
        self._parameters = tool.parameters

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self._parameters


class _HoldfastTool(AsyncBaseTool):
    """One tool of ours; a mistake of the model reaches it as an error of the tool."""

    def __init__(self, tool: Tool) -> None:
        self._tool, self._metadata = tool, _Metadata(tool)

    @property
    def metadata(self) -> ToolMetadata:
        """The name, the description and the schema."""
        return self._metadata

    def call(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Return the result of a call, or the error as one."""
        try:
            text, is_error = result_of(self._tool, arguments), False
        except ToolRefused as refused:
            text, is_error = str(refused), True
        return ToolOutput(
            content=text,
            tool_name=self._tool.name,
            raw_input=arguments,
            raw_output=text,
            is_error=is_error,
        )

    async def acall(self, *_: Any, **arguments: Any) -> ToolOutput:
        """Return the same as `call`, from an event loop; cancelling waits for its end."""
        return await finished(lambda: self.call(**arguments))


def _text(message: ChatMessage) -> str:
    return "\n".join(each.text for each in message.blocks if isinstance(each, TextBlock))
