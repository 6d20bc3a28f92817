"""Agents to call in tests, and what their models were asked."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolReturnPart

from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import RunFailed
from holdfast.memories.state.history import View
from holdfast.memories.state.message import TextMessage, ToolResultMessage
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, RunEvent
from holdfast.runtime.inference.run_types import InferenceRun
from holdfast.testing.scripted import Asked, ScriptedModel, Turn


def agent(turns: Sequence[Turn], **changes: Any) -> Agent:
    """Return an agent whose model says *turns*."""
    given: dict[str, Any] = {"instructions": "Be brief.", "model": ScriptedModel(turns)} | changes
    return Agent(given.pop("name", "ada"), **given)


def model_of(agent: Agent) -> ScriptedModel:
    """Return the model of *agent*."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


def said(asked: Asked) -> list[tuple[str, object]]:
    """Return what a request said: the kind of each part, and its content or the tool's name."""
    return [
        (part.part_kind, getattr(part, "content", getattr(part, "tool_name", None)))
        for message in asked.messages
        for part in message.parts
    ]


def came_back(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """Return what a model was told of its calls."""
    return [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


def error_of(result: InferenceResult | ToolResultMessage) -> dict[str, Any]:
    """Return the error of the only call of *result*."""
    message = result.tool_calls[0] if isinstance(result, InferenceResult) else result
    error = message.content["error"]
    assert isinstance(error, dict)
    return error


def of(error: RunFailed) -> InferenceResult:
    """Return the result that *error* tells of."""
    assert isinstance(error.result, InferenceResult)
    return error.result


def contents(result: InferenceResult) -> list[object]:
    """Return the content of each text of *result*."""
    return [each.content for each in result.output if isinstance(each, TextMessage)]


def among(
    input: str, *, state: NetworkState, id: str = "run_9", view: View | None = None
) -> InferenceRun:
    """Return a run of several agents, as far as one call needs it."""
    run = InferenceRun(id=id, input=input, state=state, clock=SystemClock(), view=view or View())
    run.handle = run
    return run


class Heard:
    """Keeps the events it is told."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def __call__(self, event: RunEvent) -> None:
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        """The types of the events, in their order."""
        return [each.type for each in self.events]

    def of(self, type: str) -> list[RunEvent]:
        """Return the events of *type*."""
        return [each for each in self.events if each.type == type]
