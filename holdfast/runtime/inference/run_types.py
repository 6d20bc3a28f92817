"""What a call has come to, as a result: made anew from what was exchanged each time it is asked."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
)
from pydantic_ai.usage import RunUsage

from holdfast.memories.state.message import Message
from holdfast.memories.state.result import InferenceResult, Usage, result_id
from holdfast.runtime.agent import AgentSpec
from holdfast.runtime.inference.messages import Answers, texts, tool_results
from holdfast.runtime.inference.run import Run


class CallRecord:
    """What one call has come to: what it was given, what its tools answered, what it cost."""

    def __init__(self, agent: AgentSpec, run: Run, *, index: int, answers: Answers) -> None:
        self._agent, self._run, self._index, self._answers = agent, run, index, answers
        self._before = deepcopy(run.usage)
        self._created_at = run.clock.now()
        self.prompt: tuple[Message, ...] = ()
        self.history: tuple[Message, ...] = ()

    def result(
        self,
        exchanged: Iterable[ModelMessage],
        *,
        stop_reason: str,
        error: dict[str, Any] | None = None,
    ) -> InferenceResult:
        """Return the result of what was *exchanged*, which ended for *stop_reason*."""
        bare = [_bare(each) for each in exchanged]
        name = self._agent.name
        return InferenceResult(
            agent=name,
            input=self._run.input,
            prompt=list(self.prompt),
            history=list(self.history),
            output=texts(bare, name),
            tool_calls=tool_results(bare, name, self._answers),
            raw=ModelMessagesTypeAdapter.dump_json(bare).decode() if bare else "",
            id=result_id(self._run.id, self._index),
            created_at=self._created_at,
            stop_reason=stop_reason,
            usage=self._usage(),
            run_id=self._run.id,
            index=self._index,
            model=_model(bare),
            error=error,
        )

    def _usage(self) -> Usage:
        used: RunUsage = self._run.usage - self._before
        return Usage(
            requests=used.requests,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            tool_calls=used.tool_calls,
            details={name: count for name, count in used.details.items() if count > 0},
        )


def _bare(message: ModelMessage) -> ModelMessage:
    """Return *message* without the system text, which each result has in its prompt."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


def _model(exchanged: Iterable[ModelMessage]) -> str | None:
    names = [each.model_name for each in exchanged if isinstance(each, ModelResponse)]
    return names[-1] if names else None
