"""The tool `memory`: a store as a directory of text files, in words that models know."""

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
    """Return the tool `memory` on what lies below *prefix* in a store.

    A model sees it as the directory `/memories`. Its answers are text, and what it did wrong is
    raised: ToolRefused, whose text is for the model. InvalidInput when *prefix* does not start
    and end with a slash.
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
    """Return the answer to *command*, the arguments as a model gave them.

    Raises ToolRefused for what the model did wrong. What is not its fault stays what it is:
    Unavailable, or NotFound for a store that is gone.
    """
    asked = read(command)
    paths = [asked.old_path, asked.new_path] if isinstance(asked, RenamePath) else [asked.path]
    first, *others = (place(path, prefix) for path in paths)
    if read_only and not isinstance(asked, ViewPath):
        raise refusals.read_only()
    store = StoreFiles(hf.memory_stores.memories, store_id, prefix)
    match asked:
        case ViewPath():
            return store.view(first, asked.view_range)
        case Create():
            return store.create(first, asked.file_text)
        case StrReplace():
            p, old, new = asked.path, asked.old_str, asked.new_str
            return store.edit(first, lambda content: replaced(p, content, old, new))
        case Insert():
            p, line, text = asked.path, asked.insert_line, asked.insert_text
            return store.edit(first, lambda content: inserted(p, content, line, text))
        case Delete():
            return store.delete(first)
        case RenamePath():
            return store.rename(first, others[0])


def clear(hf: HoldfastHandle, store_id: str, prefix: str, *, read_only: bool = False) -> str:
    """Delete everything below *prefix* in one transaction, and say so."""
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
