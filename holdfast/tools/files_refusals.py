"""What the tool `memory` says when it cannot do what a model asked.

Models are trained on these sentences, so where the same mistake is known to them by a sentence
it is that one, letter by letter; the others say what to try next. *p* is always the path as the
model gave it.
"""

from collections.abc import Sequence

from holdfast.ground.errors import ToolRefused, shortened
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX


def outside(p: str) -> ToolRefused:
    """The path does not begin at the root."""
    return ToolRefused(f"Path must start with /memories, got: {p}")


def escaping(p: str) -> ToolRefused:
    """The path begins at the root and leads out of it."""
    return ToolRefused(f"Path {p} would escape /memories directory")


def illegal(p: str, reason: str) -> ToolRefused:
    """No memory can have such a path."""
    return ToolRefused(f"Invalid path {p}: {reason}")


def nothing_to_open(p: str) -> ToolRefused:
    """There is nothing to view or edit."""
    return ToolRefused(f"The path {p} does not exist. Please provide a valid path.")


def nothing_there(p: str) -> ToolRefused:
    """There is nothing to delete or rename."""
    return ToolRefused(f"The path {p} does not exist")


def a_directory(p: str) -> ToolRefused:
    """Only a file can be edited."""
    return ToolRefused(f"The path {p} is not a file.")


def taken(p: str) -> ToolRefused:
    """A file is never overwritten by creating it."""
    return ToolRefused(f"File {p} already exists")


def destination_taken(p: str) -> ToolRefused:
    """Nothing is overwritten by renaming."""
    return ToolRefused(f"The destination {p} already exists")


def below_a_file(p: str, ancestor: str) -> ToolRefused:
    """What would have to be a directory is a file."""
    return ToolRefused(f"Cannot create {p}: {ancestor} is a file, not a directory.")


def the_root(act: str) -> ToolRefused:
    """The root stays where it is."""
    return ToolRefused(f"Cannot {act} the /memories directory itself")


def into_itself(p: str) -> ToolRefused:
    """A thing cannot be moved below itself."""
    return ToolRefused(f"Cannot rename {p} into itself.")


def too_many_lines(p: str) -> ToolRefused:
    """Line numbers have six digits."""
    return ToolRefused(f"File {p} exceeds maximum line limit of 999,999 lines.")


def no_such_lines(view_range: Sequence[object], count: int) -> ToolRefused:
    """The range is no range, or no line is in it."""
    shown = shortened(", ".join(map(str, view_range)))
    return ToolRefused(f"Invalid `view_range` parameter: [{shown}]. The file has {count} lines.")


def no_such_line(line: int, count: int) -> ToolRefused:
    """Lines can be inserted only where there are lines, or at an end."""
    return ToolRefused(
        f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {count}]."
    )


def empty_old_str() -> ToolRefused:
    """The empty text is everywhere."""
    return ToolRefused("No replacement was performed. old_str must not be empty.")


def absent_old_str(p: str, old_str: str) -> ToolRefused:
    """The text to replace is not in the file."""
    return ToolRefused(
        f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {p}."
    )


def ambiguous_old_str(old_str: str, lines: Sequence[int]) -> ToolRefused:
    """The text to replace is in the file more than once, in these *lines*."""
    return ToolRefused(
        f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines:"
        f" {', '.join(map(str, lines))}. Please ensure it is unique"
    )


def too_large(p: str, size: int) -> ToolRefused:
    """The file would be over its limit."""
    return ToolRefused(
        f"File {p} would be {size} bytes; a memory holds at most {CONTENT_BYTES_MAX:,} bytes."
        " Split it into several files."
    )


def contended(p: str) -> ToolRefused:
    """Somebody else won every race for this file."""
    return ToolRefused(
        f"The file {p} is being changed by someone else. View it again before editing."
    )


def full(cap: int) -> ToolRefused:
    """The store is at its cap."""
    return ToolRefused(
        f"The memory store is full ({cap} files). Delete or merge files, then try again."
    )


def archived() -> ToolRefused:
    """The store is archived."""
    return ToolRefused(
        "The memory store is archived: it can be read, and files can be deleted,"
        " but nothing can be written."
    )


def read_only() -> ToolRefused:
    """The tool, or the credential behind it, may only look."""
    return ToolRefused("This memory is read-only; only the view command works.")
