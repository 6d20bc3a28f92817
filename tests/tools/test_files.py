"""The tool memory on a store: its contract, its paths, its listings and its text."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate

import pytest
from contracts.files import FilesContract
from contracts.files_commands import Clear, Run, view
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.ground.errors import ToolRefused
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.validation import checked_path
from holdfast.tools import Tool, files
from holdfast.tools.base import CALLS
from holdfast.tools.files import clear as clear_files
from holdfast.tools.files import fitting, inserted, listing, readable, replaced, shown
from holdfast.tools.files_arguments import as_given, place


def call_the_tool(
    hf: Holdfast,
    store_id: str,
    arguments: object,
    /,
    *,
    prefix: str = "/",
    read_only: bool = False,
) -> str:
    [tool] = files(hf, store_id, prefix=prefix, read_only=read_only)
    answer = tool.call(arguments)
    assert isinstance(answer, str)
    return answer


def clear_the_tools_files(
    hf: Holdfast, store_id: str, /, *, prefix: str = "/", read_only: bool = False
) -> str:
    return clear_files(hf, store_id, prefix, read_only=read_only)


class TestTheTool(FilesContract):
    @pytest.fixture
    def run(self) -> Run:
        return call_the_tool

    @pytest.fixture
    def clear(self) -> Clear:
        return clear_the_tools_files


@pytest.fixture
def tool() -> Iterator[Tool]:
    with holdfast.open(":memory:") as hf:
        [tool] = files(hf, hf.memory_stores.create(name="Notes").id)
        yield tool


@pytest.fixture
def read_only_tool() -> Iterator[Tool]:
    with holdfast.open(":memory:") as hf:
        [tool] = files(hf, hf.memory_stores.create(name="Notes").id, read_only=True)
        yield tool


def test_the_tool_is_one_named_memory_with_six_commands(tool: Tool) -> None:
    assert (tool.id, tool.name) == ("files.memory", "memory")
    assert tool.parameters["required"] == ["command"]
    assert tool.parameters["additionalProperties"] is False
    assert tool.parameters["properties"]["command"]["enum"] == [
        "view",
        "create",
        "str_replace",
        "insert",
        "delete",
        "rename",
    ]


def test_a_model_is_told_what_each_parameter_is_for(tool: Tool) -> None:
    assert "/memories" in tool.description
    assert len(tool.parameters["properties"]) == 10
    assert all(len(each["description"]) > 20 for each in tool.parameters["properties"].values())


def test_a_read_only_tool_offers_only_the_view(read_only_tool: Tool) -> None:
    properties = read_only_tool.parameters["properties"]

    assert list(properties) == ["command", "path", "view_range"]
    assert properties["command"]["enum"] == ["view"]


def test_each_call_is_counted_by_its_command(tool: Tool) -> None:
    before = CALLS.numbers()

    tool.call(view("/memories"))
    with pytest.raises(ToolRefused):
        tool.call(view("/memories/no"))
    with pytest.raises(ToolRefused):
        tool.call({"command": "undo"})

    counted = {key: n - before.get(key, 0) for key, n in CALLS.numbers().items()}
    assert counted["memory", "view", "ok"] == 1
    assert counted["memory", "view", "refused"] == 1
    assert counted["memory", "", "refused"] == 1


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1536, "1.5K"),
        (102_400, "100K"),
        (1_048_575, "1024.0K"),
        (1024**2, "1M"),
        (1024**3 * 5 // 2, "2.5G"),
        (1024**4, "1024G"),
    ],
)
def test_sizes_are_in_units_of_1024_with_a_decimal_only_where_it_says_something(
    size: int, shown: str
) -> None:
    assert readable(size) == shown


def test_entries_stand_by_name_with_a_directory_before_its_own_entries() -> None:
    paths = ["a-b.md", "a.md", "a/x", "a/z/deep", "b", "é"]

    shown = listing("/memories", ((path, 1) for path in paths))

    assert shown is not None
    assert [line.partition("\t")[2] for line in shown.split("\n")[2:]] == [
        "/memories/a/",
        "/memories/a/x",
        "/memories/a/z/",
        "/memories/a-b.md",
        "/memories/a.md",
        "/memories/b",
        "/memories/é",
    ]


def test_what_is_hidden_counts_and_is_not_shown() -> None:
    shown = listing("/memories/d", [(".h/a", 1), ("a/.h/b", 2), ("a/b/.h", 4), (".x", 8)])

    assert shown is not None
    assert shown.split("\n")[1:] == [
        "15B\t/memories/d",
        "6B\t/memories/d/a/",
        "4B\t/memories/d/a/b/",
    ]


def test_nothing_below_is_no_directory() -> None:
    assert listing("/memories/d", []) is None


segments = st.lists(st.sampled_from(["a", "b", ".c", "d-e"]), min_size=1, max_size=4)


@given(st.dictionaries(segments.map("/".join), st.integers(0, 99), min_size=1))
def test_the_order_in_which_paths_come_does_not_matter(sizes: dict[str, int]) -> None:
    forwards = listing("/memories", sizes.items())

    # A name is a file or a directory, never both: so is every prefix of a path here.
    alone = [p for p in sizes if not any(q.startswith(f"{p}/") for q in sizes)]
    kept = {path: sizes[path] for path in alone}
    assert listing("/memories", kept.items()) == listing("/memories", reversed(kept.items()))
    assert forwards is not None
    assert f"\n{sum(sizes.values())}B\t/memories" in forwards or sum(sizes.values()) > 1023


@pytest.mark.parametrize("given", ["/memories", "/memories/", "/memories/./", "/memories/a/.."])
def test_the_root_has_many_spellings(given: str) -> None:
    assert place(given, "/agents/7/").is_root
    assert place(given, "/agents/7/").below == "/agents/7/"


def test_a_path_leads_below_the_prefix() -> None:
    found = place("/memories//b/./c/../a.md/", "/agents/7/")

    assert found.path == "/agents/7/b/a.md"
    assert found.below == "/agents/7/b/a.md/"
    assert as_given(found.path, "/agents/7/") == "/memories/b/a.md"


def test_what_lies_above_the_prefix_is_called_the_root() -> None:
    assert as_given("/agents", "/agents/7/") == "/memories"
    assert as_given("/agents/7", "/agents/7/") == "/memories"


def test_a_place_holds_what_is_below_it_and_not_itself() -> None:
    d, inside, beside = (place(f"/memories/{name}", "/") for name in ("d", "d/e", "de"))

    assert d.holds(inside)
    assert not d.holds(d)
    assert not d.holds(beside)
    assert not inside.holds(d)


parts = st.lists(st.sampled_from(["memories", "a", "..", ".", "", "memoriesX", "é", "e\u0301"]))


@given(parts.map("/".join), st.sampled_from(["/", "/p/"]))
def test_no_path_leads_out_of_the_prefix(tail: str, prefix: str) -> None:
    depths = list(accumulate((_step(part) for part in tail.split("/")), initial=0))

    if min(depths) < -1:
        with pytest.raises(ToolRefused, match=r"would escape /memories directory$"):
            place(f"/memories/{tail}", prefix)
        return
    with suppress(ToolRefused):
        found = place(f"/memories/{tail}", prefix)
        assert found.below.startswith(prefix)
        assert found.is_root or checked_path(found.path) == found.path


def _step(part: str) -> int:
    return {"..": -1, ".": 0, "": 0}.get(part, 1)


P = "/memories/a.md"
contents = st.text(alphabet="ab\n\ré😀", max_size=12)


def test_a_file_of_too_many_lines_is_not_shown() -> None:
    assert shown(P, "\n" * 999_998, None).endswith("\n999999\t")

    with pytest.raises(ToolRefused) as refusal:
        shown(P, "\n" * 999_999, [1, 2])

    assert str(refusal.value) == f"File {P} exceeds maximum line limit of 999,999 lines."


@given(content=contents, old=contents.filter(bool), new=contents)
def test_replacing_changes_the_one_occurrence_and_no_other_byte(
    content: str, old: str, new: str
) -> None:
    places = [i for i in range(len(content)) if content.startswith(old, i)]

    if len(places) == 1:
        edited = replaced(P, content, old, new).content
        assert edited == content[: places[0]] + new + content[places[0] + len(old) :]
    else:
        with pytest.raises(ToolRefused, match=r"^No replacement was performed"):
            replaced(P, content, old, new)


@given(content=contents, line=st.integers(0, 12), text=contents)
def test_what_is_inserted_stands_after_the_line_it_was_told_to(
    content: str, line: int, text: str
) -> None:
    lines = content.removesuffix("\n").split("\n") if content else []

    if line <= len(lines):
        edited = inserted(P, content, line, text).content
        before, after = lines[:line], lines[line:]
        assert edited.endswith("\n")
        assert edited.rstrip("\n") == "\n".join([*before, text.rstrip("\n"), *after]).rstrip("\n")
    else:
        with pytest.raises(ToolRefused, match=r"^Invalid `insert_line` parameter"):
            inserted(P, content, line, text)


def test_the_limit_is_in_bytes_of_utf_8() -> None:
    assert fitting(P, "é" * 51_200)

    with pytest.raises(ToolRefused, match="would be 102402 bytes"):
        fitting(P, "é" * 51_201)
