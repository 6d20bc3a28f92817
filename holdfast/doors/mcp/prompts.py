"""Prompts: commands that a person calls by name in a host."""

from collections.abc import Mapping

import mcp_types as types

from holdfast import recalled_block
from holdfast.doors.mcp.host_tool import encoded
from holdfast.doors.mcp.owners import HostMemories
from holdfast.doors.mcp.resources import PAGE, newest_items
from holdfast.doors.mcp.tools import words
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.stores.records import Memory
from holdfast.tools.base import JSON

TOPIC_RESULTS = 10
_TOPIC_CHARACTERS = 4_096


class HostPrompts:
    """The prompts of one host; one whose memory is missing is not listed."""

    def __init__(self, memories: HostMemories, *, may_write: bool = True) -> None:
        self._memories, self._touch = memories, may_write
        read_only = memories.owners.read_only or not may_write
        text = words()
        topic = types.PromptArgument(
            name="topic", description=text["prompt.recall.topic"], required=True
        )
        what = types.PromptArgument(
            name="what", description=text["prompt.keep.what"], required=False
        )
        offered = {
            "recall": memories.longterm is not None,
            "briefing": not memories.owners.nobody and memories.owners.profile != "graph",
            "keep": memories.longterm is not None and not read_only,
        }
        arguments = {"recall": [topic], "briefing": [], "keep": [what]}
        self._prompts = {
            name: types.Prompt(
                name=name, description=text[f"prompt.{name}"], arguments=arguments[name]
            )
            for name, there in offered.items()
            if there
        }

    def listed(self) -> types.ListPromptsResult:
        """Return the prompts."""
        return types.ListPromptsResult(prompts=list(self._prompts.values()))

    def get(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return the messages of *name*; raise NotFound if it is not listed."""
        prompt = self._prompts.get(name)
        if prompt is None:
            there = ", ".join(self._prompts) or "none"
            raise NotFound("prompt", name, next=f"There are: {there}.")
        known = {each.name for each in prompt.arguments or ()}
        if unknown := sorted(set(arguments) - known):
            raise InvalidInput(unknown[0], "is not an argument of this prompt")
        made = {"recall": self._recall, "briefing": self._briefing, "keep": self._keep}
        text = made[name](arguments)
        message = types.PromptMessage(
            role="user", content=types.TextContent(type="text", text=text)
        )
        return types.GetPromptResult(description=prompt.description, messages=[message])

    def _recall(self, arguments: Mapping[str, str]) -> str:
        topic = arguments.get("topic", "").strip()
        if not topic or len(topic) > _TOPIC_CHARACTERS:
            reason = f"must be 1 to {_TOPIC_CHARACTERS:,} characters"
            raise InvalidInput("topic", reason, next="Say what to recall.")
        ltm = self._memories.longterm
        found = ltm.recall(topic, TOPIC_RESULTS, touch=self._touch) if ltm else []
        if not found:
            return words()["prompt.recall.empty"]
        return f"{recalled_block(found)}\n\n{words()['prompt.recall.text']}"

    def _briefing(self, arguments: Mapping[str, str]) -> str:
        del arguments
        memories, parts = self._memories, list[str]()
        if memories.durable is not None:
            parts.append(memories.durable.hydrate().render())
        important = sorted(newest_items(memories, 1_000), key=lambda each: -each.importance)
        if block := recalled_block(important[:TOPIC_RESULTS]):
            parts.append(block)
        store = memories.store_id()
        if store is not None:
            page = memories.hf.memory_stores.memories.list(store, limit=PAGE)
            paths: list[JSON] = [
                f"/memories{each.path}" for each in page.data if isinstance(each, Memory)
            ]
            files: dict[str, JSON] = {"files": paths}
            parts.append(encoded(files | ({"more": True} if page.next_page else {})))
        return "\n\n".join([*filter(None, parts), words()["prompt.briefing.text"]])

    def _keep(self, arguments: Mapping[str, str]) -> str:
        text, what = words(), arguments.get("what", "").strip()
        only = f"\n\n{text['prompt.keep.only']} {what}" if what else ""
        return text["prompt.keep.text"] + only
