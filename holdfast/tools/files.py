"""The tool `memory`: a store as a directory of text files."""

from functools import partial

from holdfast.tools import files_arguments as refusals
from holdfast.tools.base import Schema, Tool, wording
from holdfast.tools.files_arguments import (
    COMMANDS,
    ROOT,
    SCHEMAS,
    Create,
    Delete,
    HoldfastHandle,
    Insert,
    RenamePath,
    StrReplace,
    ViewPath,
    checked_root,
    place,
    read,
)
from holdfast.tools.files_store import StoreFiles, inserted, replaced

READ_ONLY_PARAMETERS = ("path", "view_range")


def files(
    hf: HoldfastHandle, store_id: str, *, prefix: str = "/", read_only: bool = False
) -> list[Tool]:
    """Return the tool `memory` on the paths below *prefix* in a store.

    A model sees them as the directory `/memories`. Results are text. A call raises ToolRefused,
    with a text for the model, for an error of the model. Raise InvalidInput if *prefix* does not
    start and end with a slash.
    """
    checked_root(prefix)
    words = wording("files_read_only" if read_only else "files")
    commands = ("view",) if read_only else tuple(COMMANDS)
    return [
        Tool(
            id="files.memory",
            name="memory",
            description=words.description,
            parameters=_schema(words.parameters, commands),
            work=partial(run, hf, store_id, prefix, read_only=read_only),
            commands=tuple(COMMANDS),
        )
    ]


def run(
    hf: HoldfastHandle, store_id: str, prefix: str, command: object, *, read_only: bool = False
) -> str:
    """Return the result of *command*, the arguments as the model wrote them.

    Raise ToolRefused for an error of the model. Other errors are raised unchanged: Unavailable, or
    NotFound for a store that does not exist.
    """
    params = read(command)
    paths = [params.old_path, params.new_path] if isinstance(params, RenamePath) else [params.path]
    first, *others = (place(path, prefix) for path in paths)
    if read_only and not isinstance(params, ViewPath):
        raise refusals.read_only()
    store = StoreFiles(hf.memory_stores.memories, store_id, prefix)
    match params:
        case ViewPath():
            return store.view(first, params.view_range)
        case Create():
            return store.create(first, params.file_text)
        case StrReplace():
            p, old, new = params.path, params.old_str, params.new_str
            return store.edit(first, lambda content: replaced(p, content, old, new))
        case Insert():
            p, line, text = params.path, params.insert_line, params.insert_text
            return store.edit(first, lambda content: inserted(p, content, line, text))
        case Delete():
            return store.delete(first)
        case RenamePath():
            return store.rename(first, others[0])


def clear(hf: HoldfastHandle, store_id: str, prefix: str, *, read_only: bool = False) -> str:
    """Delete everything below *prefix* in one transaction; return a message."""
    if read_only:
        raise refusals.read_only()
    return StoreFiles(hf.memory_stores.memories, store_id, prefix).clear(place(ROOT, prefix))


def _schema(words: dict[str, str], commands: tuple[str, ...]) -> Schema:
    kinds = {"command": {"type": "string", "enum": [*commands]}, **SCHEMAS}
    return {
        "type": "object",
        "properties": {
            name: {**kinds[name], "description": words[name]} for name in kinds if name in words
        },
        "required": ["command"],
        "additionalProperties": False,
    }
