"""Hypothesis strategies for paths and contents, valid and invalid."""

from collections.abc import Sequence

from hypothesis import strategies as st

PLAIN = ("a", "b", "A", "a.md", "a-", "a ", "%", "_", "\\", "\u00e9", "\U0001f600", "\uff5e")
"""Segments that are equal or look equal."""

NASTY = (
    "",
    ".",
    "..",
    "...",
    "e\u0301",
    "\u212a",
    "a\u200bb",
    "\ufeff",
    "a\x00",
    "\n",
    "\x7f",
    "\u2028",
    "\ud800",
    ".anthropic-memory-store",
    "x" * 1022,
    "x" * 1023,
    "\U0001f600" * 300,
)
"""Segments, most of which are invalid in a path."""


def plain_paths() -> st.SearchStrategy[str]:
    """Return valid paths of one to three segments, few enough to collide."""
    return st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3).map(_joined)


def nasty_paths() -> st.SearchStrategy[str]:
    """Return texts, some of which are valid paths."""
    segments = st.one_of(st.sampled_from(PLAIN + NASTY), st.text(max_size=3))
    return st.one_of(st.lists(segments, max_size=22).map(_joined), st.text(max_size=5))


def contents() -> st.SearchStrategy[str]:
    """Return valid contents, few enough that two are often equal."""
    return st.one_of(st.sampled_from(["", "x", "y", "x\x00y", "\ufeffx\r\n"]), st.text(max_size=5))


def _joined(segments: Sequence[str]) -> str:
    return "/" + "/".join(segments)
