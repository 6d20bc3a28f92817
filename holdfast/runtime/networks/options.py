"""How one run of a network is to be."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from pydantic_ai.usage import UsageLimits

from holdfast.runtime.run_events import OnEvent

MAX_ITER = 25
"""Calls of agents in one run, unless told otherwise."""


class NetworkOptions(Struct, frozen=True, kw_only=True):
    """What `RunOptions` say, with what stands where nothing was said."""

    state: Any = None
    data: Any = None
    thread_id: str | None = None
    run_id: str | None = None
    router: Any = None
    model: Any = None
    max_iter: int | UnsetType | None = UNSET
    history: Any = None
    timeout: float | None = None
    usage_limits: UsageLimits | None = None
    on_event: OnEvent | None = None
    raises: bool = True
