"""Commands, paths and refusals of the `memory` tool."""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import fields

from holdfast.ground.errors import InvalidInput, ToolRefused, shortened
from holdfast.ground.text import to_nfc
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX, checked_path, checked_place


class ViewPath(Struct, frozen=True, kw_only=True):
    """Show a directory, or a file or a range of its lines."""

    path: str
    view_range: list[object] | None = None


class Create(Struct, frozen=True, kw_only=True):
    """Create a new file."""

    path: str
    file_text: str


class StrReplace(Struct, frozen=True, kw_only=True):
    """Replace the one occurrence of a text in a file."""

    path: str
    old_str: str
    new_str: str = ""


class Insert(Struct, frozen=True, kw_only=True):
    """Add lines to a file after the line with this number; 0 is before the first."""

    path: str
    insert_line: int
    insert_text: str


class Delete(Struct, frozen=True, kw_only=True):
    """Delete a file, or a directory with everything below it."""

    path: str


class RenamePath(Struct, frozen=True, kw_only=True):
    """Rename a file, or a directory with everything below it."""

    old_path: str
    new_path: str


Command: TypeAlias = ViewPath | Create | StrReplace | Insert | Delete | RenamePath

COMMANDS: dict[str, type[Command]] = {
    "view": ViewPath,
    "create": Create,
    "str_replace": StrReplace,
    "insert": Insert,
    "delete": Delete,
    "rename": RenamePath,
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "path": {"type": "string"},
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
    },
    "file_text": {"type": "string"},
    "old_str": {"type": "string"},
    "new_str": {"type": "string"},
    "insert_line": {"type": "integer"},
    "insert_text": {"type": "string"},
    "old_path": {"type": "string"},
    "new_path": {"type": "string"},
}
"""The JSON Schema of each parameter except `command`, in the order of the tool's schema."""

_PYTHON = {"string": str, "integer": int, "array": list}


def read(arguments: object) -> Command:
    """Parse *arguments* into a command; ToolRefused names what is wrong with them.

    Parameters of other commands are ignored; null counts as a missing optional parameter.
    """
    if not isinstance(arguments, dict):
        raise _wrong_type("arguments", "object")
    given = cast("dict[str, object]", arguments)
    make = _command_type(given)
    for field in fields(make):
        if field.name in given:
            if given[field.name] is not None or field.required:
                _check(field.name, given[field.name])
        elif field.required:
            raise _missing(field.name)
    if unknown := [name for name in given if name != "command" and name not in SCHEMAS]:
        takes = ", ".join(field.name for field in fields(make))
        raise ToolRefused(f"Unknown parameter: {shortened(unknown[0])}. Use: command, {takes}.")
    wanted: dict[str, Any] = {
        field.name: given[field.name] for field in fields(make) if given.get(field.name) is not None
    }
    return make(**wanted)


def legible(arguments: object) -> bool:
    """Check whether `read` accepts *arguments*."""
    try:
        read(arguments)
    except ToolRefused:
        return False
    return True


def _command_type(given: dict[str, object]) -> type[Command]:
    if "command" not in given:
        raise _missing("command")
    command = given["command"]
    if not isinstance(command, str):
        raise _wrong_type("command", "string")
    if command not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise ToolRefused(f"Unknown command: {shortened(command)}. Use one of: {known}.")
    return COMMANDS[command]


def _check(name: str, value: object) -> None:
    expected = SCHEMAS[name]["type"]
    # True is an int to Python, and no integer to JSON.
    if not isinstance(value, _PYTHON[expected]) or isinstance(value, bool):
        raise _wrong_type(name, expected)
    # JSON can spell half of a surrogate pair, which is no character and has no UTF-8.
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise _wrong_type(name, "string without lone surrogates")


def _missing(name: str) -> ToolRefused:
    return ToolRefused(f"Missing required parameter: {name}")


def _wrong_type(name: str, expected: str) -> ToolRefused:
    return ToolRefused(f"Invalid type for parameter {name}: expected {expected}.")


# Models are trained on the messages of the reference tool, so the same error has exactly the same
# message here; other messages say what to try next. *p* is always the path as the model wrote it.


def outside(p: str) -> ToolRefused:
    """Refuse a path that does not start with `/memories`."""
    return ToolRefused(f"Path must start with /memories, got: {p}")


def escaping(p: str) -> ToolRefused:
    """Refuse a path that starts at the root and leads out of it."""
    return ToolRefused(f"Path {p} would escape /memories directory")


def illegal(p: str, reason: str) -> ToolRefused:
    """Refuse a path that no memory can have."""
    return ToolRefused(f"Invalid path {p}: {reason}")


def nothing_to_open(p: str) -> ToolRefused:
    """Refuse to view or edit a path that does not exist."""
    return ToolRefused(f"The path {p} does not exist. Please provide a valid path.")


def held(p: str, why: str) -> ToolRefused:
    """Refuse to view or edit a file that waits for a person."""
    return ToolRefused(
        f"The file {p} is held: {why}. It can be viewed once a person has accepted it."
    )


def nothing_there(p: str) -> ToolRefused:
    """Refuse to delete or rename a path that does not exist."""
    return ToolRefused(f"The path {p} does not exist")


def a_directory(p: str) -> ToolRefused:
    """Refuse to edit a directory."""
    return ToolRefused(f"The path {p} is not a file.")


def taken(p: str) -> ToolRefused:
    """Refuse to create a file that exists."""
    return ToolRefused(f"File {p} already exists")


def destination_taken(p: str) -> ToolRefused:
    """Refuse to rename to a path that exists."""
    return ToolRefused(f"The destination {p} already exists")


def below_a_file(p: str, ancestor: str) -> ToolRefused:
    """Refuse a path with a file as a parent."""
    return ToolRefused(f"Cannot create {p}: {ancestor} is a file, not a directory.")


def the_root(act: str) -> ToolRefused:
    """Refuse to delete or rename the root."""
    return ToolRefused(f"Cannot {act} the /memories directory itself")


def into_itself(p: str) -> ToolRefused:
    """Refuse to rename a path to one below itself."""
    return ToolRefused(f"Cannot rename {p} into itself.")


def too_many_lines(p: str) -> ToolRefused:
    """Refuse to show a file whose line numbers exceed six digits."""
    return ToolRefused(f"File {p} exceeds maximum line limit of 999,999 lines.")


def no_such_lines(view_range: Sequence[object], count: int) -> ToolRefused:
    """Refuse an invalid range, or one without lines."""
    shown = shortened(", ".join(map(str, view_range)))
    return ToolRefused(f"Invalid `view_range` parameter: [{shown}]. The file has {count} lines.")


def no_such_line(line: int, count: int) -> ToolRefused:
    """Refuse to insert beyond the end of a file."""
    return ToolRefused(
        f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {count}]."
    )


def empty_old_str() -> ToolRefused:
    """Refuse to replace an empty text."""
    return ToolRefused("No replacement was performed. old_str must not be empty.")


def absent_old_str(p: str, old_str: str) -> ToolRefused:
    """Refuse to replace a text that is not in the file."""
    return ToolRefused(
        f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {p}."
    )


def ambiguous_old_str(old_str: str, lines: Sequence[int]) -> ToolRefused:
    """Refuse to replace a text that is in the file more than once, in *lines*."""
    return ToolRefused(
        f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines:"
        f" {', '.join(map(str, lines))}. Please ensure it is unique"
    )


def too_large(p: str, size: int) -> ToolRefused:
    """Refuse content over the size limit of a memory."""
    return ToolRefused(
        f"File {p} would be {size} bytes; a memory holds at most {CONTENT_BYTES_MAX:,} bytes."
        " Split it into several files."
    )


def contended(p: str) -> ToolRefused:
    """Refuse an edit after other clients changed the file at every try."""
    return ToolRefused(
        f"The file {p} is being changed by someone else. View it again before editing."
    )


def full(cap: int) -> ToolRefused:
    """Refuse to create a file in a store at its cap."""
    return ToolRefused(
        f"The memory store is full ({cap} files). Delete or merge files, then try again."
    )


def archived() -> ToolRefused:
    """Refuse to write to an archived store."""
    return ToolRefused(
        "The memory store is archived: it can be read, and files can be deleted,"
        " but nothing can be written."
    )


def read_only() -> ToolRefused:
    """Refuse to write with a read-only tool or credential."""
    return ToolRefused("This memory is read-only; only the view command works.")


ROOT = "/memories"


class ToolPath(Struct, frozen=True, kw_only=True):
    """A path as the model wrote it, and as it is in the store.

    `path` is a memory's path, without meaning for the root; `below` is the prefix of all paths
    below it.
    """

    given: str
    path: str
    below: str
    is_root: bool

    def holds(self, other: "ToolPath") -> bool:
        """Check whether *other* is below this path."""
        return other.below != self.below and other.below.startswith(self.below)


def checked_root(prefix: str) -> str:
    """Return *prefix* if memories can have paths below it; else raise InvalidInput."""
    if not (prefix.startswith("/") and prefix.endswith("/")) or "//" in prefix:
        raise InvalidInput(
            "prefix",
            "must start and end with a slash, and not hold //",
            given=prefix,
            next="Send a path with a slash at both ends, such as /notes/.",
        )
    checked_place(prefix, field="prefix")
    return prefix


def place(given: str, prefix: str) -> ToolPath:
    """Resolve the model's path *given* to a path below the store's *prefix*.

    Dots and redundant slashes are resolved in the text, and the rest is normalized to NFC. Raise
    ToolRefused if it leads out of the root or no memory can have it.
    """
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        raise outside(given)
    inside = to_nfc("/".join(_resolved(given)))
    if not inside:
        return ToolPath(given=given, path=prefix, below=prefix, is_root=True)
    path = prefix + inside
    try:
        checked_path(path)
    except InvalidInput as error:
        raise illegal(given, error.reason) from error
    return ToolPath(given=given, path=path, below=f"{path}/", is_root=False)


def _resolved(given: str) -> list[str]:
    walked: list[str] = []
    for segment in given.split("/"):
        if segment == "..":
            # A path above the root's parent cannot lead back into the root.
            if not walked:
                raise escaping(given)
            walked.pop()
        elif segment not in ("", "."):
            walked.append(segment)
    if walked[:1] != [ROOT[1:]]:
        raise escaping(given)
    return walked[1:]


def as_given(path: str, prefix: str) -> str:
    """Return the store's *path* as the model sees it; above *prefix* it is the root."""
    inside = path.removeprefix(prefix) if path.startswith(prefix) else ""
    return f"{ROOT}/{inside}" if inside else ROOT
