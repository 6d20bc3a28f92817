"""Contract of a history, independent of its storage.

A history may lack methods; a test that needs a missing one is skipped.
"""

import asyncio
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from msgspec.structs import replace

from holdfast.ground.errors import Conflict, ResultDiffers
from holdfast.memories.run.records.run import Run
from holdfast.memories.state import history
from holdfast.memories.state.references import Seen
from holdfast.memories.state.result import InferenceResult, Usage, result_id
from holdfast.memories.state.thread import ThreadMessage
from holdfast.runtime.history import METHODS, History, HistoryContext, asked

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
THREAD = "thread_7"

_said = count()


def made(
    index: int = 0, *, run_id: str = "run_1", agent: str = "writer", text: str = "Done."
) -> InferenceResult:
    """Return the result at *index* of a run, with a value in each field."""
    call = history.call("call_1", "look", {"b": [1, 2.5, None], "a": {"é": "\0\N{CRAB}"}})
    return InferenceResult(
        agent=agent,
        input="Write.",
        seen=Seen.copied(
            [history.system("You write."), history.user("Write.")],
            [history.user("Before."), history.assistant("Yes?")],
        ),
        output=[call, history.assistant(text)],
        tool_calls=[history.result("call_1", "look", {"b": 1}, data={"found": ["x" * 10]})],
        raw='[{"kind":"response"}]',
        id=result_id(run_id, index),
        created_at=AT + timedelta(milliseconds=index),
        stop_reason="max_iterations",
        usage=Usage(requests=2, input_tokens=10, output_tokens=3, tool_calls=1, details={"c": 1}),
        run_id=run_id,
        index=index,
        model="test:model",
        error={"name": "Odd", "message": "It was."},
        extras={"more": {"z": 1, "a": 2}},
    )


def said(text: str = "Write.", id: str | None = None) -> ThreadMessage:
    """Return what a user said; with an id of its own where none is given."""
    return ThreadMessage(id=id or f"msg_{next(_said)}", content=text, at=AT)


def began(run_id: str = "run_1", *, thread_id: str | None = THREAD, **more: object) -> Run:
    """Return the record of a run that has begun."""
    fields: dict[str, object] = {"kind": "network", "name": "desk", "started_at": AT, **more}
    return Run.from_dict({"id": run_id, "thread_id": thread_id, **fields})


def ended(run_id: str = "run_1", *, thread_id: str | None = THREAD, **more: object) -> Run:
    """Return the record of a run that has ended."""
    fields: dict[str, object] = {
        "status": "completed",
        "reason": "done",
        "usage": {"requests": 3},
        "calls": 2,
        "ended_at": AT + timedelta(seconds=9),
        "dropped": ["editor"],
    }
    return began(run_id, thread_id=thread_id, **{**fields, **more})


class HistoryContract:
    """Subclass it, and give it `make_history`."""

    def make_history(self) -> History:
        """Return a history to try."""
        raise NotImplementedError

    @pytest.fixture
    def history(self) -> History:
        """Give a history to try."""
        return self.make_history()

    @pytest.fixture
    def ctx(self) -> HistoryContext:
        """Give the context of a run in a thread that nobody else uses."""
        return HistoryContext(run_id=f"run_{uuid4().hex}", thread_id=f"thread_{uuid4().hex}")

    def test_it_has_a_method_of_a_history(self, history: History) -> None:
        assert any(hasattr(history, name) for name in METHODS)

    def test_a_new_thread_has_an_id_of_its_own(self, history: History) -> None:
        demand(history, "create_thread")
        ctx = HistoryContext(run_id="run_1")

        ids = {wait(asked(history, "create_thread", ctx)) for _ in range(20)}

        assert len(ids) == 20
        assert all(_ID.fullmatch(each) for each in ids)

    def test_an_unknown_thread_has_no_results(self, history: History, ctx: HistoryContext) -> None:
        demand(history, "get")

        assert got(history, ctx) == []

    def test_results_come_back_as_they_were(self, history: History, ctx: HistoryContext) -> None:
        demand(history, "get", "append_results")
        results = [made(index, run_id=ctx.run_id) for index in range(3)]

        wait(asked(history, "append_results", ctx, results))

        found = got(history, ctx)
        assert found == results
        assert [each.checksum for each in found] == [each.checksum for each in results]

    def test_results_keep_the_order_in_which_they_came(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        results = [made(index, run_id=ctx.run_id) for index in (2, 0, 1)]

        for each in results:
            wait(asked(history, "append_results", ctx, [each]))

        assert [each.index for each in got(history, ctx)] == [2, 0, 1]

    def test_a_thousand_results_keep_their_order(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        results = [InferenceResult(agent="a", id=f"res_{each}") for each in range(1_000)]

        for first in range(0, 1_000, 100):
            wait(asked(history, "append_results", ctx, results[first : first + 100]))

        assert [each.id for each in got(history, ctx)] == [each.id for each in results]

    def test_the_same_result_again_is_kept_once(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        first, second, third = (made(index, run_id=ctx.run_id) for index in range(3))

        wait(asked(history, "append_results", ctx, [first, second]))
        wait(asked(history, "append_results", ctx, [first]))
        wait(asked(history, "append_results", ctx, [second, third]))

        assert got(history, ctx) == [first, second, third]

    def test_another_result_of_the_same_id_is_refused_with_all_that_comes_with_it(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        first, second = (made(index, run_id=ctx.run_id) for index in range(2))
        other = first.replace(input="Else.")
        wait(asked(history, "append_results", ctx, [first]))

        with pytest.raises(ResultDiffers) as refused:
            wait(asked(history, "append_results", ctx, [second, other]))

        assert refused.value.id == first.id
        assert (refused.value.stored, refused.value.given) == (first.checksum, other.checksum)
        assert got(history, ctx) == [first]

    def test_the_same_result_may_be_in_two_threads(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        result, elsewhere = made(run_id=ctx.run_id), replace(ctx, thread_id=f"t_{uuid4().hex}")

        wait(asked(history, "append_results", ctx, [result]))
        wait(asked(history, "append_results", elsewhere, [result]))

        assert got(history, ctx) == got(history, elsewhere) == [result]

    def test_what_users_said_is_no_result(self, history: History, ctx: HistoryContext) -> None:
        demand(history, "get", "append_results", "append_user_message")
        result = made(run_id=ctx.run_id)

        wait(asked(history, "append_user_message", ctx, said()))
        wait(asked(history, "append_results", ctx, [result]))

        assert got(history, ctx) == [result]

    def test_what_a_user_said_may_be_said_again_later_by_a_replay(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "append_user_message")
        message = said()

        wait(asked(history, "append_user_message", ctx, message))
        later = replace(message, at=AT + timedelta(hours=1))
        wait(asked(history, "append_user_message", ctx, later))

    def test_two_writers_at_once_lose_and_double_nothing(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get", "append_results")
        results = [made(index, run_id=ctx.run_id) for index in range(20)]

        def write(_: int) -> None:
            for each in results:
                wait(asked(history, "append_results", ctx, [each]))

        with ThreadPoolExecutor(2) as writers:
            list(writers.map(write, range(2)))

        assert [each.id for each in got(history, ctx)] == [each.id for each in results]

    def test_a_run_that_never_began_has_no_record(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get_run")

        assert wait(asked(history, "get_run", ctx)) is None

    def test_the_record_of_a_run_is_what_was_kept_last(
        self, history: History, ctx: HistoryContext
    ) -> None:
        demand(history, "get_run", "start_run", "end_run")
        start, end = (each(ctx.run_id, thread_id=ctx.thread_id) for each in (began, ended))

        wait(asked(history, "start_run", ctx, start))
        there = wait(asked(history, "get_run", ctx))
        wait(asked(history, "end_run", ctx, end))

        assert there == start
        assert wait(asked(history, "get_run", ctx)) == end

    def test_the_same_record_twice_is_once(self, history: History, ctx: HistoryContext) -> None:
        demand(history, "get_run", "start_run", "end_run")
        start, end = (each(ctx.run_id, thread_id=ctx.thread_id) for each in (began, ended))

        for each in (start, start):
            wait(asked(history, "start_run", ctx, each))
        for each in (end, end):
            wait(asked(history, "end_run", ctx, each))

        assert wait(asked(history, "get_run", ctx)) == end

    @pytest.mark.parametrize("calls", [None, 9])
    def test_a_run_that_has_ended_is_not_begun_or_ended_otherwise(
        self, history: History, ctx: HistoryContext, calls: int | None
    ) -> None:
        demand(history, "get_run", "start_run", "end_run")
        end = ended(ctx.run_id, thread_id=ctx.thread_id)
        other = began(ctx.run_id, thread_id=ctx.thread_id) if calls is None else end
        wait(asked(history, "end_run", ctx, end))

        changed = {**other.extras, "calls": calls or 0}
        with pytest.raises(Conflict):
            wait(asked(history, "start_run", ctx, replace(other, extras=changed)))

        assert wait(asked(history, "get_run", ctx)) == end


def demand(history: History, *methods: str) -> None:
    """Pass the test over if *history* lacks any of *methods*."""
    for name in methods:
        if not hasattr(history, name):
            pytest.skip(f"the history has no {name}")


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what *coroutine* gives."""
    return asyncio.run(coroutine)


def got(history: History, ctx: HistoryContext) -> list[InferenceResult]:
    """Return the results of *ctx*'s thread; a history may give them as dicts."""
    found: list[object] = wait(asked(history, "get", ctx))
    return [
        each if isinstance(each, InferenceResult) else InferenceResult.from_dict(each)
        for each in found
    ]
