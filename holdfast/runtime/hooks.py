"""What an agent's owner is asked of a run: the run itself, and what a hook makes of a result."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from holdfast.memories.state.result import InferenceResult

AnyRun: TypeAlias = Any
"""The run an agent is called in: a `NetworkRun`, a `Context`, or None when it stands alone.

Whoever writes a hook for one of them says so in its own signature.
"""

Changed: TypeAlias = InferenceResult | None
OnResult: TypeAlias = Callable[[InferenceResult, AnyRun], Changed | Awaitable[Changed]]
