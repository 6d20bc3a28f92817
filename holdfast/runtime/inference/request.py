"""One request to a model: hooks and streaming.

A request has, in order: the system text; the agent's opening message; the opening; turns of earlier
runs, oldest first; the new input; turns of this run. It never ends with an agent's message.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, cast
from weakref import finalize

import msgspec
from msgspec import Struct
from pydantic_ai.messages import (
    InstructionPart,
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
from holdfast.ground.text import whole as repaired_text
from holdfast.memories.state import history
from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.references import Seen, ended
from holdfast.memories.state.result import InferenceResult, text_of
from holdfast.memories.state.sources import Before
from holdfast.runtime.agent import AgentSpec, AgentStart
from holdfast.runtime.concurrency import awaited, contained
from holdfast.runtime.inference.messages import HistoryTurn, to_model, turns_of
from holdfast.runtime.inference.run_types import InferenceRun
from holdfast.runtime.runs.suspension import AnswerTimeout, PartCall, asking, current_part

GO_ON = "Continue."
"""The last message of a request that would end with an agent's; it is not stored."""


class Sent(Struct, frozen=True):
    """The system text and the messages before an agent's own loop.

    *tail* is the end of the system text that is another in the next call.
    """

    system: str
    messages: list[ModelMessage]
    tail: str = ""

    def instructions(self) -> list[InstructionPart]:
        """Return the system text in parts: a provider may cache what comes before *tail*."""
        head = self.system.removesuffix(self.tail).rstrip("\n")
        parts = (InstructionPart(head), InstructionPart(self.tail, dynamic=True))
        return [each for each in parts if each.content]


class AgentRequest(Struct, frozen=True, kw_only=True):
    """The first request of an agent's call.

    `prompt` is system text, opening and new input, `history` what was said before. Of its turns,
    `earlier` go before the input, `later` are this run's and follow it. `system` is what goes
    before the opening, `tail` the end of the system text that is another in the next call;
    `before` is what the state held.
    """

    prompt: tuple[Message, ...]
    history: tuple[Message, ...]
    input: Message | None
    earlier: tuple[HistoryTurn, ...]
    later: tuple[HistoryTurn, ...]
    system: tuple[Message, ...]
    before: Before
    tail: str = ""

    def seen(self, prompt: Sequence[Message], history: Sequence[Message]) -> Seen:
        """Return what says that *prompt* and *history* were sent."""
        tail = [messages.system(self.tail)] if self.tail else []
        return self.before.seen(prompt, history, system=self.system, tail=tail, input=self.input)

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return the messages to send for a hook's *prompt* and *history*."""
        system, opening, question = self._parted(prompt)
        # This run's turns, from the first of them, follow the input.
        ours = {id(message) for turn in self.later for message in turn.messages}
        at = next((i for i, each in enumerate(history) if id(each) in ours), len(history))
        before, after = history[:at], history[at:]
        found = [
            *to_model(opening),
            *_native(before, self.earlier),
            *to_model(question),
            *_native(after, self.later),
        ]
        return Sent(system, closed(found), self.tail if system.endswith(self.tail) else "")

    def _parted(
        self, prompt: Sequence[Message]
    ) -> tuple[str, Sequence[Message], Sequence[Message]]:
        """Return the system text, the opening, and the input, which comes last."""
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


async def sending(agent: AgentSpec, run: InferenceRun, system: str, tail: str = "") -> AgentRequest:
    """Return the first request of *agent* in *run*; *tail* ends the *system* text."""
    head: list[Message] = [messages.system(system)] if system else []
    if agent.assistant:
        head.append(TextMessage(role="assistant", content=agent.assistant, agent=agent.name))
    view = run.view_of(agent)
    found = turns_of(run.state, agent=agent.name, run_id=run.id, view=view)
    if found.window is not None:
        run.leave_out(found.window)
    question = messages.user(run.input) if run.input else None
    spoken = ended(head, [messages.system(tail)] if tail else [])
    spoken.extend(found.opening)
    if question is not None:
        spoken.append(question)
    history = [message for turn in (*found.earlier, *found.later) for message in turn.messages]
    return AgentRequest(
        prompt=tuple(spoken),
        history=tuple(history),
        input=question,
        earlier=tuple(found.earlier),
        later=tuple(found.later),
        system=tuple(head),
        before=found.before,
        tail=tail,
    )


def closed(found: list[ModelMessage]) -> list[ModelMessage]:
    """Return *found*, with a request to continue where an agent's message is last."""
    if found and isinstance(found[-1], ModelResponse):
        return [*found, ModelRequest([UserPromptPart(GO_ON)])]
    return found


def _native(said: Sequence[Message], turns: Sequence[HistoryTurn]) -> list[ModelMessage]:
    """Return *said* for a model; complete turns go in their provider's form."""
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
    """A hook raised, or returned an invalid value; that is its cause."""

    def __init__(self, hook: str) -> None:
        super().__init__(f"the hook {hook} failed")
        self.hook = hook


async def is_enabled(agent: AgentSpec, run: Any) -> bool:
    """Return whether *agent* may be called in *run*.

    Raise HookFailed if its hook fails.
    """
    enabled = agent.hooks.enabled if agent.hooks else None
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False
    answer = await _called("enabled", enabled, agent, run)
    if not isinstance(answer, bool):
        raise HookFailed("enabled") from InvalidInput("enabled", "must return a bool", given=answer)
    return answer


async def system_text(agent: AgentSpec, run: Any) -> str:
    """Return the instructions of *agent* in *run*."""
    if isinstance(agent.instructions, str):
        return agent.instructions
    text: Any = await _called("instructions", agent.instructions, run)
    if not isinstance(text, str):
        raise HookFailed("instructions") from InvalidInput(
            "instructions", "must return text", given=text
        )
    return text


async def started(start: AgentStart) -> AgentStart:
    """Return *start* as changed by the agent's hook."""
    hook = start.agent.hooks.on_start if start.agent.hooks else None
    if hook is None:
        return start
    answer = await _called("on_start", hook, start)
    try:
        return _start(start, answer)
    except InvalidInput as error:
        raise HookFailed("on_start") from error


async def answered(agent: AgentSpec, result: InferenceResult, run: Any) -> InferenceResult:
    """Return *result* as changed by the agent's hook after a reply."""
    hook = agent.hooks.on_response if agent.hooks else None
    return await _result("on_response", hook, result, run) if hook else result


async def finished(agent: AgentSpec, result: InferenceResult, run: Any) -> InferenceResult:
    """Return *result* as changed by the agent's hook at the end.

    The agent, the ids and the index stay.
    """
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
    answer = await _called(name, hook, result, run)
    if answer is None:
        return result
    if not isinstance(answer, InferenceResult):
        raise HookFailed(name) from InvalidInput(
            name, "must return an InferenceResult or nothing", given=answer
        )
    return answer


async def _called(name: str, hook: Callable[..., Any], *given: Any) -> object:
    async def called() -> object:
        return await awaited(hook(*given))

    part = current_part.get()
    try:
        with contained():
            if part is None:
                return await called()
            return await asking(PartCall(part, f"{name}:{part.point}"), called)
    except AnswerTimeout:
        raise
    except Exception as error:
        # A user's code may raise anything; the run ends with it as the cause.
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
    return msgspec.structs.replace(
        start,
        prompt=_messages("prompt", changes.get("prompt", start.prompt)),
        history=_messages("history", changes.get("history", start.history)),
        stop=stop,
    )


def _messages(name: str, given: object) -> tuple[Message, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidInput("on_start", f"{name} must be a list of messages", given=given)
    try:
        return tuple(history.from_dict(each) for each in cast("Sequence[Any]", given))
    except InvalidInput as error:
        raise InvalidInput("on_start", f"{name}: {error.field}: {error.reason}") from error


def retell(response: ModelResponse, before: InferenceResult, after: InferenceResult) -> None:
    """Replace the text of *response*, the last reply of *before*, by that of *after*."""
    text = _last(after) if after.output else ""
    if len(after.output) == len(before.output) and text == _last(before):
        return
    if text == "".join(part.content for part in response.parts if isinstance(part, TextPart)):
        return
    response.parts = _with(response.parts, text)


def _last(result: InferenceResult) -> str:
    return text_of(result.output[-1]) if result.output else ""


def _with(parts: Sequence[ModelResponsePart], text: str) -> list[ModelResponsePart]:
    """Return *parts* with *text* where their own text began, or before the first call."""
    first = next((i for i, each in enumerate(parts) if isinstance(each, TextPart)), None)
    at = first
    if at is None:
        at = next((i for i, each in enumerate(parts) if isinstance(each, ToolCallPart)), len(parts))
    part = parts[at] if first is not None else TextPart("")
    parts_before: list[ModelResponsePart] = list(parts[:at])
    if text and isinstance(part, TextPart):
        parts_before.append(replace(part, content=text))
    return [*parts_before, *(each for each in parts[at:] if not isinstance(each, TextPart))]


DeltaType: TypeAlias = Literal["text.delta", "reasoning.delta"]
Delta: TypeAlias = tuple[DeltaType, str]

_OF_FUNCTION: Final = "FunctionModel.request_stream"
"""A name, as importing the module costs each start 20 ms (`bench/startup.py`)."""


def can_stream(model: Model) -> bool:
    """Return whether *model* can stream."""
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FallbackModel):
        return all(map(can_stream, model.models))
    method = type(model).request_stream
    if getattr(method, "__qualname__", None) == _OF_FUNCTION:
        return getattr(model, "stream_function", None) is not None
    return method is not Model.request_stream


class StreamingModels:
    """The models that are known to stream, or not to.

    A model object is dropped with its end.
    """

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}

    def get(self, model: object) -> bool | None:
        """Return whether *model*, an object or a name, streams; None if unknown."""
        return self._known.get(_key(model))

    def set(self, model: object, *, streams: bool) -> None:
        """Record whether *model* streams."""
        key = _key(model)
        if key not in self._known and isinstance(model, Model):
            finalize(cast("Model[Any]", model), self._known.pop, key, None)
        self._known[key] = streams


def _key(model: object) -> object:
    # A model object may not be hashable.
    return model if isinstance(model, str) else id(model)


streaming: Final = StreamingModels()


async def deltas(stream: AsyncIterable[Any]) -> AsyncIterator[Delta]:
    """Yield the pieces of text and of reasoning in *stream* as they arrive."""
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
            yield found[0], repaired_text(found[1])


async def whole(response: ModelResponse) -> AsyncIterator[Delta]:
    """Yield *response* as one piece of reasoning and one of text, where it has them."""
    thoughts = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    text = "".join(p.content for p in response.parts if isinstance(p, TextPart))
    if thoughts:
        yield "reasoning.delta", thoughts
    if text:
        yield "text.delta", text
