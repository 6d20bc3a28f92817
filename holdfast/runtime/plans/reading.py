"""Plans as JSON, both ways. What is not known is refused, and all of it at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from holdfast.ground.errors import InvalidPlan
from holdfast.runtime.plans.problem import PlanProblem

T = TypeVar("T")


def plain(shape: object) -> object:
    """Return what the author of *shape* wrote, as dicts and lists."""
    if is_dataclass(shape):
        return {each.name: plain(getattr(shape, each.name)) for each in fields(shape) if each.init}
    if isinstance(shape, list | tuple):
        return [plain(each) for each in cast("Sequence[object]", shape)]
    return shape


def written(shape: object) -> str:
    """Return what the author of *shape* wrote, as JSON."""
    return msgspec.json.encode(plain(shape)).decode()


def read(kind: type[T], text: str | bytes, where: str) -> T:
    """Return the *kind* in *text*; InvalidPlan tells what is not known, missing or misshapen."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidPlan([PlanProblem(where, "json", f"is not JSON: {error}")]) from error
    return shaped(kind, raw, where)


def shaped(kind: type[T], raw: object, where: str) -> T:
    """Return the *kind* that *raw*, decoded JSON, describes, as `read` does."""
    if problems := list(_unknown(kind, raw, where)):
        raise InvalidPlan(problems)
    try:
        return msgspec.convert(raw, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, path = str(error).partition(" - at `$")
        place = where + path.rstrip("`")
        raise InvalidPlan([PlanProblem(place, "type", _lower(what))]) from error


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _unknown(kind: type, raw: object, where: str) -> Iterator[PlanProblem]:
    """Find every key of *raw*, however deep, that a *kind* does not have."""
    if not isinstance(raw, Mapping):
        return
    known = {each.name: each for each in fields(cast("Any", kind)) if each.init}
    hints = get_type_hints(kind)
    for key, value in cast("Mapping[str, object]", raw).items():
        if key not in known:
            told = f"is not known; known here: {', '.join(known)}"
            yield PlanProblem(f"{where}.{key}", "unknown_key", told)
            continue
        inner = [each for each in get_args(hints[key]) if is_dataclass(each)]
        if inner and isinstance(value, list):
            for number, item in enumerate(cast("list[object]", value)):
                place = f"{where}.{key}[{number}]"
                yield from _unknown(cast("type", inner[0]), item, place)
