"""The pydantic-ai agents below all steps: one for each schema of `finish_step`, one for text.

They hold nothing of any step. What a run of one needs is its `deps`, of the try it belongs to.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext, StructuredDict, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition

from holdfast.ground.errors import EngineFault
from holdfast.runtime.steps.contract import Acceptance, ResultSchema
from holdfast.runtime.steps.hooks import StepHooks
from holdfast.runtime.steps.tools import FINISH
from holdfast.tools.base import Schema

FINISH_WORDS: Final = "Hand over the result of this step and end it. Call it once, as the last act."


class StepDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The `deps` of a try's loop: `finish_step` as it is shown, hooks, and who judges a result."""

    finish_parameters: Schema
    hooks: StepHooks
    acceptance: Acceptance
    wanted: ResultSchema | None


class StepRequestRewrite(AbstractCapability[Any]):
    """Shows `finish_step` with the schema of the step, and sends what a hook wants sent."""

    async def prepare_output_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Return `finish_step` as this step has it."""
        deps: StepDeps = ctx.deps
        shown = deps.finish_parameters
        return [replace(each, parameters_json_schema=shown) for each in tool_defs]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with what a hook put in the place of the prompt."""
        deps: StepDeps = ctx.deps
        rewritten = deps.hooks.rewritten
        if rewritten is None:
            return request_context
        instructions = [InstructionPart(rewritten.system)] if rewritten.system else None
        parts = request_context.model_request_parameters
        return replace(
            request_context,
            # The first message is the step's own: what a hook changed is sent in its place.
            messages=[*rewritten.messages, *request_context.messages[1:]],
            model_request_parameters=replace(parts, instruction_parts=instructions),
        )


IN_TEXT: Final = ModelAgent[Any, str](name="step", output_type=str, end_strategy="graceful")


@IN_TEXT.output_validator
async def accept_text(ctx: RunContext[Any], text: str) -> str:
    """Return the answer in *text*; a blank one is asked for again."""
    deps: StepDeps = ctx.deps
    return await deps.acceptance.of_text(text)


def with_schema(shown: Schema) -> ModelAgent[Any, Any]:
    """Return the agent that ends with `finish_step`, whose parameters are *shown*.

    Making one takes as long as a run of it, so that those of lately are kept: the steps of a list
    share one. A schema that refers to itself cannot be told to pydantic-ai, and is shown by
    `Rewriting` instead.
    """
    text = msgspec.json.encode(shown)
    return _with_schema(b"{}" if refers(shown) else text)


def refers(shown: Schema) -> bool:
    """Tell whether there may be references in *shown*."""
    return b'"$ref"' in msgspec.json.encode(shown)


@lru_cache(maxsize=256)
def _with_schema(text: bytes) -> ModelAgent[Any, Any]:
    shown = msgspec.json.decode(text) or {"type": "object"}
    output = ToolOutput(StructuredDict(shown), name=FINISH, description=FINISH_WORDS, strict=False)
    made = ModelAgent[Any, Any](name="step", output_type=output, end_strategy="graceful")
    made.output_validator(accept_arguments)
    return made


async def accept_arguments(ctx: RunContext[Any], arguments: Any) -> Any:
    """Return the result that *arguments* hold; what is wrong with it goes back to the model."""
    deps: StepDeps = ctx.deps
    if deps.wanted is None:
        raise EngineFault("finish_step was called where it was not offered")
    return await deps.acceptance.of_arguments(deps.wanted, arguments)
