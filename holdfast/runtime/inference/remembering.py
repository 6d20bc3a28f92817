"""A run's dealings with the history it has: its thread, what came before, what is new, its end."""

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import ThreadMessage, message_id
from holdfast.runtime.agent import UserMessage
from holdfast.runtime.history import History, HistoryContext, asked, has_any


class HistoryFailed(Exception):
    """A history raised, or gave what it may not; that is its cause."""

    def __init__(self, method: str) -> None:
        super().__init__(f"the history failed at {method}")
        self.method = method


class Remembering:
    """What one run loads from its *history* and keeps in it; without a history, nothing."""

    def __init__(
        self,
        history: History | None,
        *,
        run_id: str,
        state: NetworkState,
        input: UserMessage,
        clock: Clock,
        network: Any = None,
    ) -> None:
        self._history = history
        self._run_id, self._state, self._input, self._network = run_id, state, input, network
        self._clock = clock

    async def open(self, thread_id: str | None, *, again: bool = False) -> RunRecord | None:
        """Join the thread, and load what is in it into a state that has nothing yet.

        A run that has ended before is returned as it is recorded. One that may have been begun
        before is taken up *again* in its thread. HistoryFailed, with its cause.
        """
        if again and not thread_id and not self._state.thread_id:
            begun: RunRecord | None = await self._ask("get_run")
            thread_id = begun.thread_id if begun else None
        given = thread_id or self._state.thread_id
        if thread_id and self._state.thread_id not in (None, thread_id):
            raise InvalidInput("thread_id", f"the state is of {self._state.thread_id}", given=given)
        thread = given or await self._new_thread()
        if thread and self._state.thread_id is None:
            self._state.thread_id = thread
        record: RunRecord | None = await self._ask("get_run")
        if given and not self._state.results and not self._state.messages:
            found = await self._ask("get")
            if found:
                self._load(found)
        return record if record and record.ended else None

    async def begin(self, started_at: datetime, network: str | None) -> None:
        """Keep that the run has begun, and what the user said."""
        record = RunRecord(
            id=self._run_id,
            network=network,
            thread_id=self._state.thread_id,
            started_at=started_at,
        )
        await self._ask("start_run", record)
        if self._input.content:
            await self._ask("append_user_message", self._message())

    async def add(self, results: Sequence[InferenceResult]) -> None:
        """Keep *results*, which are new."""
        if results:
            await self._ask("append_results", list(results))

    async def end(self, record: RunRecord) -> None:
        """Keep how the run ended."""
        await self._ask("end_run", record)

    async def _new_thread(self) -> str | None:
        if self._history is None or not has_any(self._history):
            return None
        made: Any = await self._ask("create_thread")
        if made is None and not hasattr(self._history, "create_thread"):
            return f"thread_{secrets.token_hex(12)}"
        if not isinstance(made, str) or not made:
            raise HistoryFailed("create_thread") from InvalidInput(
                "create_thread", "must return the id of a thread", given=made
            )
        return made

    def _load(self, found: Sequence[Any]) -> None:
        try:
            self._state.set_results(found)
        except InvalidInput as error:
            raise HistoryFailed("get") from error

    def _message(self) -> ThreadMessage:
        return ThreadMessage(
            id=self._input.id or message_id(self._run_id),
            content=self._input.content,
            at=self._input.at or self._clock.now(),
        )

    async def _ask(self, method: str, *given: object) -> Any:
        if self._history is None:
            return None
        ctx = HistoryContext(
            run_id=self._run_id,
            thread_id=self._state.thread_id,
            input=self._input.content,
            state=self._state,
            network=self._network,
        )
        try:
            return await asked(self._history, method, ctx, *given)
        except Exception as error:
            # Whatever a user's history raises; it is the cause, by which the run's end is told.
            raise HistoryFailed(method) from error
