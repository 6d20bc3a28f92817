"""Whether what a model hands over is a step's result; if not, what it is told."""

import re
from typing import Any, Final

from msgspec import UNSET
from pydantic_ai import ModelRetry

from holdfast.runtime.concurrency import awaited
from holdfast.runtime.steps.assignment import AcceptResult
from holdfast.runtime.steps.contract import ResultSchema
from holdfast.runtime.steps.stopped import Stopped

REFUSALS: Final = 3
"""Refusals by the caller, the last of which fails the step."""

_THOUGHTS: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)


class Acceptance:
    """Judges results: by the schema they are *wanted* to have, then by *accept_result*.

    `result` is the last one accepted, UNSET before; `finished` is true from then until the next
    request.
    """

    def __init__(self, wanted: ResultSchema | None, accept_result: AcceptResult | None) -> None:
        self.result: Any = UNSET
        self.finished = False
        self._wanted, self._accept_result = wanted, accept_result
        self._refusals = 0

    async def of_arguments(self, wanted: ResultSchema, arguments: dict[str, Any]) -> Any:
        """Return the result that *arguments* of `finish_step` hold; ModelRetry if they do not."""
        candidate = wanted.candidate(arguments)
        if problems := wanted.problems(candidate):
            told = "\n".join(f"- {each}" for each in problems)
            raise ModelRetry(f"The result was refused. Correct this and call again:\n{told}")
        return await self._accepted(candidate)

    async def of_text(self, text: str) -> str:
        """Return the answer in *text*, without thoughts; ModelRetry if there is none."""
        answer = _THOUGHTS.sub("", text).strip()
        if not answer:
            raise ModelRetry("The answer was blank. Answer in plain text.")
        return await self._accepted(answer)

    async def _accepted(self, candidate: Any) -> Any:
        reason = await awaited(self._accept_result(candidate)) if self._accept_result else None
        if reason is not None:
            self._refusals += 1
            if self._refusals == REFUSALS:
                raise Stopped("rejected", f"the result was refused {REFUSALS} times: {reason}")
            raise ModelRetry(f"The result was refused: {reason}")
        self.finished, self.result = True, candidate
        return candidate
