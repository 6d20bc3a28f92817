"""The three tools a model plans with, as it sees them."""

from typing import Any, Final

from pydantic_ai.tools import ToolDefinition

ADD, REMOVE, FINISH = "add_task", "remove_task", "finish_plan"

_TEXT: Final = {"type": "string"}
_NAMES: Final = {"type": "array", "items": _TEXT}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _described(what: dict[str, Any], description: str) -> dict[str, Any]:
    return what | {"description": description}


_SCHEMA: Final = {"type": ["string", "object"]}
_STEP: Final = _object(
    ["id", "instructions"],
    id=_described(_TEXT, "Unique in the whole plan."),
    instructions=_described(
        _TEXT,
        "The whole instruction of its agent: what to do, with what data, and for what purpose.",
    ),
    depends_on=_described(_NAMES, "Steps of this task and inputs that it needs the results of."),
    output_schema=_described(
        _SCHEMA, "JSON Schema of its result; for a process step, of each item's."
    ),
    tools=_described(_NAMES, "Tools it may use; all when left out."),
    mode=_described(
        _TEXT | {"enum": ["discover", "process", "aggregate"]},
        "What it does with a list: find it, work on each item, bring results together.",
    ),
    per_item_instructions=_described(
        _TEXT, "For a process step: the instruction of each item's agent."
    ),
    per_item_schema=_described(_SCHEMA, "For a process step: JSON Schema of an item's result."),
)

TOOLS: Final = (
    ToolDefinition(
        name=ADD,
        description="Add a task with its steps. All its problems are returned at once.",
        parameters_json_schema=_object(
            ["title", "steps"],
            id=_described(_TEXT, "Unique in the plan; made from the title when left out."),
            title=_described(_TEXT, "What it is, in a few words."),
            description=_described(_TEXT, "What it is for."),
            depends_on=_described(_NAMES, "Tasks added before whose results it needs."),
            steps=_described(
                {"type": "array", "items": _STEP}, "Its steps; the last gives its result."
            ),
        ),
    ),
    ToolDefinition(
        name=REMOVE,
        description="Take a task out of the plan again. No other task may need it.",
        parameters_json_schema=_object(["id"], id=_described(_TEXT, "The task's id.")),
    ),
    ToolDefinition(
        name=FINISH,
        description="Declare the plan complete. It is then checked as a whole.",
        parameters_json_schema=_object(
            [],
            title=_described(_TEXT, "What the plan is for, in a few words."),
            final_task=_described(
                _TEXT, "The task whose result is the plan's; the last by default."
            ),
        ),
    ),
)
