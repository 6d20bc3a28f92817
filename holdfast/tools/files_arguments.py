"""What a model asked of the tool `memory`: its arguments, read once into one of six commands."""

from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import fields

from holdfast.ground.errors import ToolRefused, shortened


class ViewPath(Struct, frozen=True, kw_only=True):
    """Show a directory, or a file, or the lines of it from the one number to the other."""

    path: str
    view_range: list[object] | None = None


class Create(Struct, frozen=True, kw_only=True):
    """Make a new file."""

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
    """Give a file, or a directory with everything below it, another path."""

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
"""The JSON Schema of each parameter but `command`, in the order a model is told of them."""

_PYTHON = {"string": str, "integer": int, "array": list}


def read(arguments: object) -> Command:
    """Return the command that *arguments* ask for; ToolRefused names what is wrong with them.

    A parameter of another command is passed over, null is an optional one left out.
    """
    if not isinstance(arguments, dict):
        raise _wrong_type("arguments", "object")
    given = cast("dict[str, object]", arguments)
    make = _asked(given)
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
    """Tell whether `read` makes a command of *arguments*."""
    try:
        read(arguments)
    except ToolRefused:
        return False
    return True


def _asked(given: dict[str, object]) -> type[Command]:
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
