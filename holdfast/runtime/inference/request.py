"""One request to a model: hooks and streaming.

System text; the agent's opening words; the opening; turns of earlier runs, oldest first; the new
input; turns of this run. A request never ends with an agent's words.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state import history
from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult, text_of
from holdfast.runtime.agent import AgentSpec, AgentStart
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.inference.messages import HistoryTurn, to_model, turns_of
from holdfast.runtime.inference.run_types import Run

GO_ON = "Continue."
"""What closes a request that would end with an agent's words; it is not stored."""


class Sent(Struct, frozen=True):
    """What goes before an agent's own loop: the system text, and all that was said."""

    system: str
    messages: list[ModelMessage]


class AgentRequest(Struct, frozen=True, kw_only=True):
    """What a call of an agent begins with.

    `prompt` is system text, opening and new input, `history` what was said before; of its turns,
    `earlier` go before the input, `later` are this run's and follow it.
    """

    prompt: tuple[Message, ...]
    history: tuple[Message, ...]
    input: Message | None
    earlier: tuple[HistoryTurn, ...]
    later: tuple[HistoryTurn, ...]

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return what is sent when a hook wants *prompt* and *history*."""
        system, opening, asked = self._parted(prompt)
        before, after = self._divided(history)
        found = [
            *to_model(opening),
            *_native(before, self.earlier),
            *to_model(asked),
            *_native(after, self.later),
        ]
        return Sent(system, closed(found))

    def _parted(
        self, prompt: Sequence[Message]
    ) -> tuple[str, Sequence[Message], Sequence[Message]]:
        """Return the system text, the opening, and what is asked, which comes last."""
        system = ""
        if prompt and prompt[0].role == "system":
            system, prompt = text_of(prompt[0]), prompt[1:]
        if self.input is None:
            return system, prompt, ()
        places = [i for i, each in enumerate(prompt) if each is self.input]
        if not places and prompt and prompt[-1].role == "user":
            places = [len(prompt) - 1]
        at = places[-1] if places else len(prompt)
        return system, prompt[:at], prompt[at:]

    def _divided(self, history: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
        """Return what of *history* goes before the input, and what follows it: from this run on."""
        ours = {id(message) for turn in self.later for message in turn.messages}
        at = next((i for i, each in enumerate(history) if id(each) in ours), len(history))
        return history[:at], history[at:]


async def sending(agent: AgentSpec, run: Run, system: str) -> AgentRequest:
    """Return what a call of *agent* in *run* begins with, under the *system* text."""
    view = run.view_of(agent)
    found = turns_of(run.state, agent=agent.name, run_id=run.id, view=view)
    if found.window is not None:
        run.leave_out(found.window)
    asked = messages.user(run.input) if run.input else None
    spoken: list[Message] = [messages.system(system)] if system else []
    if agent.assistant:
        spoken.append(TextMessage(role="assistant", content=agent.assistant, agent=agent.name))
    spoken.extend(found.opening)
    if asked is not None:
        spoken.append(asked)
    history = [message for turn in (*found.earlier, *found.later) for message in turn.messages]
    return AgentRequest(
        prompt=tuple(spoken),
        history=tuple(history),
        input=asked,
        earlier=tuple(found.earlier),
        later=tuple(found.later),
    )


def closed(found: list[ModelMessage]) -> list[ModelMessage]:
    """Return *found*, ending with what asks the agent to go on where an agent spoke last."""
    if found and isinstance(found[-1], ModelResponse):
        return [*found, ModelRequest([UserPromptPart(GO_ON)])]
    return found


def _native(said: Sequence[Message], turns: Sequence[HistoryTurn]) -> list[ModelMessage]:
    """Return *said* as it is sent; a turn that is in it whole goes as its provider knows it."""
    found: list[ModelMessage] = []
    loose: list[Message] = []
    whole = {id(turn.messages[0]): turn for turn in turns if turn.messages and turn.native}
    at = 0
    while at < len(said):
        turn = whole.get(id(said[at]))
        if turn is not None and _is_there(turn, said, at):
            found += [*to_model(loose), *(turn.native or ())]
            loose, at = [], at + len(turn.messages)
            continue
        loose.append(said[at])
        at += 1
    return [*found, *to_model(loose)]


def _is_there(turn: HistoryTurn, said: Sequence[Message], at: int) -> bool:
    there = said[at : at + len(turn.messages)]
    return len(there) == len(turn.messages) and all(
        one is other for one, other in zip(there, turn.messages, strict=True)
    )


_CHANGEABLE = ("prompt", "history", "stop")


class HookFailed(Exception):
    """A hook raised, or answered what it may not; that is its cause."""

    def __init__(self, hook: str) -> None:
        super().__init__(f"the hook {hook} failed")
        self.hook = hook


async def is_enabled(agent: AgentSpec, run: Any) -> bool:
    """Tell whether *agent* may be called in *run*; HookFailed if it cannot be told."""
    enabled = agent.hooks.enabled if agent.hooks else None
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False
    answer = await _asked("enabled", enabled, agent, run)
    if not isinstance(answer, bool):
        raise HookFailed("enabled") from InvalidInput("enabled", "must return a bool", given=answer)
    return answer


async def system_text(agent: AgentSpec, run: Any) -> str:
    """Return the instructions of *agent* in *run*."""
    if isinstance(agent.instructions, str):
        return agent.instructions
    text: Any = await _asked("instructions", agent.instructions, run)
    if not isinstance(text, str):
        raise HookFailed("instructions") from InvalidInput(
            "instructions", "must return text", given=text
        )
    return text


async def started(start: AgentStart) -> AgentStart:
    """Return what is to be sent, by the agent's hook, in place of *start*."""
    hook = start.agent.hooks.on_start if start.agent.hooks else None
    if hook is None:
        return start
    answer = await _asked("on_start", hook, start)
    try:
        return _start(start, answer)
    except InvalidInput as error:
        raise HookFailed("on_start") from error


async def answered(agent: AgentSpec, result: InferenceResult, run: Any) -> InferenceResult:
    """Return *result* as the agent's hook, asked after a reply, wants it."""
    hook = agent.hooks.on_response if agent.hooks else None
    return await _result("on_response", hook, result, run) if hook else result


async def finished(agent: AgentSpec, result: InferenceResult, run: Any) -> InferenceResult:
    """Return *result* as the agent's hook, asked at the end, wants it; whose it is stays."""
    hook = agent.hooks.on_finish if agent.hooks else None
    if hook is None:
        return result
    changed = await _result("on_finish", hook, result, run)
    return changed.replace(
        agent=result.agent, id=result.id, run_id=result.run_id, index=result.index
    )


async def _result(
    name: str, hook: Callable[..., Any], result: InferenceResult, run: Any
) -> InferenceResult:
    answer = await _asked(name, hook, result, run)
    if answer is None:
        return result
    if not isinstance(answer, InferenceResult):
        raise HookFailed(name) from InvalidInput(
            name, "must return an InferenceResult or nothing", given=answer
        )
    return answer


async def _asked(name: str, hook: Callable[..., Any], *given: Any) -> object:
    try:
        return await awaited(hook(*given))
    except Exception as error:
        # Whatever a user's code raises; it is the cause, by which the run's end is told.
        raise HookFailed(name) from error


def _start(start: AgentStart, answer: object) -> AgentStart:
    if answer is None:
        return start
    if isinstance(answer, AgentStart):
        changes = {name: getattr(answer, name) for name in _CHANGEABLE}
    elif isinstance(answer, dict):
        changes = cast("dict[str, Any]", answer)
    else:
        raise InvalidInput("on_start", "must return an AgentStart, a dict or nothing", given=answer)
    if unknown := next((name for name in changes if name not in _CHANGEABLE), None):
        raise InvalidInput(
            "on_start", f"may change prompt, history and stop, not {unknown}", given=unknown
        )
    stop = changes.get("stop", start.stop)
    if not isinstance(stop, bool):
        raise InvalidInput("on_start", "stop must be a bool", given=stop)
    return AgentStart(
        agent=start.agent,
        run=start.run,
        input=start.input,
        prompt=_messages("prompt", changes.get("prompt", start.prompt)),
        history=_messages("history", changes.get("history", start.history)),
        stop=stop,
        step=start.step,
    )


def _messages(name: str, given: object) -> tuple[Message, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidInput("on_start", f"{name} must be a list of messages", given=given)
    try:
        return tuple(history.from_dict(each) for each in cast("Sequence[Any]", given))
    except InvalidInput as error:
        raise InvalidInput("on_start", f"{name}: {error.field}: {error.reason}") from error


def retell(response: ModelResponse, before: InferenceResult, after: InferenceResult) -> None:
    """Put the last text of *after* in the place of what *response*, the last of *before*, says."""
    text = _last(after) if after.output else ""
    if len(after.output) == len(before.output) and text == _last(before):
        return
    if text == said_of(response):
        return
    response.parts = _with(response.parts, text)


def said_of(response: ModelResponse) -> str:
    """Return what *response* says."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _last(result: InferenceResult) -> str:
    return text_of(result.output[-1]) if result.output else ""


def _with(parts: Sequence[ModelResponsePart], text: str) -> list[ModelResponsePart]:
    """Return *parts* with *text* where their own text began, or before the first call."""
    first = next((i for i, each in enumerate(parts) if isinstance(each, TextPart)), None)
    at = first
    if at is None:
        at = next((i for i, each in enumerate(parts) if isinstance(each, ToolCallPart)), len(parts))
    told = parts[at] if first is not None else TextPart("")
    kept: list[ModelResponsePart] = list(parts[:at])
    if text and isinstance(told, TextPart):
        kept.append(replace(told, content=text))
    return [*kept, *(each for each in parts[at:] if not isinstance(each, TextPart))]


DeltaType: TypeAlias = Literal["text.delta", "reasoning.delta"]
Delta: TypeAlias = tuple[DeltaType, str]

_OF_FUNCTION: Final = "FunctionModel.request_stream"
"""A method by its name: importing its module costs every start 20 ms (`bench/startup.py`)."""


def can_stream(model: Model) -> bool:
    """Tell whether *model* can answer piece by piece."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(can_stream, model.models))
    asked = type(model).request_stream
    if getattr(asked, "__qualname__", None) == _OF_FUNCTION:
        return getattr(model, "stream_function", None) is not None
    return asked is not Model.request_stream


async def deltas(stream: AsyncIterable[Any]) -> AsyncIterator[Delta]:
    """Give the pieces of text and of reasoning in *stream* as they arrive."""
    async for event in stream:
        found: Delta | None = None
        match event:
            case PartStartEvent(part=TextPart(content=text)):
                found = ("text.delta", text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                found = ("reasoning.delta", text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                found = ("text.delta", text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
                found = ("reasoning.delta", text)
            case _:
                pass
        if found and found[1]:
            yield found


def whole(response: ModelResponse) -> list[Delta]:
    """Return *response* as one piece of reasoning and one of text, where it has them."""
    thoughts = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    text = "".join(p.content for p in response.parts if isinstance(p, TextPart))
    found: list[Delta] = [("reasoning.delta", thoughts), ("text.delta", text)]
    return [each for each in found if each[1]]
