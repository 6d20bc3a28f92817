"""A whole conversation through each adapter, by whichever SDK this interpreter has; prints JSON.

Needs holdfast and anthropic and nothing else, so that one script judges every release of the SDK:
`python adapter_probe.py`.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import anthropic

sys.path.insert(0, str(Path(__file__).parent))

from scripted_model import ScriptedModel, Turn, scripted_model

import holdfast
import holdfast.aio
from holdfast.doors.adapters.anthropic_tool import AsyncHoldfastMemoryTool, HoldfastMemoryTool

A = "/memories/notes/a.md"

CONVERSATION: list[Turn] = [
    [{"command": "view", "path": "/memories"}],
    [{"command": "create", "path": A, "file_text": "tabs\n"}],
    [
        {"command": "create", "path": A, "file_text": "again"},
        {"command": "str_replace", "path": A, "old_str": "tabs", "new_str": "spaces"},
        {"command": "insert", "path": A, "insert_line": 1, "insert_text": "four of them"},
    ],
    [{"command": "view", "path": A, "view_range": [1, 2]}],
    [
        {"command": "insert", "path": A, "insert_line": "1", "insert_text": "x"},
        {"command": "undo_edit", "path": A},
        {"command": "view"},
    ],
    [{"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/old"}],
    [{"command": "delete", "path": "/memories/old/a.md"}],
    [{"command": "view", "path": "/etc"}],
]

ASKED: dict[str, Any] = {
    "model": "scripted",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Remember how I indent."}],
}


def told(model: ScriptedModel, tool: Any, said: Any) -> dict[str, Any]:
    """Return what one conversation came to."""
    return {
        "results": model.results(),
        "tools": model.requests[0]["tools"],
        "to_dict": tool.to_dict(),
        "said": said.content[0].text,
    }


def plain() -> dict[str, Any]:
    """Return what came of it through the sync runner."""
    with holdfast.open(":memory:") as hf, scripted_model(CONVERSATION) as model:
        store_id = hf.memory_stores.create(name="Notes").id
        tool = HoldfastMemoryTool(hf, store_id, cache_control={"type": "ephemeral"})
        with anthropic.Anthropic(api_key="none", base_url=model.url, max_retries=0) as client:
            messages = cast("Any", client.beta.messages)
            said = messages.tool_runner(tools=[tool], **ASKED).until_done()
        answer = told(model, tool, said)
        hf.memory_stores.memories.create(store_id, path="/left.md", content="")
        cleared = tool.clear_all_memory()
        return {**answer, "cleared": cleared, "left": len(hf.memory_stores.memories.list(store_id))}


async def awaited(*, awaitable: bool) -> dict[str, Any]:
    """Return what came of it through the async runner, with an awaitable handle or a plain one."""
    with holdfast.open(":memory:") as here, scripted_model(CONVERSATION) as model:
        there = await holdfast.aio.open(":memory:")
        store = (
            await there.memory_stores.create(name="Notes")
            if awaitable
            else here.memory_stores.create(name="Notes")
        )
        tool = AsyncHoldfastMemoryTool(there if awaitable else here, store.id)
        client = anthropic.AsyncAnthropic(api_key="none", base_url=model.url, max_retries=0)
        async with client:
            messages = cast("Any", client.beta.messages)
            said = await messages.tool_runner(tools=[tool], **ASKED).until_done()
        cleared = await tool.clear_all_memory()
        await there.close()
        return {**told(model, tool, said), "cleared": cleared}


def probe() -> dict[str, Any]:
    """Return what came of it through every adapter."""
    return {
        "sdk": anthropic.__version__,
        "plain": plain(),
        "awaited": asyncio.run(awaited(awaitable=True)),
        "hopping": asyncio.run(awaited(awaitable=False)),
    }


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
