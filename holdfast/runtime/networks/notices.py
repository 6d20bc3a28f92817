"""What a run tells a bus of events: what happened, and nothing of what was said."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.json import encode

from holdfast.ground.events import Event, EventBus
from holdfast.runtime.history import EngineHistory
from holdfast.runtime.run_events import RunEvent

FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "run.started": (),
    "router.decided": ("route", "agents"),
    "agent.started": ("index",),
    "agent.finished": ("result_id", "stop_reason", "usage"),
    "agent.skipped": ("why",),
    "tool.called": ("name",),
    "tool.returned": ("name", "duration_ms"),
    "value.changed": ("key", "version"),
    "history.omitted": ("count", "size"),
    "mcp.unavailable": ("server",),
    "run.completed": ("stop_reason", "usage", "dropped"),
    "run.failed": ("stop_reason", "usage", "dropped"),
    "run.cancelled": ("stop_reason", "usage", "dropped"),
}
"""What of each event goes on; pieces of texts do not."""


def notices_of(history: object) -> Callable[[RunEvent], None] | None:
    """Return what tells the bus of *history*'s engine; None where there is none."""
    if not isinstance(history, EngineHistory) or history.bus is None:
        return None
    bus, workspace = history.bus, history.hf.workspace

    def tell(event: RunEvent) -> None:
        if event.type in FACTS:
            _publish(bus, event, workspace)

    return tell


def _publish(bus: EventBus, event: RunEvent, workspace: str) -> None:
    ids = {
        "run_id": event.run_id,
        "thread_id": event.thread_id,
        "network": event.network,
        "agent": event.agent,
        "call_id": event.call_id,
    }
    facts = {name: _fact(event.data[name]) for name in FACTS[event.type] if name in event.data}
    bus.publish(
        Event(
            type=f"network.{event.type.replace('.', '_')}",
            at=event.at,
            workspace=workspace,
            ids={name: each for name, each in ids.items() if each is not None},
            data={"seq": event.seq, **facts},
        )
    )


def _fact(value: Any) -> str | int | float | bool | None:
    """Return *value* as an event may hold it: one that has parts as its JSON."""
    return value if isinstance(value, str | int | float | None) else encode(value).decode()
