"""Contract of the exact results of the tool `memory`: view, create, edit."""

from contracts.files_commands import (
    bad_line,
    bad_range,
    case,
    create,
    edited,
    insert,
    listed,
    numbered,
    refusal,
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
