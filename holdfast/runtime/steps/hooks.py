"""Run the hooks of an agent in a step or a team turn, as in any other call."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from pydantic_ai.messages import ModelMessage, ModelResponse

from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message
from holdfast.memories.state.result import InferenceResult, Usage, text_of
from holdfast.runtime.agent import AgentStart
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.messages import texts, to_model, tool_results
from holdfast.runtime.inference.request import answered, finished, retell, started
from holdfast.runtime.steps.contract import Stopped


class Rewritten(Struct, frozen=True):
    """The system text and first messages as changed by a hook."""

    system: str
    messages: list[ModelMessage]


class LoopScope(Struct, frozen=True, kw_only=True):
    """The loop for which hooks run: that of *agent*, with *input*.

    *contract* stays in every system text, whatever a hook sets there. Only a loop that *gives text*
    has a result that a hook may change.
    """

    agent: Agent
    context: Context
    input: str
    contract: str
    gives_text: bool


class StepHooks:
    """Runs the hooks of one loop. `rewritten` holds their changes to the next request."""

    def __init__(self, loop: LoopScope, *, system: str, message: str) -> None:
        self._loop, self._agent, self._context = loop, loop.agent, loop.context
        self._prompt: tuple[Message, ...] = (messages.system(system), messages.user(message))
        self._has_hooks = self._agent.hooks is not None
        self.rewritten: Rewritten | None = None

    async def starting(self, step: int) -> None:
        """Run `on_start` for request number *step*; raise Stopped if it stops the loop."""
        if not self._has_hooks:
            return
        start = AgentStart(
            agent=self._agent,
            run=self._context,
            input=self._loop.input,
            prompt=self._prompt,
            history=(),
            step=step,
        )
        changed = await started(start)
        if changed.stop:
            raise Stopped("hook", "the hook on_start stopped it")
        same = changed.prompt == start.prompt and not changed.history
        self.rewritten = None if same else self._sent(changed.prompt, changed.history)

    async def on_response(self, response: ModelResponse, exchanged: Sequence[ModelMessage]) -> None:
        """Run `on_response`, which may change the text of *response*."""
        if not self._has_hooks:
            return
        before = self._result(exchanged, "done")
        after = await answered(self._agent, before, self._context)
        retell(response, before, after)

    async def finishing(
        self, exchanged: Sequence[ModelMessage], result: Any, *, reason: str
    ) -> Any:
        """Return *result* as changed by `on_finish`; only a text can be changed."""
        if not self._has_hooks:
            return result
        before = self._result(exchanged, reason)
        after = await finished(self._agent, before, self._context)
        if self._loop.gives_text and isinstance(result, str) and after.output:
            said = text_of(after.output[-1])
            return said if not before.output or said != text_of(before.output[-1]) else result
        return result

    def _sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Rewritten:
        system, rest = "", list(prompt)
        if rest and rest[0].role == "system":
            system = text_of(rest.pop(0))
        contract = self._loop.contract
        if contract not in system:
            # The contract is in every prompt, even if a hook removed it.
            system = "\n\n".join(filter(None, (system, contract)))
        return Rewritten(system, to_model([*history, *rest]))

    def _result(self, exchanged: Sequence[ModelMessage], reason: str) -> InferenceResult:
        name = self._agent.name
        replies = [each for each in exchanged if isinstance(each, ModelResponse)]
        return InferenceResult(
            agent=name,
            input=self._loop.input,
            prompt=list(self._prompt),
            output=texts(exchanged, name),
            tool_calls=tool_results(exchanged, name, {}),
            created_at=self._context.clock.now(),
            stop_reason=reason,
            usage=Usage(
                requests=len(replies),
                input_tokens=sum(each.usage.input_tokens for each in replies),
                output_tokens=sum(each.usage.output_tokens for each in replies),
            ),
            run_id=self._context.run_id,
            model=replies[-1].model_name if replies else None,
        )
