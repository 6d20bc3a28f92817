"""What a step's model is told: the contract, which nothing can take away, and the instruction.

Values of memory or inputs are in neither: the model is told where they are.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from holdfast.memories.run import keys
from holdfast.memories.run.memory import RunMemory
from holdfast.runtime.context import Profile
from holdfast.runtime.plans.plan import Step, Task
from holdfast.tools.base import Schema
from holdfast.tools.run import run_prompt

Kind: TypeAlias = Literal["schema", "finish", "unstructured"]

CONCLUDE: Final = (
    "You have reached the limit of this step. Do not start anything new: "
    "call `finish_step` now, with what you know so far."
)
CONCLUDE_IN_TEXT: Final = (
    "You have reached the limit of this step. Do not start anything new: "
    "answer now in plain text, with what you know so far."
)

_PLACES: Final = re.compile(r"<(memory|schema)>")


class Contract(Struct, frozen=True, kw_only=True):
    """What a step's model is held to, whatever stands before it in the prompt."""

    schema: Schema | None
    finish: bool
    profile: Profile

    @property
    def kind(self) -> Kind:
        """Which of the three pages tells it."""
        if self.schema is None:
            return "unstructured"
        return "finish" if self.finish else "schema"

    @property
    def text(self) -> str:
        """The page, with the memory's section and the schema in their places."""
        parts = {
            "memory": run_prompt(profile=self.profile),
            "schema": "" if self.schema is None else _indented(self.schema),
        }
        # In one pass: what is put in is not looked at again.
        return _PLACES.sub(lambda found: parts[found[1]], _page(self.kind))


def system_text(preamble: Sequence[str | None], contract: Contract, *, now: datetime) -> str:
    """Return the *preamble*'s texts, blank ones left out, the contract, and the date."""
    before = [text.strip() for text in preamble if text and text.strip()]
    return "\n\n".join([*before, contract.text, f"The date is {now:%Y-%m-%d} (UTC)."])


def upstream_keys(task: Task, step: Step, upstream: Sequence[str], memory: RunMemory) -> list[str]:
    """Return the keys of what *step* is told to read: what it depends on, then *upstream*.

    A name that is a step of the task means that step; else it is an input, unless only a step of
    that name has left something.
    """
    steps = {each.id for each in task.steps}
    found: list[str] = []
    for name in step.depends_on:
        as_step = keys.step(name)
        is_step = name in steps or (memory.has(as_step) and not memory.has(keys.input(name)))
        found.append(as_step if is_step else keys.input(name))
    return list(dict.fromkeys([*found, *upstream]))


def absent(memory: RunMemory, named: Sequence[str]) -> list[str]:
    """Return those of the keys *named* that hold nothing to read: not there, or marked failed."""
    entries = ((key, memory.get(key)) for key in named)
    return [key for key, entry in entries if entry is None or entry.failed]


def _indented(schema: Schema) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


@cache
def _page(kind: Kind) -> str:
    page = files("holdfast.runtime.steps").joinpath("prompts", f"{kind}.md")
    return page.read_text("utf-8").strip()
