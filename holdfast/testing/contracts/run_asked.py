"""How the contracts ask the tools of run memory, and what they expect of a mistake."""

import json
from typing import Any, Protocol, cast

from holdfast import tools
from holdfast.memories.run.memory import RunMemory

Answer = dict[str, Any]
AT = "2026-01-01T00:00:00.000Z"
"""The instant at which the test's clock stands."""


class Listed(Protocol):
    """Lists what a memory holds; who overrides it asks through a door of its own."""

    def __call__(self, memory: RunMemory, **arguments: object) -> Answer:
        """Return the answer to *arguments*."""
        ...


def call(memory: RunMemory, tool: int, arguments: object, **options: Any) -> Answer:
    """Return what the tool of *memory* at the place *tool* answers to *arguments*."""
    return cast("Answer", tools.run(memory, **options)[tool].call(arguments))


def length(answer: object) -> int:
    """Return how many characters *answer* has as compact JSON."""
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def told(answer: Answer) -> list[str]:
    """Return the keys that *answer*, a list, tells of."""
    return [each["key"] for each in answer["entries"]]


def mistake(answer: Answer, field: str | None, type: str = "invalid_input") -> Answer:
    """Return the error that *answer* is, about *field*, with what a model needs to mend it."""
    assert set(answer) == {"error"}
    error: Answer = answer["error"]
    assert (error["type"], error["field"]) == (type, field)
    assert error["message"]
    assert error["next"].endswith(".")
    return error
