"""The items of a process step: where they come from, and what each agent is told of its own."""

import re
from dataclasses import replace
from typing import cast

import msgspec

from holdfast.ground.json_values import JSON
from holdfast.runtime.plans.plan import Step

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
}


class NotAList(ValueError):
    """A step that works on items was given none; the text says what it was given."""


def items_of(value: JSON) -> list[JSON]:
    """Return the items in *value*: a list, or the only list among an object's members."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        lists = {name: each for name, each in value.items() if isinstance(each, list)}
        if len(lists) == 1:
            return next(iter(lists.values()))
        shown = f" ({', '.join(lists)})" if lists else ""
        raise NotAList(f"an object with {len(lists) or 'no'} lists{shown}")
    raise NotAList(_NAMES[type(value)])


def told(template: str, item: JSON, index: int) -> str:
    """Return *template* with what it says of *item*, in one pass.

    `{item}` and `{index}` stand for the whole and its place, `{field}` for a member of an object.
    When nothing of the item is asked for it follows as JSON, so that no agent works blind.
    """
    values: dict[str, JSON] = {**item} if isinstance(item, dict) else {}
    values |= {"item": item, "index": index}
    filled = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal filled
        name = found[1]
        if name not in values:
            return found[0]
        filled += 1
        return _text(values[name])

    text = _PLACEHOLDER.sub(fill, template)
    return text if filled else f"{template}\n\n{_compact(item)}"


def item_step(step: Step, item: JSON, index: int) -> Step:
    """Return the step that works on *item* of the process step *step*."""
    return replace(
        step,
        id=f"{step.id}.{index}",
        instructions=told(step.per_item_instructions or step.instructions, item, index),
        output_schema=step.output_schema if step.per_item_schema is None else step.per_item_schema,
        mode=None,
        per_item_instructions=None,
        per_item_schema=None,
    )


def good(index: int, item: JSON, result: JSON) -> JSON:
    """Return how an item that was done stands in the result of its step."""
    return {"index": index, "item": item, "ok": True, "result": result}


def bad(index: int, item: JSON, error: str) -> JSON:
    """Return how an item that failed stands in the result of its step."""
    return {"index": index, "item": item, "ok": False, "error": error}


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else _compact(value)


def _compact(value: JSON) -> str:
    return msgspec.json.encode(cast("object", value)).decode()
