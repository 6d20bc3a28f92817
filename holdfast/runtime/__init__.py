"""Agents on pydantic-ai: steps, tasks, plans, teams, networks (extra `agents`)."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.ground.errors import MissingExtra
from holdfast.ground.lazy import lazily, public

if TYPE_CHECKING:
    from holdfast.memories.state.result import InferenceResult as InferenceResult
    from holdfast.runtime.agent import AgentHooks as AgentHooks
    from holdfast.runtime.agent import AgentStart as AgentStart
    from holdfast.runtime.agent import UserMessage as UserMessage
    from holdfast.runtime.checkpoints import Checkpoint as Checkpoint
    from holdfast.runtime.checkpoints import EngineCheckpoints as EngineCheckpoints
    from holdfast.runtime.checkpoints import FileCheckpoints as FileCheckpoints
    from holdfast.runtime.checkpoints import MemoryCheckpoints as MemoryCheckpoints
    from holdfast.runtime.context import Context as Context
    from holdfast.runtime.context import ToolContext as ToolContext
    from holdfast.runtime.events import Chunk as Chunk
    from holdfast.runtime.events import LogUpdate as LogUpdate
    from holdfast.runtime.events import MemoryUpdate as MemoryUpdate
    from holdfast.runtime.events import PlanningUpdate as PlanningUpdate
    from holdfast.runtime.events import RunUpdate as RunUpdate
    from holdfast.runtime.events import SessionEvent as SessionEvent
    from holdfast.runtime.events import Spending as Spending
    from holdfast.runtime.events import StepError as StepError
    from holdfast.runtime.events import StepResult as StepResult
    from holdfast.runtime.events import TaskUpdate as TaskUpdate
    from holdfast.runtime.events import TeamUpdate as TeamUpdate
    from holdfast.runtime.events import ToolCallUpdate as ToolCallUpdate
    from holdfast.runtime.events import ToolResultUpdate as ToolResultUpdate
    from holdfast.runtime.history import EngineHistory as EngineHistory
    from holdfast.runtime.history import History as History
    from holdfast.runtime.history import HistoryContext as HistoryContext
    from holdfast.runtime.history import InMemoryHistory as InMemoryHistory
    from holdfast.runtime.inference.agent import Agent as Agent
    from holdfast.runtime.mcp import McpServer as McpServer
    from holdfast.runtime.modes import MultiModeAgent as MultiModeAgent
    from holdfast.runtime.networks.network import Network as Network
    from holdfast.runtime.networks.router import Route as Route
    from holdfast.runtime.networks.router import Router as Router
    from holdfast.runtime.networks.router import RouterContext as RouterContext
    from holdfast.runtime.networks.router import RoutingAgent as RoutingAgent
    from holdfast.runtime.networks.run import NetworkRun as NetworkRun
    from holdfast.runtime.plans.executor import ParallelTaskExecutor as ParallelTaskExecutor
    from holdfast.runtime.plans.executor import Report as Report
    from holdfast.runtime.plans.executor import TaskExecutor as TaskExecutor
    from holdfast.runtime.plans.plan import PlanProblem as PlanProblem
    from holdfast.runtime.plans.plan import Step as Step
    from holdfast.runtime.plans.plan import Task as Task
    from holdfast.runtime.plans.plan import TaskPlan as TaskPlan
    from holdfast.runtime.plans.planner import Approval as Approval
    from holdfast.runtime.plans.planner import TaskPlanner as TaskPlanner
    from holdfast.runtime.run_events import RunEvent as RunEvent
    from holdfast.runtime.session import Session as Session
    from holdfast.runtime.steps.executor import StepExecutor as StepExecutor
    from holdfast.runtime.team.board import TaskBoard as TaskBoard
    from holdfast.runtime.team.bus import MessageBus as MessageBus
    from holdfast.runtime.team.executor import TeamExecutor as TeamExecutor
    from holdfast.runtime.team.result import TeamResult as TeamResult
    from holdfast.runtime.team.tools import team_tools as team_tools
    from holdfast.runtime.workflow import AgentStepExecutor as AgentStepExecutor
    from holdfast.runtime.workflow import AgentStepNode as AgentStepNode
    from holdfast.runtime.workflow import Edge as Edge
    from holdfast.runtime.workflow import FunctionNode as FunctionNode
    from holdfast.runtime.workflow import Workflow as Workflow
    from holdfast.runtime.workflow import WorkflowRunner as WorkflowRunner

if find_spec("pydantic_ai") is None or find_spec("jsonschema") is None:
    raise MissingExtra("agents")

__all__ = [
    "Agent",
    "AgentHooks",
    "AgentStart",
    "AgentStepExecutor",
    "AgentStepNode",
    "Approval",
    "Checkpoint",
    "Chunk",
    "Context",
    "Edge",
    "EngineCheckpoints",
    "EngineHistory",
    "FileCheckpoints",
    "FunctionNode",
    "History",
    "HistoryContext",
    "InMemoryHistory",
    "InferenceResult",
    "LogUpdate",
    "McpServer",
    "MemoryCheckpoints",
    "MemoryUpdate",
    "MessageBus",
    "MultiModeAgent",
    "Network",
    "NetworkRun",
    "ParallelTaskExecutor",
    "PlanProblem",
    "PlanningUpdate",
    "Report",
    "Route",
    "Router",
    "RouterContext",
    "RoutingAgent",
    "RunEvent",
    "RunUpdate",
    "Session",
    "SessionEvent",
    "Spending",
    "Step",
    "StepError",
    "StepExecutor",
    "StepResult",
    "Task",
    "TaskBoard",
    "TaskExecutor",
    "TaskPlan",
    "TaskPlanner",
    "TaskUpdate",
    "TeamExecutor",
    "TeamResult",
    "TeamUpdate",
    "ToolCallUpdate",
    "ToolContext",
    "ToolResultUpdate",
    "UserMessage",
    "Workflow",
    "WorkflowRunner",
    "team_tools",
]

__getattr__ = lazily(
    __name__,
    {
        "MultiModeAgent": "holdfast.runtime.modes",
        "WorkflowRunner": "holdfast.runtime.workflow",
        "Workflow": "holdfast.runtime.workflow",
        "FunctionNode": "holdfast.runtime.workflow",
        "Edge": "holdfast.runtime.workflow",
        "AgentStepNode": "holdfast.runtime.workflow",
        "AgentStepExecutor": "holdfast.runtime.workflow",
        "Agent": "holdfast.runtime.inference.agent",
        "AgentHooks": "holdfast.runtime.agent",
        "AgentStart": "holdfast.runtime.agent",
        "Approval": "holdfast.runtime.plans.planner",
        "Checkpoint": "holdfast.runtime.checkpoints",
        "Chunk": "holdfast.runtime.events",
        "Context": "holdfast.runtime.context",
        "EngineCheckpoints": "holdfast.runtime.checkpoints",
        "EngineHistory": "holdfast.runtime.history",
        "FileCheckpoints": "holdfast.runtime.checkpoints",
        "History": "holdfast.runtime.history",
        "HistoryContext": "holdfast.runtime.history",
        "InMemoryHistory": "holdfast.runtime.history",
        "InferenceResult": "holdfast.memories.state.result",
        "LogUpdate": "holdfast.runtime.events",
        "McpServer": "holdfast.runtime.mcp",
        "MemoryCheckpoints": "holdfast.runtime.checkpoints",
        "MemoryUpdate": "holdfast.runtime.events",
        "MessageBus": "holdfast.runtime.team.bus",
        "Network": "holdfast.runtime.networks.network",
        "NetworkRun": "holdfast.runtime.networks.run",
        "ParallelTaskExecutor": "holdfast.runtime.plans.executor",
        "PlanProblem": "holdfast.runtime.plans.plan",
        "PlanningUpdate": "holdfast.runtime.events",
        "Report": "holdfast.runtime.plans.executor",
        "Route": "holdfast.runtime.networks.router",
        "Router": "holdfast.runtime.networks.router",
        "RouterContext": "holdfast.runtime.networks.router",
        "RoutingAgent": "holdfast.runtime.networks.router",
        "RunEvent": "holdfast.runtime.run_events",
        "RunUpdate": "holdfast.runtime.events",
        "Spending": "holdfast.runtime.events",
        "Session": "holdfast.runtime.session",
        "SessionEvent": "holdfast.runtime.events",
        "Step": "holdfast.runtime.plans.plan",
        "StepError": "holdfast.runtime.events",
        "StepExecutor": "holdfast.runtime.steps.executor",
        "StepResult": "holdfast.runtime.events",
        "Task": "holdfast.runtime.plans.plan",
        "TaskBoard": "holdfast.runtime.team.board",
        "TaskExecutor": "holdfast.runtime.plans.executor",
        "TaskPlan": "holdfast.runtime.plans.plan",
        "TaskPlanner": "holdfast.runtime.plans.planner",
        "TaskUpdate": "holdfast.runtime.events",
        "TeamUpdate": "holdfast.runtime.events",
        "ToolCallUpdate": "holdfast.runtime.events",
        "ToolContext": "holdfast.runtime.context",
        "ToolResultUpdate": "holdfast.runtime.events",
        "UserMessage": "holdfast.runtime.agent",
        "TeamExecutor": "holdfast.runtime.team.executor",
        "TeamResult": "holdfast.runtime.team.result",
        "team_tools": "holdfast.runtime.team.tools",
    },
)

__dir__ = public(__name__)
