"""How many requests a step has made and may make, and when it is to conclude."""

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import ToolDefinition

from holdfast.runtime.steps.sizes import Sizes
from holdfast.runtime.steps.stopped import Stopped

FULL: Final = 0.9
"""The part of its token budget from which on a step is to conclude."""

CONCLUDING: Final = 3
"""Requests that a step may make to conclude."""


class Stage:
    """Where one try of a step is: at most *most* requests, of about *budget* tokens at most."""

    def __init__(self, *, most: int, budget: int, sizes: Sizes) -> None:
        self.requests = 0
        self.concluding = False
        self._most, self._budget, self._sizes = most, budget, sizes
        self._tokens, self._weighed, self._last_ones = 0, 0, 0

    def begin_request(self) -> None:
        """Count one more request; Stopped if there may be none."""
        if self.requests >= self._most:
            told = f"no result after {self.requests} model requests, the most that are allowed"
            raise Stopped("max_iterations", told)
        if self._last_ones >= CONCLUDING:
            raise Stopped(
                "token_budget",
                f"no result in {CONCLUDING} requests after the context took {self._tokens} tokens "
                f"of a budget of {self._budget}",
            )
        self.requests += 1

    def concludes(self, messages: Sequence[ModelMessage], tools: Iterable[ToolDefinition]) -> bool:
        """Tell whether from this request on, which sends these, the step is to conclude."""
        if self._weighed == self.requests:
            return False
        self._weighed = self.requests
        before = self.concluding
        if not before:
            self._tokens = self._sizes.tokens(messages, tools)
            last = self.requests == self._most
            self.concluding = last or self._tokens > FULL * self._budget
        self._last_ones += self.concluding
        return self.concluding and not before
