"""Whatever a file holds, an import accounts for it or refuses the file."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast

FILES = Path(__file__).parent / "files"
NAMES: dict[str, list[str]] = {
    "mem0": ["mem0.json"],
    "langmem": ["langmem.jsonl"],
    "mcp-graph": ["mcp_graph.jsonl"],
    "letta": ["letta.af"],
    "chatgpt": ["chatgpt_conversations.json", "chatgpt_memory.json"],
    "claude": ["claude_conversations.json", "claude_memories.json"],
}
LINES = frozenset(("langmem", "mcp-graph"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["user", "text", "2026-13-01", "\x00", "\ud800", "x" * 5_000, "*"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def loaded(kind: str, name: str) -> Any:
    text = (FILES / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if kind in LINES else json.loads(text)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each member of *value*."""
    if path:
        yield path
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        members = list(enumerate(cast("list[Any]", value)))
    for key, each in members:
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return *value* with *new* at *path*."""
    if not path:
        return new
    copy: Any = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@st.composite
def altered(draw: st.DrawFn, kind: str) -> bytes:
    value = loaded(kind, draw(st.sampled_from(NAMES[kind])))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(value))))
        value = changed(value, path, draw(VALUES))
    if kind in LINES and isinstance(value, list):
        lines = cast("list[Any]", value)
        return "\n".join(json.dumps(each) for each in lines).encode()
    return json.dumps(value).encode()


@pytest.mark.parametrize("kind", NAMES)
@given(data=st.data())
def test_an_altered_file_is_accounted_for_or_refused(
    hf: Holdfast, kind: str, data: st.DataObject
) -> None:
    content = data.draw(altered(kind))
    options: dict[str, Any] = {"store": "S"} if kind in {"letta", "mcp-graph"} else {}
    try:
        report = hf.import_(kind, [io.BytesIO(content)], user="ada", dry_run=True, **options)
    except InvalidInput:
        return
    assert report.read == report.stored + report.duplicates + len(report.skipped)
    assert all(len(name) <= 100 for name in report.unmapped)


@pytest.mark.parametrize("kind", NAMES)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_accounted_for_or_refused(hf: Holdfast, kind: str, content: bytes) -> None:
    try:
        report = hf.import_(kind, [io.BytesIO(content)], user="ada", dry_run=True)
    except InvalidInput:
        return
    assert report.stored == 0
