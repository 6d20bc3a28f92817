"""Calls of the tools of run memory for contracts, and the expected errors."""

import json
from typing import Any, Protocol, cast

from holdfast import tools
from holdfast.memories.run.memory import RunMemory

Answer = dict[str, Any]
AT = "2026-01-01T00:00:00.000Z"
"""The instant at which the test's clock stands."""


class Listed(Protocol):
    """List the entries of a memory; a subclass may override the interface it uses."""

    def __call__(self, memory: RunMemory, **arguments: object) -> Answer:
        """Return the result for *arguments*."""
        ...


def call(memory: RunMemory, tool: int, arguments: object, **options: Any) -> Answer:
    """Return the result of tool number *tool* of *memory* for *arguments*."""
    return cast("Answer", tools.run(memory, **options)[tool].call(arguments))


def length(answer: object) -> int:
    """Return the length of *answer* as compact JSON, in characters."""
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def listed_keys(answer: Answer) -> list[str]:
    """Return the keys of the entries in *answer*, a result of the list tool."""
    return [each["key"] for each in answer["entries"]]


def mistake(answer: Answer, field: str | None, type: str = "invalid_input") -> Answer:
    """Check that *answer* is an error about *field* with a next step, and return it."""
    assert set(answer) == {"error"}
    error: Answer = answer["error"]
    assert (error["type"], error["field"]) == (type, field)
    assert error["message"]
    assert error["next"].endswith(".")
    return error
