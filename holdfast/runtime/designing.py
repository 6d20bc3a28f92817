"""A team designed by a model: the step that asks for it, and the agents it names."""

import re
from importlib.resources import files
from typing import Any, Final, TypeAlias

from holdfast.ground.errors import InvalidInput
from holdfast.runtime.agent import check_name
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.shapes import Step
from holdfast.tools.base import Schema

Design: TypeAlias = list[dict[str, Any]]

_PLACE: Final = re.compile(r"\{(objective|most|least)\}")


def design_step(id: str, objective: str, *, least: int, most: int) -> Step:
    """Return the step of designing *least* to *most* agents for *objective*."""
    said = {"objective": objective, "most": str(most), "least": str(least)}
    page = files("holdfast.runtime").joinpath("prompts", "design_team.md").read_text("utf-8")
    # In one pass: what is put in is not looked at again.
    instructions = _PLACE.sub(lambda found: said[found[1]], page.strip())
    return Step(
        id=id, instructions=instructions, output_schema=_schema(least=least, most=most), tools=[]
    )


def refused(design: Design) -> str | None:
    """Return why the agents of *design* cannot be a team, or None."""
    names = [each["name"] for each in design]
    if doubled := next((each for each in names if names.count(each) > 1), None):
        return f"Two agents are called {doubled!r}: give each a name of its own."
    try:
        for name in names:
            check_name(name)
    except InvalidInput as error:
        return str(error)
    return None


def designed(design: Design) -> list[Agent]:
    """Return the agents of *design*."""
    return [
        Agent(
            each["name"],
            description=each["description"],
            instructions=each["instructions"],
            skills=tuple(each.get("skills") or ()),
        )
        for each in design
    ]


def _schema(*, least: int, most: int) -> Schema:
    text: Schema = {"type": "string", "minLength": 1}
    return {
        "type": "array",
        "minItems": least,
        "maxItems": most,
        "items": {
            "type": "object",
            "required": ["name", "description", "instructions"],
            "properties": {
                "name": text,
                "description": text,
                "instructions": text,
                "skills": {"type": "array", "items": text},
            },
        },
    }
