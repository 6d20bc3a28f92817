"""Random commands on ours and on the SDK's file-system tool: the same words, the same files."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool
from contracts.files_commands import (
    create,
    delete,
    insert,
    read_files,
    rename,
    str_replace,
    view,
)
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.ground.errors import ToolRefused
from holdfast.library.holdfast import Holdfast
from holdfast.tools import Tool, files

BETTER = re.compile(r"Cannot create |Cannot rename .* into itself|Invalid `view_range`")
"""Where ours refuses on purpose what the SDK's tool does, or fails at."""

RAW = "a raw system error"

FILES = ["/memories/a.md", "/memories/a/b.md", "/memories/.h/x", "/memories/d/é%2e/e.md"]
OTHERS = [
    "/memories",
    "/memories/a",
    "/memories/d",
    "/memories/a-b.md",
    "/memories/.h",
    "/memories/new/n.md",
    "/memories/a.md/below",
    "/memories//a//./b.md",
    "/memories/a/../a.md",
    "/memories/..",
    "/memories/../memories/a.md",
    "/memories/../../x",
    "/memories/a/",
    "/elsewhere/a.md",
    "memories/a.md",
]

paths = st.sampled_from(FILES) | st.sampled_from(OTHERS)
texts = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "😀", "\tc ", "é"]), max_size=8).map(
    "".join
)
# None of them overlaps itself.
old_texts = st.sampled_from(["a", "b", "\n", "\r\n", "😀", "ab", "a\nb", "c "])
numbers = st.integers(-2, 6)
ranges = st.none() | st.lists(numbers, min_size=2, max_size=2)

commands = st.one_of(
    st.builds(create, paths, texts),
    st.builds(create, paths, texts),
    st.builds(view, paths, view_range=ranges),
    st.builds(str_replace, paths, old_texts, texts),
    st.builds(insert, paths, numbers, texts),
    st.builds(delete, paths),
    st.builds(rename, paths, paths),
)


def ours(tool: Tool, command: object) -> tuple[str, bool]:
    try:
        return str(tool.call(command)), True
    except ToolRefused as refusal:
        return str(refusal), False


def theirs(tool: BetaLocalFilesystemMemoryTool, command: object) -> tuple[str, bool]:
    try:
        return str(tool.call(command)), True
    except ToolError as error:
        return str(error), False
    except OSError:
        return RAW, False
    finally:
        # A directory is there as long as something is in it; theirs keeps empty ones.
        for below in sorted(tool.memory_root.rglob("*"), reverse=True):
            if below.is_dir() and not any(below.iterdir()):
                below.rmdir()


def masked(says: str) -> str:
    """Without the sizes of directories, which are the file system's own affair there."""
    header, *lines = says.split("\n")
    if not header.startswith("Here're"):
        return says
    own, *entries = (line.partition("\t") for line in lines)
    shown = [(size if not path.endswith("/") else "", path) for size, _, path in entries]
    return f"{header}{own[2]}{shown}"


@pytest.fixture(scope="module")
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@given(
    st.tuples(*(st.builds(create, st.just(path), texts) for path in FILES)),
    st.lists(commands, min_size=1, max_size=20),
)
def test_the_same_commands_give_the_same_words_and_leave_the_same_files(
    hf: Holdfast, made: tuple[dict[str, object], ...], asked: list[dict[str, object]]
) -> None:
    store_id = hf.memory_stores.create(name="Notes").id
    [tool] = files(hf, store_id)

    with TemporaryDirectory() as folder:
        reference = BetaLocalFilesystemMemoryTool(folder)
        for command in [*made, *asked]:
            compare(tool, reference, command)

        assert read_files(hf, store_id) == files_in(reference.memory_root)


def compare(tool: Tool, reference: BetaLocalFilesystemMemoryTool, command: object) -> None:
    says, done = ours(tool, command)
    if BETTER.match(says):
        assert not done
        return
    expected, expected_done = theirs(reference, command)
    assert done == expected_done
    # Slashes at the end of a directory's path are doubled in its lines there.
    if expected != RAW and not (says.startswith("Here're") and "//" in expected):
        assert masked(says) == masked(expected)


def files_in(root: Path) -> dict[str, str]:
    return {
        f"/{file.relative_to(root)}": file.read_bytes().decode()
        for file in root.rglob("*")
        if file.is_file()
    }
