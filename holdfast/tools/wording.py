"""The words that tell a model what a tool is for, read from `prompts/*.md`.

They are pages of their own, so that whoever tunes them reads prose and not Python.
"""

from functools import cache
from importlib.resources import files

from msgspec import Struct


class Wording(Struct, frozen=True, kw_only=True):
    """A tool's description, and its parameters' by name."""

    description: str
    parameters: dict[str, str]


@cache
def wording(page: str) -> Wording:
    """Return what `prompts/<page>.md` says: the description, then a heading per parameter."""
    text = files("holdfast.tools").joinpath("prompts", f"{page}.md").read_text("utf-8")
    description, *sections = text.split("\n## ")
    told = [section.partition("\n") for section in sections]
    return Wording(
        description=description.strip(),
        parameters={name.strip(): words.strip() for name, _, words in told},
    )
