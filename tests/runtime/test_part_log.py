"""Parts that were cut off go on from what they have kept."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from msgspec.json import decode
from pydantic_ai import BinaryContent, ModelRetry, ToolReturn
from pydantic_ai import Tool as ModelTool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage
from runtime.calling.asked import agent, among, came_back, model_of
from stepping import NUMBER, Stepping

from holdfast.ground.errors import RunCancelled, StepFailed
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.question import Question
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    ToolCallUpdate,
    ToolContext,
    ToolResultUpdate,
    tool,
)
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.runs.part_log import KeptAnswer, PartLog, PartLogs
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Turn

pytestmark = pytest.mark.anyio


CHART = BinaryContent(b"%PDF\xff", media_type="application/pdf")


class Shelf:
    """Keeps the messages of parts, as a place does."""

    def __init__(self) -> None:
        self.turns: dict[str, list[KeptTurn]] = {}
        self.rows: dict[str, bytes] = {}
        self.last: dict[str, Sequence[KeptTurn]] | None = {}
        self.questions: tuple[Question, ...] = ()
        self.is_open = True

    @property
    def restored(self) -> "Shelf":
        return self

    async def keep_turns(self, turns: Sequence[KeptTurn], rows: Iterable[StateRow] = ()) -> None:
        for each in turns:
            kept = self.turns.setdefault(each.part, [])
            assert each.n == len(kept)
            kept.append(each)
        self.rows |= {each.key: each.body for each in rows if each.body is not None}

    def of(self, kind: Any) -> dict[str, Any]:
        assert kind == "once"
        return {key: decode(body) for key, body in self.rows.items()}

    def logs(self) -> PartLogs:
        """Return logs that begin with what is kept."""
        return PartLogs("run_1", clock=FrozenClock(), store=self)

    def log(self, part: str) -> PartLog:
        """Return the log of *part*, which begins with what is kept."""
        return self.logs().of(part)

    def context(self) -> Context:
        """Return a context in which the parts go on from what is kept."""
        context = Context(run_id="run_1", clock=FrozenClock())
        context.logs = self.logs()
        return context


class Calls:
    """Counts the calls of tools, and cuts the run off in one."""

    def __init__(self) -> None:
        self.last = ModelTool(self.anchor, sequential=True)
        self.made: list[str] = []
        self.cut: Callable[[], object] | None = None

    def sound(self) -> str:
        """Sound."""
        self.made.append("sound")
        return "5 fathoms"

    async def anchor(self) -> str:
        """Drop the anchor."""
        self.made.append("anchor")
        if self.cut is not None:
            self.cut()
            await asyncio.Event().wait()
        return "held"


async def cut_off(
    shelf: Shelf, turns: Sequence[Turn], calls: Calls, **fields: Any
) -> tuple[Stepping, Stepping]:
    """Return a step that was cut off in `anchor`, and one that goes on after it."""
    first = Stepping(turns, context=shelf.context(), **fields)
    calls.cut = first.context.cancel
    with pytest.raises(RunCancelled):
        await first.executor.run()
    calls.cut = None
    return first, Stepping(turns[len(first.model.asked) :], context=shelf.context(), **fields)


async def test_a_step_that_was_cut_off_goes_on_from_its_last_response() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [call("sound"), [call("sound"), call("anchor")], "Three."]

    _, again = await cut_off(shelf, turns, calls, tools=[calls.sound, calls.last])

    assert await again.executor.run() == "Three."
    assert len(again.model.asked) == 1
    assert calls.made == ["sound", "sound", "anchor", "anchor"]
    back = came_back(again.model.asked[0].messages)
    assert [each.content for each in back] == ["5 fathoms", "5 fathoms", "held"]


async def test_the_request_after_a_cut_is_that_of_a_run_without_one() -> None:
    shelf, calls = Shelf(), Calls()
    turns: list[Turn] = [call("sound", call_id="a"), call("anchor", call_id="b"), "Three."]
    tools = [calls.sound, calls.anchor]
    whole = Stepping(turns, tools=tools)
    await whole.executor.run()

    _, again = await cut_off(shelf, turns, calls, tools=tools)
    await again.executor.run()

    def said(stepping: Stepping) -> list[tuple[str, Any]]:
        parts = [part for each in stepping.model.asked[-1].messages for part in each.parts]
        return [(each.part_kind, getattr(each, "content", None)) for each in parts]

    assert said(again) == said(whole)
    assert again.model.asked[-1].instructions == whole.model.asked[-1].instructions


async def test_the_limit_of_requests_counts_those_before_the_cut() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [call("sound"), call("anchor"), call("sound"), "Three."]
    fields = {"tools": [calls.sound, calls.anchor], "max_iterations": 3}

    _, again = await cut_off(shelf, turns, calls, **fields)

    with pytest.raises(StepFailed) as raised:
        await again.executor.run()
    assert getattr(raised.value.error, "reason", None) == "max_iterations"
    assert len(again.model.asked) == 1


async def test_usage_counts_the_responses_before_the_cut() -> None:
    shelf, calls = Shelf(), Calls()
    said = ModelResponse([call("anchor")], usage=RequestUsage(input_tokens=40, output_tokens=2))

    _, again = await cut_off(shelf, [said, "Three."], calls, tools=[calls.anchor])
    await again.executor.run()

    usages = [each.usage for each in again.executor.messages if isinstance(each, ModelResponse)]
    assert usages[0].input_tokens == 40
    assert again.executor.iterations == 2


async def test_a_call_that_is_not_to_be_repeated_is_answered_as_interrupted() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [call("anchor"), "Three."]

    _, again = await cut_off(shelf, turns, calls, tools=[tool(calls.anchor, repeat=False)])

    assert await again.executor.run() == "Three."
    assert calls.made == ["anchor"]
    assert again.given[0]["error"]["type"] == "interrupted"


async def test_a_call_that_was_not_begun_is_made_though_it_is_not_to_be_repeated() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [[call("anchor"), call("sound")], "Three."]
    once = ModelTool(calls.sound, metadata={"repeat": False}, sequential=True)
    tools = [ModelTool(calls.anchor, sequential=True), once]

    _, again = await cut_off(shelf, turns, calls, tools=tools)

    assert await again.executor.run() == "Three."
    assert calls.made == ["anchor", "anchor", "sound"]


async def test_calls_with_a_kept_answer_are_not_emitted_again() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [[call("sound"), call("anchor")], "Three."]

    _, again = await cut_off(shelf, turns, calls, tools=[calls.sound, calls.last])

    events = await again.events()
    assert [each.name for each in events if isinstance(each, ToolCallUpdate)] == ["anchor"]
    assert [each.name for each in events if isinstance(each, ToolResultUpdate)] == ["anchor"]


async def test_pages_of_a_long_result_can_be_read_after_a_cut() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [call("chart"), call("anchor"), call("read_result", result_id="result_1", offset=10)]

    def chart() -> str:
        return "0123456789abcdef"

    _, again = await cut_off(
        shelf, [*turns, "Three."], calls, tools=[chart, calls.anchor], tool_result_limit=10
    )
    await again.executor.run()

    assert again.given[-1]["text"] == "abcdef"


async def test_a_retry_of_a_step_begins_anew() -> None:
    shelf, calls = Shelf(), Calls()

    async def no_sleep(_: float) -> None:
        return None

    def stepping(turns: Sequence[Turn]) -> Stepping:
        made = Stepping(
            turns, context=shelf.context(), step={"retries": 1}, tools=[calls.sound, calls.anchor]
        )
        made.context.sleep = no_sleep
        return made

    first = stepping([call("sound"), RuntimeError("no wind"), call("anchor")])
    calls.cut = first.context.cancel
    with pytest.raises(RunCancelled):
        await first.executor.run()
    calls.cut = None
    again = stepping(["Three."])
    await again.executor.run()

    back = came_back(again.model.asked[0].messages)
    assert [each.tool_name for each in back] == ["anchor"]


async def test_a_choice_of_tools_is_forced_once_in_both_stays() -> None:
    shelf, calls = Shelf(), Calls()
    pilot = Agent("pilot", instructions="", tools=[calls.anchor], tool_choice="any")

    _, again = await cut_off(shelf, [call("anchor"), "Three."], calls, agent=pilot)
    await again.executor.run()

    assert "tool_choice" not in (again.model.asked[0].settings or {})


async def test_hooks_count_requests_on_from_those_before_the_cut() -> None:
    shelf, calls = Shelf(), Calls()
    steps: list[int] = []
    hooks = AgentHooks(on_start=lambda start: steps.append(start.step))
    pilot = Agent("pilot", instructions="", hooks=hooks)

    _, again = await cut_off(
        shelf, [call("anchor"), "Three."], calls, agent=pilot, tools=[calls.anchor]
    )
    await again.executor.run()

    assert steps == [1, 2]


async def test_a_response_that_only_finishes_is_not_kept() -> None:
    shelf = Shelf()
    stepping = Stepping(
        [call("finish_step", result=3)], context=shelf.context(), step={"output_schema": NUMBER}
    )

    await stepping.executor.run()

    assert shelf.turns == {}


async def test_a_call_of_an_agent_goes_on_from_its_last_response() -> None:
    shelf, calls = Shelf(), Calls()
    turns = [call("sound", call_id="a"), [call("sound"), call("anchor")], "Done."]
    state = NetworkState()

    async def made(ada: Agent) -> AgentCall:
        run = among("Go.", state=state, id="run_1")
        run.logs = shelf.logs()
        called = AgentCall(ada, run)
        await called.made()
        return called

    ada = agent(turns, tools=[calls.sound, calls.anchor])
    task = asyncio.ensure_future(made(ada))
    calls.cut = task.cancel
    with pytest.raises(asyncio.CancelledError):
        await task
    calls.cut = None
    again = ada.with_model(ScriptedModel(turns[2:]))

    called = await made(again)

    assert called.result is not None
    assert (called.ending.reason, called.result.usage.requests) == ("done", 3)
    assert calls.made == ["sound", "sound", "anchor", "anchor"]
    assert [each.content for each in called.result.tool_calls] == [
        {"data": "5 fathoms"},
        {"data": "5 fathoms"},
        {"data": "held"},
    ]
    assert [each.step for each in called.result.tool_calls] == [1, 2, 2]
    assert len(model_of(again).asked) == 1


async def test_a_failed_call_of_an_agent_stays_failed_after_a_cut() -> None:
    shelf, calls = Shelf(), Calls()

    def ram() -> str:
        calls.made.append("ram")
        raise ModelRetry("mind the pier")

    ada = agent([[call("ram"), call("anchor")]], tools=[ram, calls.anchor])

    def run() -> AgentCall:
        found = among("Go.", state=NetworkState(), id="run_1")
        found.logs = shelf.logs()
        return AgentCall(ada, found)

    task = asyncio.ensure_future(run().made())
    calls.cut = task.cancel
    with pytest.raises(asyncio.CancelledError):
        await task
    calls.cut = None
    ada = ada.with_model(ScriptedModel(["Done."]))
    result = await run().made()

    assert calls.made == ["ram", "anchor", "anchor"]
    assert [list(each.content) for each in result.tool_calls] == [["error"], ["data"]]
    back = came_back(model_of(ada).asked[0].messages)
    assert [each.outcome for each in back] == ["failed", "success"]


@pytest.mark.parametrize(
    "shown",
    [
        "text",
        {"a": [1, None, 2.5]},
        CHART,
        ["a chart", CHART],
        ToolReturn("held", content=["see", CHART]),
    ],
)
async def test_an_answer_is_read_as_it_was_kept(shown: Any) -> None:
    shelf = Shelf()
    log = shelf.log("count")
    await log.keep([ModelResponse([call("chart", call_id="a")])])
    await log.keep_answer("a", KeptAnswer(shown=shown, facts={"ok": True}), {"result_1": "long"})

    read = shelf.log("count")

    found = read.answer_of("a")
    assert found is not None
    assert (found.shown, found.facts, found.pages) == (shown, {"ok": True}, {"result_1": "long"})


async def test_what_follows_a_message_without_a_json_form_is_not_stored() -> None:
    shelf = Shelf()
    log = shelf.log("count")
    await log.keep([ModelResponse([TextPart("Well."), call("sound")])])
    await log.keep([ModelResponse([call("sound")], provider_details={"seen": object()})])
    await log.keep([ModelResponse([call("anchor")])])

    read = shelf.log("count")

    assert (read.replies, log.replies) == (1, 3)


async def test_what_another_release_wrote_is_left_out_and_what_follows_is_stored() -> None:
    shelf = Shelf()
    log = shelf.log("count")
    await log.keep([ModelResponse([call("sound")])])
    shelf.turns["count"].append(KeptTurn("count", 1, b'{"parts": 3}'))
    read = shelf.log("count")
    await read.keep([ModelResponse([call("anchor")])])

    again = shelf.log("count")

    calls = [part for each in again.responses for part in each.parts]
    assert [each.tool_name for each in calls if isinstance(each, ToolCallPart)] == ["anchor"]


async def test_a_step_that_failed_begins_anew_when_it_is_tried_again() -> None:
    shelf, calls = Shelf(), Calls()
    fields: dict[str, Any] = {"tools": [calls.sound], "max_iterations": 1}
    with pytest.raises(StepFailed):
        await Stepping([call("sound")], context=shelf.context(), **fields).executor.run()

    again = Stepping(["Three."], context=shelf.context(), **fields)

    assert await again.executor.run() == "Three."
    assert came_back(again.model.asked[0].messages) == []


async def test_a_call_has_the_same_idempotency_key_when_it_is_made_again() -> None:
    shelf, calls = Shelf(), Calls()
    keys: list[str] = []

    async def anchor(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        return await calls.anchor()

    await (await cut_off(shelf, [call("anchor", call_id="a"), "Three."], calls, tools=[anchor]))[
        1
    ].executor.run()

    assert keys == ["run_1:count:a", "run_1:count:a"]
