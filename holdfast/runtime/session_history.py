"""A history that is not given what memories said: each is to forget, and to be asked, by itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast.memories.longterm.block import without_blocks
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult, text_of
from holdfast.runtime.history import History, HistoryContext


class Discreet:
    """Does as *history* does, but keeps of results neither recalled blocks nor what *hidden* gives.

    It has the methods that *history* has, and no others.
    """

    def __init__(self, history: History, hidden: Callable[[], str]) -> None:
        self._history, self._hidden = history, hidden

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._history, name)
        if name != "append_results":
            return found

        def append_results(ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
            return found(ctx, [self._bare(each) for each in results])

        return append_results

    def _bare(self, result: InferenceResult) -> InferenceResult:
        return result.replace(
            prompt=self._without(result.prompt), history=self._without(result.history)
        )

    def _without(self, messages: Iterable[Message]) -> list[Message]:
        """Return *messages*, the system's cut, and those left out of which nothing stays."""
        hidden = self._hidden()
        kept: list[Message] = []
        for message in messages:
            if not isinstance(message, TextMessage) or message.role != "system":
                kept.append(message)
                continue
            text = without_blocks(text_of(message))
            if hidden:
                text = text.replace(f"\n\n{hidden}", "").replace(hidden, "")
            if text == text_of(message):
                kept.append(message)
            elif text:
                kept.append(TextMessage(role="system", content=text, agent=message.agent))
        return kept
