"""The timeline of a run: its events as rows, calls of tools with outcomes."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.json_values import JSON
from holdfast.library.operations.runs import RunEvent

ROWS: Final = 50
"""Rows of a timeline."""

_TURNS: Final = frozenset(
    ("router", "agent", "model", "tool", "value", "team", "history", "mcp", "log", "gap", "run")
)
"""What an event of the timeline is about."""
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "router": ("agents", "route", "reason"),
    "agent": ("stop_reason", "why", "usage"),
    "model": ("calls", "tokens", "finish_reason", "omitted"),
    "value": ("key", "version"),
    "gap": ("missed",),
}
"""What of an event's data is in its row, by what it is about; all of others."""


class TimelineRow(Struct, frozen=True, kw_only=True):
    """A row of the timeline: what happened, who did it, and what came in and out."""

    seq: int
    at: int
    type: str
    who: str | None
    text: str | None = None
    input: str | None = None
    outcome: str | None = None
    ok: bool = True


class Timeline:
    """The newest rows of a run's timeline, at most `ROWS`."""

    def __init__(self) -> None:
        self.rows: deque[TimelineRow] = deque(maxlen=ROWS)
        self.left_out = 0

    def add(self, events: Iterable[RunEvent]) -> bool:
        """Add the rows of *events*; return whether there are any."""
        found = [each for each in events if _is_turn(each)]
        for event in found:
            if event.type == "tool.returned" and self._finish(event):
                continue
            if len(self.rows) == ROWS:
                self.left_out += 1
            self.rows.append(_turn_of(event))
        return bool(found)

    def _finish(self, event: RunEvent) -> bool:
        """Put the outcome of a call beside the call; return whether it is there."""
        name = f"{event.call_id}"
        for index in range(len(self.rows) - 1, -1, -1):
            row = self.rows[index]
            if row.type == "tool.called" and event.call_id and row.text == name:
                done = _turn_of(event)
                self.rows[index] = replace(row, outcome=done.outcome, ok=done.ok)
                return True
        return False


def _is_turn(event: RunEvent) -> bool:
    """Return whether *event* has a row: of requests only one that left something out."""
    if event.type == "model.requested":
        return bool(event.data.get("omitted"))
    return event.type.partition(".")[0] in _TURNS and event.type != "value.read"


def _turn_of(event: RunEvent) -> TimelineRow:
    """Return *event* as a row.

    A call of a tool has its id as text, by which its outcome finds it.
    """
    data, name = event.data, event.type
    row = TimelineRow(seq=event.seq, at=event.at, type=name, who=event.agent or event.part)
    if name == "tool.called":
        called = f"{data.get('name')} {compact(data.get('input'))}"
        return replace(row, text=event.call_id or "", input=called)
    if name == "tool.returned":
        outcome: Any = data.get("content")
        if isinstance(outcome, dict):
            outcome = cast("dict[str, Any]", outcome).get("data", cast("Any", outcome))
        return replace(row, outcome=compact(outcome), ok=data.get("ok") is not False)
    if name == "model.responded" and data.get("text"):
        return replace(row, text=compact(data["text"]))
    if name == "value.changed":
        row = replace(row, who=compact(data.get("agent")) or row.who)
    shown = _SHOWN.get(name.partition(".")[0], tuple(data))
    ok = name not in {"run.failed", "run.lost", "mcp.unavailable"}
    return replace(row, text=_facts(data, shown), ok=ok)


def _facts(data: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return what *data* says under *names*, as one line."""
    said = ((name, _named(data.get(name))) for name in names)
    return " · ".join(f"{name.replace('_', ' ')} {each}" for name, each in said if each)


def _named(value: Any) -> str:
    """Return *value* as one line; a flat mapping by name, without what is 0."""
    if value in (None, "", [], {}, False):
        return ""
    if not isinstance(value, dict):
        return compact(value)
    held = {name: each for name, each in cast("dict[str, Any]", value).items() if each}
    if any(isinstance(each, dict | list) for each in held.values()):
        return compact(held)
    return ", ".join(f"{name.replace('_', ' ')} {compact(each)}" for name, each in held.items())


def compact(value: Any) -> str:
    """Return *value* as one line: text, several texts with commas, else JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    several = cast("list[JSON]", value) if isinstance(value, list) else None
    if several is not None and all(isinstance(each, str) for each in several):
        return ", ".join(map(str, several))
    return msgspec.json.encode(value).decode()
