"""Sending what a hook wants sent with a request of a turn, in place of what the turn began with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestContext

from holdfast.runtime.steps.hooks import Rewritten, StepHooks


@dataclass
class TurnRewrite(AbstractCapability[Any]):
    """Puts what *hooks* made of a turn in the place of its *prompt* and of its system text."""

    hooks: StepHooks
    prompt: str

    async def before_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Return the request as the hook wants it; earlier turns stay as they are."""
        rewritten = self.hooks.rewritten
        if rewritten is None:
            return request_context
        instructions = [InstructionPart(rewritten.system)] if rewritten.system else None
        return replace(
            request_context,
            messages=list(self._sent(request_context.messages, rewritten)),
            model_request_parameters=replace(
                request_context.model_request_parameters, instruction_parts=instructions
            ),
        )

    def _sent(
        self, messages: Sequence[ModelMessage], rewritten: Rewritten
    ) -> Iterator[ModelMessage]:
        for message in messages:
            before = [part for part in message.parts if not self._opens(part)]
            if len(before) == len(message.parts):
                yield message
                continue
            # What stands with the prompt answers calls of the turn before, and goes first.
            if before and isinstance(message, ModelRequest):
                yield replace(message, parts=before)
            yield from rewritten.messages

    def _opens(self, part: object) -> bool:
        return isinstance(part, UserPromptPart) and part.content == self.prompt
