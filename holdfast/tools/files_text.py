"""A file of the tool `memory` as text: shown with line numbers, replaced in, inserted into.

Lines are parted by LF alone; CR is text like any other.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.memories.stores.validation import CONTENT_BYTES_MAX
from holdfast.tools import files_arguments as refusals

LINES_MAX = 999_999
NUMBER_WIDTH = 6
CONTEXT = 2
"""Lines shown before and after the first changed one."""


class Edited(Struct, frozen=True, kw_only=True):
    """A new content, and what the model is told of it."""

    content: str
    says: str


def shown(p: str, content: str, view_range: Sequence[object] | None) -> str:
    """Return *content* with line numbers, or the lines of *view_range* (first, last).

    A first line below 1 is 1, a last one past the end or -1 is the end. ToolRefused when that
    leaves no line.
    """
    lines = content.split("\n")
    if len(lines) > LINES_MAX:
        raise refusals.too_many_lines(p)
    first, last = 1, len(lines)
    if view_range is not None:
        first, last = _within(view_range, len(lines))
    return f"Here's the content of {p} with line numbers:\n{_numbered(lines, first, last)}"


def _within(view_range: Sequence[object], count: int) -> tuple[int, int]:
    match view_range:
        case [int(start), int(end)] if not (isinstance(start, bool) or isinstance(end, bool)):
            first, last = max(start, 1), count if end == -1 else min(end, count)
        case _:
            raise refusals.no_such_lines(view_range, count)
    if first > last:
        raise refusals.no_such_lines(view_range, count)
    return first, last


def _numbered(lines: Sequence[str], first: int, last: int) -> str:
    return "\n".join(
        f"{number:>{NUMBER_WIDTH}}\t{line}"
        for number, line in enumerate(lines[first - 1 : last], start=first)
    )


def replaced(p: str, content: str, old: str, new: str) -> Edited:
    """Return *content* with its one *old* replaced by *new*; ToolRefused when there is not one.

    Occurrences are counted with overlap: which of two was meant cannot be known.
    """
    if not old:
        raise refusals.empty_old_str()
    found = _occurrences(content, old)
    if not found:
        raise refusals.absent_old_str(p, old)
    lines = [content.count("\n", 0, at) + 1 for at in found]
    if len(found) > 1:
        raise refusals.ambiguous_old_str(old, lines)
    edited = content[: found[0]] + new + content[found[0] + len(old) :]
    snippet = _numbered(edited.split("\n"), max(lines[0] - CONTEXT, 1), lines[0] + CONTEXT)
    return Edited(
        content=edited,
        says="The memory file has been edited. Here is the snippet showing the change"
        f" (with line numbers):\n{snippet}",
    )


def _occurrences(content: str, old: str) -> list[int]:
    found: list[int] = []
    at = content.find(old)
    while at >= 0:
        found.append(at)
        at = content.find(old, at + 1)
    return found


def inserted(p: str, content: str, line: int, text: str) -> Edited:
    """Return *content* with *text* after its line number *line*, ending in a newline."""
    lines = content.removesuffix("\n").split("\n") if content else []
    if not 0 <= line <= len(lines):
        raise refusals.no_such_line(line, len(lines))
    lines.insert(line, text.rstrip("\n"))
    edited = "\n".join(lines)
    return Edited(
        content=edited if edited.endswith("\n") else f"{edited}\n",
        says=f"The file {p} has been edited.",
    )


def fitting(p: str, content: str) -> str:
    """Return *content* if a memory can hold it; else ToolRefused."""
    size = len(content.encode())
    if size > CONTENT_BYTES_MAX:
        raise refusals.too_large(p, size)
    return content
