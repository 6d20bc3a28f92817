"""Asking an agent's hooks and instructions, plain or awaitable, and reading what they answer."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state import history
from holdfast.memories.state.message import Message
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.agent import AgentSpec, AgentStart
from holdfast.runtime.concurrency import awaited

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
