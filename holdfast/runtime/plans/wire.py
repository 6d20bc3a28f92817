"""Steps, tasks and plans as JSON: agents and models by name, types by schema."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType
from pydantic_ai.models import Model

from holdfast.ground.errors import InvalidPlan
from holdfast.ground.json_schema import BadSchema
from holdfast.ground.json_values import DEEPEST, is_nested_over
from holdfast.runtime.agent import AnyModel
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.schema import schema_of
from holdfast.tools.base import Schema, object_schema


class PlanProblem(Struct, frozen=True):
    """A problem that prevents a plan's run.

    `where` is a path such as `plan.tasks[2].steps[0]`.
    """

    where: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


NAMES: Final = frozenset({"depends_on", "tools", "who"})
"""Fields that are lists of names; a text is the list of that name."""


T = TypeVar("T")


def plain(shape: object) -> object:
    """Return the author's fields of *shape*, objects by their name."""
    if is_dataclass(shape):
        return {
            each.name: _plain_field(each.name, getattr(shape, each.name))
            for each in fields(shape)
            if each.init and getattr(shape, each.name) is not UNSET
        }
    if isinstance(shape, list | tuple):
        return [plain(each) for each in cast("Sequence[object]", shape)]
    return shape


def _plain_field(name: str, value: object) -> object:
    if name in SCHEMAS and not isinstance(value, str | dict):
        return schema_of(value)
    if isinstance(value, Agent):
        return value.name
    if isinstance(value, Model):
        return model_name(cast("AnyModel", value))
    return plain(cast("object", value))


def model_name(model: AnyModel) -> str:
    """Return the name of *model*, with its provider."""
    return f"{model.system}:{model.model_name}" if isinstance(model, Model) else model


def written(shape: object) -> str:
    """Return the author's fields of *shape* as JSON, or raise InvalidPlan."""
    try:
        return msgspec.json.encode(plain(shape)).decode()
    except BadSchema as error:
        kind = type(shape).__name__.lower()
        raise InvalidPlan([PlanProblem(kind, error.code, f"a schema {error}")]) from error


def read(kind: type[T], text: str | bytes, where: str) -> T:
    """Return the *kind* in *text*; raise InvalidPlan for unknown or invalid members."""
    if is_nested_over(text):
        raise InvalidPlan([PlanProblem(where, "json", f"is nested over {DEEPEST} deep")])
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidPlan([PlanProblem(where, "json", f"is not JSON: {error}")]) from error
    return shaped(kind, raw, where)


def shaped(kind: type[T], raw: object, where: str) -> T:
    """Return the *kind* in *raw*, decoded JSON, as `read` does."""
    raw = _current(kind, raw)
    if problems := list(_unknown(kind, raw, where)):
        raise InvalidPlan(problems)
    try:
        return _made(kind, msgspec.convert(raw, type=_wire(kind)))
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, path = str(error).partition(" - at `$")
        place = where + path.rstrip("`")
        raise InvalidPlan([PlanProblem(place, "type", what[:1].lower() + what[1:])]) from error


SCHEMAS: Final = ("output_schema", "per_item_schema")

_IN_JSON: Final[dict[str, Any]] = {
    **dict.fromkeys(SCHEMAS, Schema | str | None),
    "agent": str | None,
    "model": str | None,
}
"""Types of fields that may be objects in Python."""


@lru_cache
def _wire(kind: type) -> type[Struct]:
    """Return the type of *kind* in JSON: its fields, with names for objects."""
    wire: list[Any] = []
    for each in fields(cast("Any", kind)):
        inner, required = _inner(kind, each.name), each.default is each.default_factory is MISSING
        hint: Any = _IN_JSON.get(each.name, get_type_hints(kind)[each.name])
        if inner is not None:
            hint = list[_wire(inner)]
        if each.init:
            wire.append((each.name, hint) if required else (each.name, hint | UnsetType, UNSET))
    return msgspec.defstruct(kind.__name__, wire, kw_only=True)


def _inner(kind: type, name: str) -> type | None:
    """Return the kind of the members of the list *name* of *kind*, or None."""
    found = get_args(get_type_hints(kind).get(name)) if name in ("steps", "tasks") else ()
    return found[0] if found else None


def _made(kind: type[T], found: Struct) -> T:
    """Return the *kind* with the fields that *found* has."""
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    for name, value in values.items():
        if (inner := _inner(kind, name)) is not None:
            values[name] = [_made(inner, each) for each in value]
    return kind(**{name: value for name, value in values.items() if value is not UNSET})


FORMER: Final = {"timeout_s": "timeout"}
"""Names that plans in JSON may use for fields of a step."""


def _current(kind: type, raw: object) -> object:
    """Return *raw* with present names of fields, and lists for single names."""
    if not isinstance(raw, Mapping):
        return raw
    found, known = dict(cast("Mapping[str, object]", raw)), get_type_hints(kind)
    for former, name in FORMER.items():
        if name in known and former in found and name not in found:
            found[name] = found.pop(former)
    for key, value in found.items():
        inner = _inner(kind, key)
        if inner is not None and isinstance(value, list):
            found[key] = [_current(inner, each) for each in cast("list[object]", value)]
        elif isinstance(value, str) and key in NAMES:
            found[key] = [value]
    return found


def _unknown(kind: type, raw: object, where: str) -> Iterator[PlanProblem]:
    """Yield a problem for each unknown key of *raw*, at any depth."""
    if not isinstance(raw, Mapping):
        return
    known = {each.name: each for each in fields(cast("Any", kind)) if each.init}
    for key, value in cast("Mapping[str, object]", raw).items():
        if key not in known:
            message = f"is not known; known here: {', '.join(known)}"
            yield PlanProblem(f"{where}.{key}", "unknown_key", message)
            continue
        inner = _inner(kind, key)
        if inner is not None and isinstance(value, list):
            for number, item in enumerate(cast("list[object]", value)):
                yield from _unknown(inner, item, f"{where}.{key}[{number}]")


def _text(description: str, **more: object) -> Schema:
    return {"type": "string", "description": description, **more}


def _names(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _schema(description: str) -> Schema:
    return {"type": ["string", "object"], "description": description}


_STEP: Final = object_schema(
    {
        "id": _text("Unique in the whole plan."),
        "instructions": _text(
            "The whole instruction of its agent: what to do, with what data, and for what purpose."
        ),
        "depends_on": _names("Steps of this task and inputs that it needs the results of."),
        "output_schema": _schema("JSON Schema of its result; for a process step, of each item's."),
        "tools": _names("Tools it may use; all when left out."),
        "mode": _text(
            "What it does with a list: find it, work on each item, bring results together.",
            enum=["discover", "process", "aggregate"],
        ),
        "per_item_instructions": _text("For a process step: the instruction of each item's agent."),
        "per_item_schema": _schema("For a process step: JSON Schema of an item's result."),
    },
    "id",
    "instructions",
)
NEW_TASK: Final = {
    "id": _text("Unique in the plan; made from the title when left out."),
    "title": _text("What it is, in a few words."),
    "description": _text("What it is for."),
    "depends_on": _names("Tasks added before whose results it needs."),
    "steps": {
        "type": "array",
        "items": _STEP,
        "description": "Its steps; the last gives its result.",
    },
}
"""The members of a task that a model may set, with their JSON Schemas."""

NEW_PLAN: Final = {
    "title": _text("What the plan is for, in a few words."),
    "final_task": _text("The task whose result is the plan's; the last by default."),
}
"""The members of a plan that a model may set, with their JSON Schemas."""
