"""`StepPolicy`: the rules of one try of a step in the loop of its agent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext, StructuredDict, ToolOutput
from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import ToolDefinition

from holdfast.memories.run.records.event import Reason
from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message
from holdfast.memories.state.result import text_of
from holdfast.runtime.agent import AnyModel, AnyTool, named
from holdfast.runtime.context import Inbox
from holdfast.runtime.inference.agent_loop import AgentLoop, LoopScope, capabilities, instruments
from holdfast.runtime.inference.messages import to_model
from holdfast.runtime.inference.pages import ResultPages
from holdfast.runtime.inference.request import Sent
from holdfast.runtime.runs.part_log import PartLog
from holdfast.runtime.runs.run_events import audience
from holdfast.runtime.steps.contract import (
    CONCLUDE,
    CONCLUDE_IN_TEXT,
    Acceptance,
    Contract,
    Stage,
    Stopped,
    parameters,
)
from holdfast.runtime.steps.record import StepRecord
from holdfast.runtime.steps.tools import FINISH, StepEvents, Toolbox
from holdfast.tools.base import Schema, Tool

_FINISH: Final = Tool(
    id="step.finish", name=FINISH, description="", parameters={}, work=lambda _: None
)


def check_names(tools: Iterable[AnyTool], contract: Iterable[Tool]) -> None:
    """Raise ToolNameTaken for two tools of one name, *tools* or ours."""
    named([*contract, ResultPages(1).tool(), _FINISH], tools)


# The agents below hold no data of a step; a run gets those in its `deps`, the loop.

FINISH_WORDS: Final = "Hand over the result of this step and end it. Call it once, as the last act."

IN_TEXT: Final = ModelAgent[Any, str](name="step", output_type=str, end_strategy="graceful")


@IN_TEXT.output_validator
async def accept_text(ctx: RunContext[Any], text: str) -> str:
    """Return the answer in *text*; a blank one is retried."""
    policy: StepPolicy = ctx.deps.policy
    return await policy.acceptance.of_text(text)


def with_schema(shown: Schema) -> ModelAgent[Any, Any]:
    """Return the agent that ends with `finish_step`, whose parameters are *shown*.

    Making one takes as long as a run of it, so recent ones are cached: the steps of a list share
    one. pydantic-ai cannot take a schema that refers to itself; `RequestRewrite` sets it instead.
    """
    text = msgspec.json.encode(shown)
    return _with_schema(b"{}" if REFERENCE in text else text)


REFERENCE: Final = b'"$ref"'
"""In the JSON of each schema with references."""


@lru_cache(maxsize=256)
def _with_schema(text: bytes) -> ModelAgent[Any, Any]:
    shown = msgspec.json.decode(text) or {"type": "object"}
    output = ToolOutput(StructuredDict(shown), name=FINISH, description=FINISH_WORDS, strict=False)
    made = ModelAgent[Any, Any](name="step", output_type=output, end_strategy="graceful")
    made.output_validator(accept_arguments)
    return made


async def accept_arguments(ctx: RunContext[Any], arguments: Any) -> Any:
    """Return the result in *arguments*; problems are returned to the model."""
    policy: StepPolicy = ctx.deps.policy
    return await policy.acceptance.of_arguments(arguments)


def with_contract(prompt: Sequence[Message], history: Sequence[Message], contract: str) -> Sent:
    """Return *history* and *prompt* as they are sent.

    The *contract* is in every system text, even if a hook removed it.
    """
    system, rest = "", list(prompt)
    if rest and rest[0].role == "system":
        system = text_of(rest.pop(0))
    if contract not in system:
        system = "\n\n".join(filter(None, (system, contract)))
    return Sent(system, to_model([*history, *rest]))


@dataclass(eq=False, kw_only=True)
class StepPolicy:
    """The rules of one try of the step of *record*, under the *system* text.

    *acceptance* has its result rule, *stage* its budget, *toolbox* its tools.
    """

    record: StepRecord
    model: AnyModel
    contract: Contract
    acceptance: Acceptance
    stage: Stage
    toolbox: Toolbox
    system: str

    def __post_init__(self) -> None:
        wanted = self.acceptance.wanted
        self.finish_parameters: Schema = parameters(wanted.schema) if wanted else {}
        self._audience = audience.get()
        context, step, toolbox = self.record.context, self.record.step, self.toolbox
        self.kept = context.logs.of(step.id, self.record.agent)
        self.kept.share(toolbox.pages.results)
        events = StepEvents(
            context,
            toolbox,
            self.kept,
            agent=self.record.agent,
            step=step.id,
            task=self.record.task.id,
        )
        self.scope = LoopScope(
            agent=toolbox.agent,
            run=context,
            run_id=context.run_id,
            input=step.instructions,
            clock=context.clock,
            emit=events.chunks if context.stream else None,
            calls=events.calls if context.watched else None,
            tell=events.tell if context.watched else None,
            result_schema=self.finish_parameters or None,
            kept=self.kept,
        )

    async def may_request(self) -> Reason | None:
        """Count one more request; return a reason if none is left and there is a result.

        Raise Stopped if there is none.
        """
        try:
            self.stage.begin_request()
        except Stopped:
            if self.acceptance.result is UNSET:
                raise
            # It was finished, and then steered: its result stands.
            message = "the message to the step came too late for another request"
            await self.record.warn(message)
            return "max_iterations"
        self.acceptance.finished = False
        return None

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return the messages to send for a hook's *prompt* and *history*."""
        return with_contract(prompt, history, self.contract.text)

    def replied(self, response: ModelResponse) -> None:
        """Add the usage of *response* to that of the run."""
        self.record.context.spend(response.usage)

    def resumed(self, kept: PartLog) -> None:
        """Count the replies that *kept* has, of which the last one's tools run next."""
        self.stage.resume(kept.messages)

    async def concludes(self, ctx: RunContext[Any], tools: Sequence[ToolDefinition]) -> bool:
        """Return whether the request of *ctx* with *tools* concludes the step."""
        wanted, shown = self.acceptance.wanted, self.finish_parameters
        every = [*tools]
        if wanted is not None:
            every.append(
                ToolDefinition(name=FINISH, description=FINISH_WORDS, parameters_json_schema=shown)
            )
        if self.stage.concludes(ctx.messages, every):
            loop: AgentLoop = ctx.deps
            await self.record.context.tell(self.record.update("entered_conclusion_stage"))
            loop.enqueue(CONCLUDE if wanted else CONCLUDE_IN_TEXT)
        return self.stage.concluding

    async def run(self, loop: AgentLoop, message: str, inbox: Inbox) -> Any:
        """Run *loop* on *message*; return the result, or raise Stopped without one.

        Texts sent to *inbox* meanwhile go before its next request.
        """
        toolbox, shown = self.toolbox, self.finish_parameters
        agent = toolbox.agent
        chooses = agent.tool_choice != "auto"
        refers = REFERENCE in msgspec.json.encode(shown)
        reason = await loop.run(
            with_schema(shown) if self.acceptance.wanted else IN_TEXT,
            # Only hooks see it, and without hooks it is not needed.
            (messages.system(self.system), messages.user(message)) if agent.hooks else (),
            inbox=inbox,
            steered=self.steered,
            user_prompt=message,
            instructions=self.system,
            model=self.model,
            model_settings=toolbox.settings if chooses else agent.model_settings,
            toolsets=[toolbox.toolset(self.concludes, lambda: self.acceptance.finished)],
            capabilities=[
                *capabilities(agent, rewrite=refers),
                *instruments(self.record.context),
            ],
        )
        if reason == "hook_stop":
            raise Stopped("hook", "the hook on_start stopped it")
        result, wanted = self.acceptance.result, self.acceptance.wanted
        if agent.hooks is None:
            return result
        text = await loop.finished("" if wanted else result)
        return result if wanted else text

    def steered(self, text: str) -> None:
        """Emit that *text* was put before the next request, from any thread."""
        update = self.record.log("info", f"Steered: {text}")
        self.record.context.tell_soon(update, to=self._audience)
