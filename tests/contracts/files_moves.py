"""Cases of `FilesContract`: delete, rename, paths, and invalid arguments."""

from contracts.files_cases import ABC
from contracts.files_commands import (
    Case,
    case,
    create,
    delete,
    insert,
    listed,
    numbered,
    refusal,
    rename,
    str_replace,
    view,
)

TWO = {"/d/a.md": "1", "/d/e/b.md": "2", "/d.md": "3"}

DELETES = [
    case(
        "delete of a file",
        delete("/memories/d.md"),
        "Successfully deleted /memories/d.md",
        files=TWO,
        leaves={"/d/a.md": "1", "/d/e/b.md": "2"},
    ),
    case(
        "delete of a directory takes what is below",
        delete("/memories/d/"),
        "Successfully deleted /memories/d/",
        files=TWO,
        leaves={"/d.md": "3"},
    ),
    refusal(
        "delete of nothing",
        delete("/memories/no"),
        "The path /memories/no does not exist",
        files=TWO,
    ),
    refusal(
        "delete below a file",
        delete("/memories/d.md/x"),
        "The path /memories/d.md/x does not exist",
        files=TWO,
    ),
    *(
        refusal(
            f"delete of the root as {root}",
            delete(root),
            "Cannot delete the /memories directory itself",
            files=TWO,
        )
        for root in ("/memories", "/memories//", "/memories/d/..")
    ),
]

RENAMES = [
    case(
        "rename of a file",
        rename("/memories/d.md", "/memories/x/y.md"),
        "Successfully renamed /memories/d.md to /memories/x/y.md",
        files=TWO,
        leaves={"/d/a.md": "1", "/d/e/b.md": "2", "/x/y.md": "3"},
    ),
    case(
        "rename of a directory takes what is below",
        rename("/memories/d", "/memories/f/g"),
        "Successfully renamed /memories/d to /memories/f/g",
        files=TWO,
        leaves={"/f/g/a.md": "1", "/f/g/e/b.md": "2", "/d.md": "3"},
    ),
    *(
        refusal(
            f"rename of {old} to where {new} is",
            rename(old, new),
            f"The destination {new} already exists",
            files=TWO,
        )
        for old, new in [
            ("/memories/d.md", "/memories/d/a.md"),
            ("/memories/d.md", "/memories/d"),
            ("/memories/d.md", "/memories"),
            ("/memories/d.md", "/memories/d.md"),
            ("/memories/d", "/memories/d"),
            ("/memories/d", "/memories/d/e"),
            ("/memories/d/e", "/memories/d"),
            ("/memories/no", "/memories/d.md"),
            ("/memories/no", "/memories/d"),
        ]
    ),
    *(
        refusal(
            f"rename of nothing, {old} to {new}",
            rename(old, new),
            f"The path {old} does not exist",
            files=TWO,
        )
        for old, new in [
            ("/memories/no", "/memories/x"),
            ("/memories/no", "/memories/no"),
            ("/memories/no", "/memories/no/x"),
            ("/memories/no/x", "/memories/no"),
        ]
    ),
    refusal(
        "rename of the root",
        rename("/memories", "/memories/x"),
        "Cannot rename the /memories directory itself",
        files=TWO,
    ),
    *(
        refusal(
            f"rename into itself, {old} to {new}",
            rename(old, new),
            f"Cannot rename {old} into itself.",
            files=TWO,
        )
        for old, new in [
            ("/memories/d", "/memories/d/x"),
            ("/memories/d.md", "/memories/d.md/x/y"),
        ]
    ),
    refusal(
        "rename below a file",
        rename("/memories/d/e", "/memories/d.md/x"),
        "Cannot create /memories/d.md/x: /memories/d.md is a file, not a directory.",
        files=TWO,
    ),
]

PATHS = [
    *(
        refusal(f"outside: {p!r}", view(p), f"Path must start with /memories, got: {p}")
        for p in ("", "/", "memories", "/etc/x", "/memoriesX/a", "/memories_old", "//memories/a ")
    ),
    *(
        refusal(f"escaping: {p!r}", view(p), f"Path {p} would escape /memories directory")
        for p in (
            "/memories/..",
            "/memories/../etc",
            "/memories/a/../../b",
            "/memories/../memoriesX/a",
            "/memories/../../memories/a",
        )
    ),
    *(
        case(f"the same file: {p!r}", view(p), numbered(p, "x"), files={"/a.md": "x"})
        for p in (
            "/memories/./a.md",
            "/memories//a.md/",
            "/memories/no/../a.md",
            "/memories/../memories/a.md",
        )
    ),
    case(
        "percent signs mean themselves",
        create("/memories/%2e%2e/a.md"),
        "File created successfully at: /memories/%2e%2e/a.md",
        leaves={"/%2e%2e/a.md": "x"},
    ),
    case(
        "a path is brought to normal form",
        create("/memories/e\u0301.md"),
        "File created successfully at: /memories/e\u0301.md",
        leaves={"/\u00e9.md": "x"},
    ),
    case(
        "a file is found by a path in another form",
        view("/memories/e\u0301"),
        listed("/memories/e\u0301", "1B\t/memories/e\u0301", "1B\t/memories/e\u0301/a.md"),
        files={"/\u00e9/a.md": "x"},
    ),
]

ARGUMENTS: list[Case] = [
    refusal("no command", {"path": "/memories"}, "Missing required parameter: command"),
    refusal("no path", {"command": "view"}, "Missing required parameter: path"),
    refusal(
        "no text",
        {"command": "create", "path": "/memories/a"},
        "Missing required parameter: file_text",
    ),
    refusal(
        "no new path",
        {"command": "rename", "old_path": "/memories/a"},
        "Missing required parameter: new_path",
    ),
    refusal(
        "an unknown command",
        {"command": "undo_edit", "path": "/memories/a"},
        "Unknown command: undo_edit."
        " Use one of: view, create, str_replace, insert, delete, rename.",
    ),
    refusal(
        "a command that is no text",
        {"command": 1},
        "Invalid type for parameter command: expected string.",
    ),
    refusal(
        "a path that is no text",
        {"command": "view", "path": 7},
        "Invalid type for parameter path: expected string.",
    ),
    refusal(
        "a text of null",
        {"command": "create", "path": "/memories/a", "file_text": None},
        "Invalid type for parameter file_text: expected string.",
    ),
    *(
        refusal(
            f"a line of {line!r}",
            {**insert("/memories/a.md", 0, "x"), "insert_line": line},
            "Invalid type for parameter insert_line: expected integer.",
            files=ABC,
        )
        for line in ("1", 1.0, True)
    ),
    refusal(
        "a range that is no list",
        view("/memories/a.md", view_range="1-2"),
        "Invalid type for parameter view_range: expected array.",
        files=ABC,
    ),
    refusal(
        "an unknown parameter",
        view("/memories", recursive=True),
        "Unknown parameter: recursive. Use: command, path, view_range.",
    ),
    refusal(
        "half a character",
        create("/memories/a.md", "\ud83d"),
        "Invalid type for parameter file_text: expected string without lone surrogates.",
    ),
    case(
        "another command's parameter is passed over",
        view("/memories/a.md", old_str="one", insert_line=0),
        numbered("/memories/a.md", "one", "two", "three", ""),
        files=ABC,
    ),
]

ILLEGAL = [
    "/memories/a\x00b",
    "/memories/tab\there",
    "/memories/zero\u200bwidth",
    "/memories/line\u2028end",
    "/memories/" + "x" * 1_024,
    "/memories/" + "/".join("x" * 21),
    "/memories/.anthropic-memory-store",
]
"""Paths that begin at the root and that no memory can have."""

WRITES = [
    create("/memories/new.md"),
    str_replace("/memories/a.md", "one", "two"),
    insert("/memories/a.md", 0, "x"),
    rename("/memories/a.md", "/memories/b.md"),
]
"""What changes `ABC` and is not a delete."""
