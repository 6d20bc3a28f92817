"""Which model is asked, where several were named."""

from holdfast.ground.errors import NoModel
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.context import Context


def model_of(
    context: Context, *, agent: AgentSpec | None = None, model: AnyModel | None = None
) -> AnyModel:
    """Return whom to ask: the agent's model, else *model*, else the context's; NoModel for none."""
    found = (agent.model if agent else None) or model or context.model
    if found is None:
        raise NoModel(
            "No model is set.",
            agent=agent.name if agent else None,
            next="Give one to the agent, to the executor, or to the context.",
        )
    return found
