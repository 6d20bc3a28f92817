"""What a session did with its memories, for whoever wants to know."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.memories.state.message import to_text

SessionEventType: TypeAlias = Literal[
    "hydrated", "omitted", "longterm_off", "recalled", "stored", "mined", "failed"
]


class SessionEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened around the turns of a session; `data` names things, by key or id.

    - `hydrated`: `run_id`, `entries` (keys), `size_bytes`, `digest`
    - `omitted`: `entries` (each `key`, `category`, `size_bytes`, `reason`) that hydration left out
    - `longterm_off`: `reason`
    - `recalled`: `ids`, best first, and `left_out`, how many the block had no room for
    - `stored`: `turns` (ids), `skipped` (each `index`, `reason`), `queued`, `evicted`
    - `mined`: `items` (ids), `outcomes`, `done`, `pending`, `failed`
    - `failed`: `what` (hydrate, longterm, recall, remember, close, flush), `error`, `message`
    """

    type: SessionEventType
    at: datetime
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"type": self.type, "at": to_text(self.at), "data": self.data}
