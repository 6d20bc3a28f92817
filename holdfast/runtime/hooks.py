"""What an agent's owner may look at and change while it is called: the four hooks.

Each may be plain or awaitable, and one that returns nothing changes nothing.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from holdfast.memories.state.messages import Message
    from holdfast.memories.state.result import InferenceResult
    from holdfast.runtime.agent import Agent

AnyRun: TypeAlias = Any
"""The run an agent is called in: a `NetworkRun`, a `Context`, or None when it stands alone.

Whoever writes a hook for one of them says so in its own signature.
"""


class AgentStart(Struct, frozen=True, kw_only=True):
    """What is about to be sent: the *step*-th request of a call, counted from 1.

    *prompt* is what opens the request (system text, opening, new input), *history* what was said
    before. A changed pair counts for this request; *stop* ends the call without it.
    """

    agent: "Agent"
    run: AnyRun
    input: str
    prompt: "tuple[Message, ...]"
    history: "tuple[Message, ...]"
    stop: bool = False
    step: int = 1


Started: TypeAlias = AgentStart | dict[str, Any] | None
Changed: TypeAlias = "InferenceResult | None"
Enabled: TypeAlias = 'Callable[["Agent", AnyRun], bool | Awaitable[bool]]'
OnStart: TypeAlias = Callable[[AgentStart], Started | Awaitable[Started]]
OnResult: TypeAlias = 'Callable[["InferenceResult", AnyRun], Changed | Awaitable[Changed]]'


class AgentHooks(Struct, frozen=True, kw_only=True):
    """What is asked around the calls of an agent.

    *enabled* keeps the agent out of a run; *on_start* is asked before each request, *on_response*
    after each reply and before its tools, *on_finish* once at the end.
    """

    enabled: "Enabled | bool | None" = None
    on_start: "OnStart | None" = None
    on_response: "OnResult | None" = None
    on_finish: "OnResult | None" = None
