"""Agents at work, on pydantic-ai: steps, tasks, plans, teams and networks (extra `agents`)."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.ground.errors import MissingExtra
from holdfast.ground.lazy import lazily

if TYPE_CHECKING:
    from holdfast.memories.state.result import InferenceResult as InferenceResult
    from holdfast.runtime.agent import Agent as Agent
    from holdfast.runtime.engine_history import EngineHistory as EngineHistory
    from holdfast.runtime.history import History as History
    from holdfast.runtime.history import HistoryContext as HistoryContext
    from holdfast.runtime.hooks import AgentHooks as AgentHooks
    from holdfast.runtime.hooks import AgentStart as AgentStart
    from holdfast.runtime.memory_history import InMemoryHistory as InMemoryHistory
    from holdfast.runtime.plans.plan import TaskPlan as TaskPlan
    from holdfast.runtime.plans.problem import PlanProblem as PlanProblem
    from holdfast.runtime.plans.shapes import Step as Step
    from holdfast.runtime.plans.shapes import Task as Task
    from holdfast.runtime.team.board import TaskBoard as TaskBoard
    from holdfast.runtime.team.bus import MessageBus as MessageBus
    from holdfast.runtime.team.tools import team_tools as team_tools
    from holdfast.runtime.tool_context import ToolContext as ToolContext

if find_spec("pydantic_ai") is None or find_spec("jsonschema") is None:
    raise MissingExtra("agents")

__all__ = [
    "Agent",
    "AgentHooks",
    "AgentStart",
    "EngineHistory",
    "History",
    "HistoryContext",
    "InMemoryHistory",
    "InferenceResult",
    "MessageBus",
    "PlanProblem",
    "Step",
    "Task",
    "TaskBoard",
    "TaskPlan",
    "ToolContext",
    "team_tools",
]

__getattr__ = lazily(
    __name__,
    {
        "Agent": "holdfast.runtime.agent",
        "AgentHooks": "holdfast.runtime.hooks",
        "AgentStart": "holdfast.runtime.hooks",
        "EngineHistory": "holdfast.runtime.engine_history",
        "History": "holdfast.runtime.history",
        "HistoryContext": "holdfast.runtime.history",
        "InMemoryHistory": "holdfast.runtime.memory_history",
        "InferenceResult": "holdfast.memories.state.result",
        "PlanProblem": "holdfast.runtime.plans.problem",
        "Step": "holdfast.runtime.plans.shapes",
        "Task": "holdfast.runtime.plans.shapes",
        "TaskPlan": "holdfast.runtime.plans.plan",
        "MessageBus": "holdfast.runtime.team.bus",
        "TaskBoard": "holdfast.runtime.team.board",
        "ToolContext": "holdfast.runtime.tool_context",
        "team_tools": "holdfast.runtime.team.tools",
    },
)
