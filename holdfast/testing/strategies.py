"""Strategies of hypothesis: texts, values, messages and states."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from holdfast.memories.state.message import (
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
)
from holdfast.memories.state.references import Seen
from holdfast.memories.state.result import InferenceResult, Usage

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


KEYS = ("a", "b", "a.b", "é", "\U0001f600", "k" * 256)
"""Keys of values, few enough to collide."""

NAMES = ("search", "write", "réad")
"""Names of tools."""

AGENTS = ("planner", "writer")

_TEXTS = st.text(max_size=6)
_STEPS = st.none() | st.integers(0, 3)


def json_values(most: int = 2**63 - 1) -> st.SearchStrategy[Any]:
    """Return JSON values with a little nesting."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), most),
        st.floats(allow_nan=False, allow_infinity=False),
        _TEXTS,
    )
    return st.recursive(
        leaves,
        lambda each: st.lists(each, max_size=3) | st.dictionaries(_TEXTS, each, max_size=3),
        max_leaves=6,
    )


def extras() -> st.SearchStrategy[dict[str, Any]]:
    """Return fields that are unknown to messages and results of this release."""
    return st.dictionaries(st.sampled_from(("x-new", "mood")), json_values(), max_size=1)


def calls() -> st.SearchStrategy[ToolCall]:
    """Return tool calls with few different ids."""
    return st.builds(
        ToolCall,
        id=st.sampled_from(("c1", "c2", "c3")),
        name=st.sampled_from(NAMES),
        input=json_values(),
    )


def texts() -> st.SearchStrategy[TextMessage]:
    """Return text messages of all roles, as a string or in parts."""
    part = st.fixed_dictionaries({"type": st.just("text"), "text": _TEXTS})
    return st.builds(
        TextMessage,
        role=st.sampled_from(("system", "user", "assistant")),
        content=_TEXTS | st.lists(part, max_size=2),
        stop_reason=st.sampled_from((None, "stop", "tool")),
        agent=st.none() | st.sampled_from(AGENTS),
        step=_STEPS,
        extras=extras(),
    )


def call_messages() -> st.SearchStrategy[ToolCallMessage]:
    """Return messages of one to three calls."""
    return st.builds(
        ToolCallMessage,
        tools=st.lists(calls(), min_size=1, max_size=3, unique_by=lambda each: each.id),
        agent=st.none() | st.sampled_from(AGENTS),
        step=_STEPS,
        extras=extras(),
    )


def tool_results() -> st.SearchStrategy[ToolResultMessage]:
    """Return results of calls: data, or an error."""
    error = st.fixed_dictionaries(
        {"name": _TEXTS, "message": _TEXTS, "kind": st.sampled_from(("raised", "timeout"))}
    )
    data = st.fixed_dictionaries({"data": json_values()})
    return st.builds(
        ToolResultMessage,
        tool=calls(),
        content=data | st.fixed_dictionaries({"error": error}),
        step=_STEPS,
        duration_ms=st.none() | st.integers(0, 9),
        extras=extras(),
    )


def messages() -> st.SearchStrategy[Message]:
    """Return messages of every type."""
    return st.one_of(texts(), call_messages(), tool_results())


def conversations() -> st.SearchStrategy[list[Message]]:
    """Return histories, in which each call is followed by its results."""

    def answered(calls: ToolCallMessage, number: int) -> list[Message]:
        tools = [each.__class__(id=f"{number}-{each.id}", name=each.name) for each in calls.tools]
        answers = [ToolResultMessage(tool=each, content={"data": each.id}) for each in tools]
        return [ToolCallMessage(tools=tools), *answers]

    def flat(units: Sequence[Message]) -> list[Message]:
        history: list[Message] = []
        for number, each in enumerate(units):
            paired = answered(each, number) if isinstance(each, ToolCallMessage) else [each]
            history.extend(paired)
        return history

    return st.lists(texts() | call_messages(), max_size=8).map(flat)


def results() -> st.SearchStrategy[InferenceResult]:
    """Return results of two agents and two runs."""
    return st.builds(
        InferenceResult,
        agent=st.sampled_from(AGENTS),
        input=_TEXTS,
        seen=st.builds(
            Seen.copied, st.lists(texts(), max_size=2), st.lists(messages(), max_size=2)
        ),
        output=st.lists(texts() | call_messages(), max_size=3),
        tool_calls=st.lists(tool_results(), max_size=3),
        raw=_TEXTS,
        created_at=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001 - the zone is given apart
        usage=st.builds(Usage, requests=st.integers(0, 9), details=st.just({"cached": 2})),
        run_id=st.none() | st.sampled_from(("run_1", "run_2")),
        index=st.none() | st.integers(0, 9),
        error=st.none() | st.just({"name": "TimeoutError", "message": "late"}),
        extras=extras(),
    )
