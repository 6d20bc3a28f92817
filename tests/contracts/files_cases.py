"""Contract of the exact results of the tool `memory`: view, create, edit."""

from contracts.files_commands import (
    Case,
    bad_line,
    bad_range,
    case,
    create,
    delete,
    edited,
    insert,
    listed,
    numbered,
    refusal,
    rename,
    str_replace,
    too_large,
    view,
)

NO_VIEW = "does not exist. Please provide a valid path."
TREE = {
    "/a/deep/below/c.md": "x" * 1024,
    "/a/one.md": "x" * 512,
    "/a-b.md": "",
    "/b.md": "x" * 102_400,
    "/z/.hidden/h.md": "xxx",
    "/.secret.md": "xx",
}
ABC = {"/a.md": "one\ntwo\nthree\n"}

VIEWS = [
    case("the empty root is no error", view("/memories"), listed("/memories", "0B\t/memories")),
    case(
        "a directory shows two levels by name, and counts what it hides",
        view("/memories"),
        listed(
            "/memories",
            "101.5K\t/memories",
            "1.5K\t/memories/a/",
            "1K\t/memories/a/deep/",
            "512B\t/memories/a/one.md",
            "0B\t/memories/a-b.md",
            "100K\t/memories/b.md",
            "3B\t/memories/z/",
        ),
        files=TREE,
    ),
    case(
        "a hidden directory is shown when asked for",
        view("/memories/z/.hidden"),
        listed("/memories/z/.hidden", "3B\t/memories/z/.hidden", "3B\t/memories/z/.hidden/h.md"),
        files=TREE,
    ),
    case(
        "slashes at the end stay in the header only",
        view("/memories/a//", view_range=[1, 2]),
        listed(
            "/memories/a//",
            "1.5K\t/memories/a",
            "1K\t/memories/a/deep/",
            "1K\t/memories/a/deep/below/",
            "512B\t/memories/a/one.md",
        ),
        files=TREE,
    ),
    case(
        "a final newline shows as one more line",
        view("/memories/a.md"),
        numbered("/memories/a.md", "one", "two", "three", ""),
        files=ABC,
    ),
    case(
        "an empty file is one empty line",
        view("/memories/e.md"),
        numbered("/memories/e.md", ""),
        files={"/e.md": ""},
    ),
    case(
        "lines end at LF alone",
        view("/memories/c.md"),
        numbered("/memories/c.md", "a\r", "b\rc\x0bd\u2028e"),
        files={"/c.md": "a\r\nb\rc\x0bd\u2028e"},
    ),
    case(
        "a range keeps the real numbers",
        view("/memories/a.md", view_range=[2, 3]),
        numbered("/memories/a.md", "two", "three", first=2),
        files=ABC,
    ),
    case(
        "a range may begin early and end late",
        view("/memories/a.md", view_range=[-3, 99]),
        numbered("/memories/a.md", "one", "two", "three", ""),
        files=ABC,
    ),
    case(
        "an end of -1 is the last line",
        view("/memories/a.md", view_range=[3, -1]),
        numbered("/memories/a.md", "three", "", first=3),
        files=ABC,
    ),
    case(
        "a range of null is none",
        view("/memories/a.md", view_range=None),
        numbered("/memories/a.md", "one", "two", "three", ""),
        files=ABC,
    ),
    *(
        refusal(
            f"a range that shows nothing: {given}",
            view("/memories/a.md", view_range=given),
            bad_range(shown, 4),
            files=ABC,
        )
        for given, shown in [
            ([5, 9], "5, 9"),
            ([3, 2], "3, 2"),
            ([1, 0], "1, 0"),
            ([1, -2], "1, -2"),
            ([5, -1], "5, -1"),
            ([1], "1"),
            ([], ""),
            ([1, 2, 3], "1, 2, 3"),
            (["a", 2], "a, 2"),
        ]
    ),
    refusal("view of nothing", view("/memories/no.md"), f"The path /memories/no.md {NO_VIEW}"),
    refusal(
        "view below a file",
        view("/memories/a.md/b"),
        f"The path /memories/a.md/b {NO_VIEW}",
        files=ABC,
    ),
]

CREATES = [
    case(
        "create makes parents too",
        create("/memories/x/y/z.md", "héllo\r\n"),
        "File created successfully at: /memories/x/y/z.md",
        leaves={"/x/y/z.md": "héllo\r\n"},
    ),
    case(
        "an empty file can be made",
        create("/memories/e.md", ""),
        "File created successfully at: /memories/e.md",
        leaves={"/e.md": ""},
    ),
    case(
        "100 KiB fit",
        create("/memories/e.md", "é" * 51_200),
        "File created successfully at: /memories/e.md",
        leaves={"/e.md": "é" * 51_200},
    ),
    refusal(
        "create on a file",
        create("/memories/a.md"),
        "File /memories/a.md already exists",
        files=ABC,
    ),
    refusal(
        "create on a directory",
        create("/memories/a"),
        "File /memories/a already exists",
        files=TREE,
    ),
    refusal("create on the root", create("/memories/"), "File /memories/ already exists"),
    refusal(
        "create below a file",
        create("/memories/a.md/b/c"),
        "Cannot create /memories/a.md/b/c: /memories/a.md is a file, not a directory.",
        files=ABC,
    ),
    refusal(
        "create of too much",
        create("/memories/e.md", "é" * 51_201),
        too_large("/memories/e.md", 102_402),
    ),
]

EDITS = [
    case(
        "str_replace shows two lines around the first changed one",
        str_replace("/memories/n.md", "4\n5", "four\nfive\nand"),
        edited("2", "3", "four", "five", "and", first=2),
        files={"/n.md": "1\n2\n3\n4\n5\n6\n7"},
        leaves={"/n.md": "1\n2\n3\nfour\nfive\nand\n6\n7"},
    ),
    case(
        "str_replace keeps every other byte",
        str_replace("/memories/c.md", "b", "ü"),
        edited("\ufeffa\r", "ü\r", "\x00c\t "),
        files={"/c.md": "\ufeffa\r\nb\r\n\x00c\t "},
        leaves={"/c.md": "\ufeffa\r\nü\r\n\x00c\t "},
    ),
    case(
        "new_str may be left out",
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "two\n"},
        edited("one", "three", ""),
        files=ABC,
        leaves={"/a.md": "one\nthree\n"},
    ),
    case(
        "new_str may be null",
        {"command": "str_replace", "path": "/memories/a.md", "old_str": "two\n", "new_str": None},
        edited("one", "three", ""),
        files=ABC,
        leaves={"/a.md": "one\nthree\n"},
    ),
    case(
        "an edit that changes nothing answers as an edit",
        str_replace("/memories/a.md", "two", "two"),
        edited("one", "two", "three", ""),
        files=ABC,
    ),
    refusal(
        "str_replace of nothing",
        str_replace("/memories/no.md", "a", "b"),
        f"The path /memories/no.md {NO_VIEW}",
    ),
    refusal(
        "str_replace in a directory",
        str_replace("/memories/a", "a", "b"),
        "The path /memories/a is not a file.",
        files=TREE,
    ),
    refusal(
        "str_replace in the root",
        str_replace("/memories", "a", "b"),
        "The path /memories is not a file.",
    ),
    refusal(
        "old_str absent",
        str_replace("/memories/a.md", "Two", "b"),
        "No replacement was performed, old_str `Two` did not appear verbatim in /memories/a.md.",
        files=ABC,
    ),
    refusal(
        "old_str more than once",
        str_replace("/memories/a.md", "e", "b"),
        "No replacement was performed. Multiple occurrences of old_str `e` in lines: 1, 3, 3."
        " Please ensure it is unique",
        files=ABC,
    ),
    refusal(
        "old_str overlapping itself",
        str_replace("/memories/o.md", "aa", "b"),
        "No replacement was performed. Multiple occurrences of old_str `aa` in lines: 2, 2."
        " Please ensure it is unique",
        files={"/o.md": "x\naaa"},
    ),
    refusal(
        "old_str empty",
        str_replace("/memories/a.md", "", "b"),
        "No replacement was performed. old_str must not be empty.",
        files=ABC,
    ),
    refusal(
        "str_replace beyond the limit",
        str_replace("/memories/a.md", "two", "x" * 102_400),
        too_large("/memories/a.md", 102_411),
        files=ABC,
    ),
    case(
        "insert before the first line",
        insert("/memories/a.md", 0, "zero"),
        "The file /memories/a.md has been edited.",
        files=ABC,
        leaves={"/a.md": "zero\none\ntwo\nthree\n"},
    ),
    case(
        "insert after the last line drops newlines at its end",
        insert("/memories/a.md", 3, "four\n\n"),
        "The file /memories/a.md has been edited.",
        files=ABC,
        leaves={"/a.md": "one\ntwo\nthree\nfour\n"},
    ),
    case(
        "insert ends the file in a newline",
        insert("/memories/n.md", 1, "b"),
        "The file /memories/n.md has been edited.",
        files={"/n.md": "a\r\nc"},
        leaves={"/n.md": "a\r\nb\nc\n"},
    ),
    case(
        "insert into an empty file",
        insert("/memories/e.md", 0, "first"),
        "The file /memories/e.md has been edited.",
        files={"/e.md": ""},
        leaves={"/e.md": "first\n"},
    ),
    *(
        refusal(
            f"insert at line {line}",
            insert("/memories/a.md", line, "x"),
            bad_line(line, 3),
            files=ABC,
        )
        for line in (-1, 4)
    ),
    refusal(
        "insert into an empty file after its line",
        insert("/memories/e.md", 1, "x"),
        bad_line(1, 0),
        files={"/e.md": ""},
    ),
    refusal(
        "insert into nothing",
        insert("/memories/no.md", 0, "x"),
        f"The path /memories/no.md {NO_VIEW}",
    ),
    refusal(
        "insert into a directory",
        insert("/memories/a", 0, "x"),
        "The path /memories/a is not a file.",
        files=TREE,
    ),
    refusal(
        "insert beyond the limit",
        insert("/memories/a.md", 0, "x" * 102_400),
        too_large("/memories/a.md", 102_415),
        files=ABC,
    ),
]


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
