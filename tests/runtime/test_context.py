"""The context of a run: shared memory, traces, and runs seen through a server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runtime.plans.workers import Workers, plan, task
from stepping import Stepping, names

import holdfast
from holdfast import RunMemory
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, NotFound, WaitTimeout
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Context, ParallelTaskExecutor
from holdfast.runtime.context import WATCH_BUFFER
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio


def test_a_run_has_a_memory_of_its_own_under_its_id() -> None:
    context = Context(run_id="run_1")

    assert context.memory.run_id == context.run_id == "run_1"
    assert Context().run_id != Context().run_id


def test_a_memory_that_is_given_names_the_run() -> None:
    memory = RunMemory(run_id="run_9")

    assert Context(memory=memory).run_id == "run_9"
    with pytest.raises(InvalidInput):
        Context(memory=memory, run_id="run_1")


def test_a_copy_starts_empty_but_for_what_it_inherits() -> None:
    context = Context()
    context.memory.set("shared:one", 1)
    context.memory.set("shared:two", 2)

    within = context.copy(inherit=["shared:two"])
    within.memory.set("shared:three", 3)

    assert [each.key for each in within.memory.list()] == ["shared:two", "shared:three"]
    assert not context.memory.has("shared:three")
    assert within.run_id not in (context.run_id, context.copy().run_id)


def test_a_copy_cannot_inherit_what_is_not_there() -> None:
    with pytest.raises(NotFound):
        Context().copy(inherit=["shared:one"])


async def test_a_copy_shares_model_slots_and_usage() -> None:
    context = Context(model=ScriptedModel(["Three."]), clock=FrozenClock())
    within = context.copy()
    stepping = Stepping(context=within, model=None)

    await stepping.executor.run()

    assert within.slots is context.slots
    assert context.usage == within.usage
    assert context.usage.requests == 1


async def test_waiting_for_a_key_ends_when_it_is_written() -> None:
    context = Context()
    waiting = asyncio.create_task(context.wait_for("shared:one", timeout=30))
    await asyncio.sleep(0)

    context.memory.set("shared:one", 1)

    assert (await waiting).value == 1


async def test_waiting_for_what_is_there_ends_at_once_unless_a_newer_is_wanted() -> None:
    context = Context()
    context.memory.set("shared:one", 1)

    assert (await context.wait_for("shared:one")).version == 1
    with pytest.raises(WaitTimeout) as raised:
        await context.wait_for("shared:one", after_version=1, timeout=0)
    assert (raised.value.key, raised.value.seconds) == ("shared:one", 0)


async def test_whoever_watches_sees_what_happens_to_entries_that_are_meant() -> None:
    context = Context()
    seen: list[Any] = []

    async def look_on() -> None:
        async for event in context.watch(key_prefix="shared:"):
            seen.append((event.type, event.data.get("key")))
            if len(seen) == 2:
                return

    looking = asyncio.create_task(look_on())
    await asyncio.sleep(0)
    context.memory.set("input:no", 0)
    await asyncio.to_thread(context.memory.set, "shared:one", 1)
    context.memory.delete("shared:one")
    await looking

    assert seen == [("run.entry_written", "shared:one"), ("run.entry_deleted", "shared:one")]


async def test_whoever_watches_too_slowly_is_told_how_much_was_missed() -> None:
    context = Context()
    watched = context.watch()
    first = asyncio.ensure_future(anext(watched))
    await asyncio.sleep(0)

    for number in range(WATCH_BUFFER + 51):
        context.memory.set("shared:one", number)
    await first
    for _ in range(WATCH_BUFFER - 1):
        await anext(watched)

    gap = await anext(watched)
    assert (gap.type, gap.data) == ("gap", {"missed": 51})
    context.memory.set("shared:one", "again")
    assert (await anext(watched)).data["version"] == WATCH_BUFFER + 52
    await watched.aclose()


async def test_with_a_handle_the_run_is_shown_while_it_lasts() -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        context = Context(hf=hf, agent="pilot", run_id="run_1", clock=clock)
        states: list[str] = []

        def look() -> str:
            """Look."""
            states.append(hf.runs.retrieve("run_1").status)
            assert hf.runs.steer("run_1", "Only the big ones.") == ["count"]
            return "Ships."

        stepping = Stepping([call("look"), "Three."], context=context, tools=[look])
        await stepping.executor.run()

        record = hf.runs.retrieve("run_1")
        assert states == ["running"]
        assert (record.status, record.name, record.agent) == ("completed", "count", "pilot")
        assert "Only the big ones." in stepping.model.asked[1].text


@pytest.mark.parametrize(
    ("turn", "state"), [(OSError("no route"), "failed"), ("Three.", "completed")]
)
async def test_how_a_run_ended_is_shown(turn: Any, state: str) -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:
        context = Context(hf=hf, run_id="run_1", clock=clock)
        await Stepping([turn], context=context).events()

        assert hf.runs.retrieve("run_1").status == state


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 256, "x" * 256),
        ("x" * 257, "x" * 255 + "…"),
        ("", "default"),
        (" \n", "default"),
        ("a\0b", "a b"),
        ("a\ud800", "a?"),
    ],
)
async def test_whatever_an_agent_is_called_its_run_is_shown(text: str, shown: str) -> None:
    with holdfast.open(":memory:") as hf:
        context = Context(hf=hf, agent=text)

        assert await Stepping(["Three."], context=context).executor.run() == "Three."
        assert hf.runs.retrieve(context.run_id).agent == shown


async def test_a_title_that_is_too_long_to_be_shown_is_cut() -> None:
    with holdfast.open(":memory:") as hf:
        stepping = Stepping(["Three."], context=Context(hf=hf))
        stepping.step.id = "x" * 300

        assert await stepping.executor.run() == "Three."
        assert hf.runs.retrieve(stepping.context.run_id).name == "x" * 255 + "…"


async def test_a_run_that_nobody_looks_at_any_more_is_shown_as_cancelled() -> None:
    with holdfast.open(":memory:") as hf:
        stepping = Stepping(["Three."], context=Context(hf=hf))

        async with aclosing(stepping.executor.execute()) as events:
            await anext(events)

        assert hf.runs.retrieve(stepping.context.run_id).status == "cancelled"


async def test_a_run_whose_task_is_cancelled_is_shown_as_cancelled() -> None:
    begun = asyncio.Event()

    async def look() -> None:
        """Look."""
        begun.set()
        await asyncio.Event().wait()

    with holdfast.open(":memory:") as hf:
        stepping = Stepping([call("look")], context=Context(hf=hf), tools=[look])
        running = asyncio.create_task(stepping.executor.run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert hf.runs.retrieve(stepping.context.run_id).status == "cancelled"


def test_a_profile_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match="alone or together"):
        Context(profile=cast("Any", "apart"))


class Tracing:
    """A run that is traced."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.context = Context(
            run_id="run_1", clock=FrozenClock(), tracer_provider=provider, trace_content=content
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans that ended, by name; the last of each name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def text(self) -> str:
        """All there is in all spans."""
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return ours, and those of usage."""
    found = dict(span.attributes or {})
    return {name: value for name, value in found.items() if not name.startswith("logfire")}


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_step_is_traced_below_its_run_and_its_requests_below_it() -> None:
    tracing = Tracing()
    stepping = Stepping([call("memory_list"), "Three."], context=tracing.context)

    await stepping.executor.run()

    run, step = tracing.spans["holdfast.run"], tracing.spans["holdfast.step"]
    below = [each for name, each in tracing.spans.items() if not name.startswith("holdfast")]
    assert parent(run) is None
    assert parent(step) == number(run)
    assert number(step) in {parent(each) for each in below}
    assert attributes(run) == {"holdfast.run_id": "run_1", "holdfast.state": "completed"}
    usage = tracing.context.usage
    assert attributes(step) == {
        "holdfast.run_id": "run_1",
        "holdfast.task_id": "harbour",
        "holdfast.step_id": "count",
        "holdfast.state": "completed",
        "holdfast.iterations": 2,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


async def test_a_failed_step_says_why() -> None:
    tracing = Tracing()
    stepping = Stepping([OSError("no route")], context=tracing.context, item_index=4)

    await stepping.events()

    found = attributes(tracing.spans["holdfast.step"])
    assert found["holdfast.state"] == "failed"
    assert found["holdfast.reason"] == "model_error"
    assert found["holdfast.item_index"] == 4


async def test_a_step_is_linked_to_those_it_needs() -> None:
    tracing = Tracing()
    first = Stepping(["Three."], context=tracing.context)
    await first.executor.run()
    needed = tracing.spans["holdfast.step"]
    second = Stepping(["Four."], context=tracing.context, step={"depends_on": ["count", "other"]})
    second.step.id = "again"

    await second.executor.run()

    links = tracing.spans["holdfast.step"].links
    assert [link.context.span_id for link in links] == [number(needed)]


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_traced_only_when_asked_for(content: bool) -> None:
    tracing = Tracing(content=content)
    turns = [call("memory_write", key="note", value="SECRET-1"), "SECRET-2"]
    stepping = Stepping(turns, context=tracing.context, instructions="SECRET-3")

    await stepping.executor.run()

    assert ("SECRET" in tracing.text) is content


async def test_without_a_provider_nothing_below_is_instrumented() -> None:
    stepping = Stepping(["Three."])

    assert await stepping.executor.run() == "Three."
    assert not stepping.context.spans["count"].is_valid


BOUND = 60


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "a.db") as hf:
        yield hf


@pytest.fixture
async def http(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    with serving(hf, clock=SystemClock()) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            yield client


class Looking:
    """A step that looks until it is let go, as a task of the test's."""

    def __init__(self, hf: Holdfast) -> None:
        self._begun, self._enough = asyncio.Event(), asyncio.Event()
        self.stepping = Stepping(
            [call("look"), "Three."], context=Context(hf=hf), tools=[self.look]
        )
        self.path = f"/api/runs/{self.stepping.context.run_id}"

    async def look(self) -> str:
        """Look."""
        self._begun.set()
        await self._enough.wait()
        return "Ships."

    async def begin(self) -> "asyncio.Task[list[Any]]":
        work = asyncio.create_task(self.stepping.events())
        await asyncio.wait_for(self._begun.wait(), BOUND)
        return work

    def let_go(self) -> None:
        self._enough.set()


async def test_a_run_is_shown_while_it_lasts_and_cancelled(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    looking = Looking(hf)
    work = await looking.begin()

    before = await http.get(looking.path)
    said = await http.post(f"{looking.path}/cancel", json={"reason": "enough"})
    events = await asyncio.wait_for(work, BOUND)
    after = await http.post(f"{looking.path}/cancel")

    assert (before.json()["status"], said.status_code) == ("running", 202)
    assert names(events)[-2:] == ["step_cancelled", "cancelled"]
    assert events[-1].reason == "enough"
    assert (after.status_code, after.json()["error"]["reason"]) == (409, "ended")
    assert (await http.get(looking.path)).json()["status"] == "cancelled"


async def test_a_running_step_is_spoken_to(hf: Holdfast, http: httpx.AsyncClient) -> None:
    looking = Looking(hf)
    work = await looking.begin()

    said = await http.post(f"{looking.path}/steer", json={"text": "Only the big ones."})
    nobody = await http.post(f"{looking.path}/steer", json={"text": "Hurry.", "step": "no"})
    looking.let_go()
    await asyncio.wait_for(work, BOUND)

    assert (said.status_code, said.json()) == (200, {"steps": ["count"]})
    assert (nobody.status_code, nobody.json()["error"]["id"]) == (404, "no")
    assert "Only the big ones." in looking.stepping.model.asked[1].text


async def test_a_run_begun_with_another_handle_of_the_process_is_reached(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with holdfast.open(tmp_path / "a.db") as other:
        looking = Looking(other)
        work = await looking.begin()
        other.run_attachments.flush()

        steered = await http.post(f"{looking.path}/steer", json={"text": "Hurry."})
        said = await http.post(f"{looking.path}/cancel", json={"reason": "enough"})
        events = await asyncio.wait_for(work, BOUND)

    assert steered.json() == {"steps": ["count"]}
    assert said.status_code == 202
    assert events[-1].reason == "enough"


async def test_a_run_of_the_same_id_in_another_database_is_left_alone(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    with holdfast.open(":memory:") as other:
        looking = Looking(other)
        over = hf.runs.attach(RunMemory(run_id=looking.stepping.context.run_id), name="n")
        work = await looking.begin()

        said = await http.post(f"{looking.path}/cancel")
        looking.let_go()
        events = await asyncio.wait_for(work, BOUND)
        over()

    assert (said.status_code, said.json()["error"]["reason"]) == (409, "not_held")
    assert names(events)[-1] == "completed"


async def test_a_plan_keeps_what_was_done_when_it_is_cancelled(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    workers, begun = Workers(), asyncio.Event()
    workers.wait("b1")
    workers.on_begin = lambda id: begun.set() if id == "b1" else None
    tasks = plan(task("a"), task("b", depends_on=["a"]), title="x" * 500)
    run = ParallelTaskExecutor(plan=tasks, context=workers.context(hf=hf))
    path = f"/api/runs/{run.context.run_id}"

    async def events() -> list[Any]:
        return [event async for event in run.execute()]

    work = asyncio.create_task(events())
    await asyncio.wait_for(begun.wait(), BOUND)
    assert (await http.post(f"{path}/cancel")).status_code == 202
    told = await asyncio.wait_for(work, BOUND)

    assert told[-1].event == "cancelled"
    record = (await http.get(path)).json()
    assert (record["status"], len(record["name"])) == ("cancelled", 256)
    listed = (await http.get(f"{path}/entries")).json()
    assert [each["key"] for each in listed["entries"]] == ["task:a", "step:a1"]
