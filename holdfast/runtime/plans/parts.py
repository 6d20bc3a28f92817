"""What a run was begun with, part by part, so that it is not gone on with as another."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.models import Model

from holdfast.ground.json_values import JSON
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.checkpoints import hashed
from holdfast.runtime.context import model_of
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import TaskPlan, plain
from holdfast.runtime.plans.schedule import PlanContext
from holdfast.runtime.tools import offered


def parts_of(plan: TaskPlan, inputs: Mapping[str, JSON], means: PlanContext) -> dict[str, str]:
    """Return the hash of each part of a run by its name."""
    agent = means.agent
    told: dict[str, Any] = {
        "plan.title": plan.title,
        "plan.final_task": plan.final_task,
        **{f"plan.tasks[{number}]": plain(task) for number, task in enumerate(plan.tasks)},
        "inputs": inputs,
        "model": _model(model_of(means.context, agent=agent, model=means.model)),
        "system_prompt": means.system_prompt,
        "agent": _agent(agent),
        "tools": _tools([*means.tools, *(agent.tools if agent else ())]),
        "toolsets": _toolsets([*means.toolsets, *(agent.toolsets if agent else ())]),
    }
    return {name: hashed(part) for name, part in told.items()}


def _model(model: AnyModel) -> str:
    return f"{model.system}:{model.model_name}" if isinstance(model, Model) else model


def _agent(agent: Agent | None) -> list[str] | None:
    """Return whose words stand in the prompts; of a function that makes them, its name."""
    if agent is None:
        return None
    said = agent.instructions
    words = said if isinstance(said, str) else getattr(said, "__qualname__", type(said).__name__)
    return [agent.name, words]


def _tools(tools: Sequence[AnyTool]) -> list[list[Any]]:
    return [[tool.name, tool.function_schema.json_schema] for tool in offered(tools)]


def _toolsets(toolsets: Sequence[AnyToolset]) -> list[list[str | None]]:
    """Return what is known of toolsets before they are asked: what their tools are is not."""
    return [[type(each).__name__, each.id] for each in toolsets]
