"""What is sent with a request, in its order.

System text; the agent's opening words; the opening; turns of earlier runs, oldest first; the new
input; turns of this run. A request never ends with an agent's words.
"""

from collections.abc import Sequence

from msgspec import Struct
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import text_of
from holdfast.runtime.agent import AgentSpec
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
