"""Entries of a run as one block for a prompt, which nothing that is stored can close."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec

from holdfast.memories.run.entry import RunEntry

VALUE_CHARS: Final = 4_000
"""Characters of a value that the block shows."""

_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render(entries: Iterable[RunEntry]) -> str:
    """Return the block of *entries*, the oldest first, or "" when there are none."""
    parts = [_part(each) for each in sorted(entries, key=attrgetter("created_at"))]
    return "\n".join(("<run_memory>", *parts, "</run_memory>")) if parts else ""


def one_line(text: str) -> str:
    """Return *text* with a space for each run of white space and line breaks."""
    return " ".join(text.split())


def _part(entry: RunEntry) -> str:
    key = _escaped(entry.key)
    title = _escaped(one_line(entry.title or "")) or key
    lines = [f"## {entry.kind}: {title} ({key})"]
    if entry.description:
        lines.append(_escaped(entry.description))
    text = _text(entry)
    lines.append(_escaped(text[:VALUE_CHARS]))
    if (more := len(text) - VALUE_CHARS) > 0:
        lines.append(f"[… {more:,} more characters: read {key}]")
    return "\n".join(lines)


def _text(entry: RunEntry) -> str:
    value = entry.value
    if isinstance(value, str):
        return value
    return msgspec.json.format(entry.value_json, indent=2).decode()


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)
