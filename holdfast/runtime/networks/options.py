"""How one run of a network is to be."""

from collections.abc import Mapping
from typing import Any, TypedDict

from msgspec import UNSET, Struct, UnsetType
from pydantic_ai.usage import UsageLimits

from holdfast.memories.state.state import NetworkState
from holdfast.runtime.history import History
from holdfast.runtime.networks.route import Router
from holdfast.runtime.networks.routing_agent import RoutingAgent
from holdfast.runtime.parts import AnyModel
from holdfast.runtime.run_events import OnEvent

MAX_ITER = 25
"""Calls of agents in one run, unless told otherwise."""


class RunOptions(TypedDict, total=False):
    """How a run is to be; all may be left out, and goes before what the network says.

    A run works on *state* itself (a state, its JSON text or its dict), or on a copy of the
    network's; *data* are values to set there first. *model* is asked for every agent. *max_iter*
    bounds calls of agents (None: no bound), *timeout* seconds. With the *run_id* of a run that was
    begun before, what its thread holds of it is not run again. A failed run raises RunFailed,
    unless *raises* is False.
    """

    state: NetworkState | str | dict[str, Any] | None
    data: Mapping[str, Any] | None
    thread_id: str | None
    run_id: str | None
    router: Router | RoutingAgent | None
    model: AnyModel | None
    max_iter: int | None
    history: History | None
    timeout: float | None
    usage_limits: UsageLimits | None
    on_event: OnEvent | None
    raises: bool


class Options(Struct, frozen=True, kw_only=True):
    """The same with what stands where nothing was said."""

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
