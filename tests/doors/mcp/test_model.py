"""A scripted model in a host's loop: it recalls, remembers, and corrects refused calls."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doors.mcp.hosting import parsed
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

Step = Callable[[Any], tuple[str, dict[str, Any]] | str]
"""From the result of the call before to the next call, or the text at the end."""


class Script:
    """A model that takes one step after the other, and what it was shown."""

    def __init__(self, *steps: Step) -> None:
        self._steps: Iterator[Step] = iter(steps)
        self.tools = list[str]()
        self.results = list[Any]()

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.tools = [each.name for each in info.function_tools]
        for part in messages[-1].parts:
            if part.part_kind in {"tool-return", "retry-prompt"}:
                self.results.append(getattr(part, "content"))  # noqa: B009 - of many types
        step = next(self._steps)(self.results[-1] if self.results else None)
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        return ModelResponse(parts=[ToolCallPart(*step)])


async def ran(url: str, *steps: Step) -> tuple[str, Script]:
    """Run *steps* as the model of an agent whose tools are those at *url*."""
    script = Script(*steps)
    agent = Agent(FunctionModel(script), toolsets=[MCPToolset(url)], retries=2)
    return (await agent.run("Go on.")).output, script


def recall(query: str) -> Step:
    return lambda _: ("ltm_recall", {"query": query})


def texts(found: Any) -> str:
    return ", ".join(each["text"] for each in found["results"]) or "nothing"


async def test_a_model_recalls_in_a_second_session_what_it_remembered_in_the_first(
    url: str,
) -> None:
    address = f"{url}?user=ada&store=Notes"

    before, script = await ran(
        address,
        recall("drinks"),
        lambda found: ("ltm_remember", {"text": f"Ada drinks tea, not {found['count']} coffees."}),
        lambda stored: f"stored: {stored['stored']}",
    )
    after, _ = await ran(address, recall("what does Ada drink"), texts)
    other, _ = await ran(f"{url}?user=eve&store=Notes", recall("what does Ada drink"), texts)

    assert script.tools == ["ltm_recall", "ltm_remember", "ltm_forget", "memory"]
    assert before == "stored: True"
    assert after == "Ada drinks tea, not 0 coffees."
    assert other == "nothing"


async def test_a_model_reads_a_refusal_and_corrects_its_call(url: str, hf: Holdfast) -> None:
    output, script = await ran(
        f"{url}?user=ada&agent=scout",
        lambda _: ("memory_store", {"key": "target", "category": "core", "content": ""}),
        lambda refusal: (
            "memory_store",
            {
                "key": "target",
                "category": "core",
                # The field that the refusal names is the one that is corrected.
                parsed(refusal)["error"]["field"]: "fly.io",
            },
        ),
        lambda stored: stored["outcome"],
    )

    assert parsed(script.results[0])["error"]["next"]
    assert output == "created"
    entry = hf.durable("scout").get("target")
    assert entry is not None
    assert entry.content == "fly.io"


async def test_a_model_reads_why_a_note_was_not_changed_and_corrects_its_call(
    url: str, hf: Holdfast
) -> None:
    note: dict[str, Any] = {"path": "/memories/plan.md"}

    def corrected(refusal: str) -> tuple[str, dict[str, Any]]:
        assert "plan.md" in refusal
        return "memory", {"command": "view", **note}

    output, _ = await ran(
        f"{url}?store=Notes",
        lambda _: ("memory", {"command": "create", "file_text": "Use tabs.", **note}),
        lambda _: (
            "memory",
            {"command": "str_replace", "old_str": "spaces", "new_str": "tabs", **note},
        ),
        corrected,
        lambda shown: (
            "memory",
            {
                "command": "str_replace",
                "old_str": shown.split("\t")[-1].strip(),
                "new_str": "Use spaces.",
                **note,
            },
        ),
        lambda _: "done",
    )

    assert output == "done"
    memory = hf.memory_stores.memories.at(hf.memory_stores.list().data[0].id, "/plan.md")
    assert memory is not None
    assert memory.content == "Use spaces."
