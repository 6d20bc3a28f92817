"""The page of one run: what it shows, versions, acts, live updates."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doors.console.client import HOSTILE, ORIGIN, ConsoleClient
from doors.console.harbour import PLAN, LiveClient, asked, asking, attached, planned, question_tool
from teams import a_team, an_agent, create, work

import holdfast
from holdfast import RunMemory, keys
from holdfast.doors.console.app import Console
from holdfast.doors.console.response import LIVE, LIVE_MOST
from holdfast.doors.console.timeline import Timeline
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import Context, Network, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.testing import ScriptedModel, call

SignedIn = Callable[..., ConsoleClient]


class Steered:
    """A control that keeps what it was sent."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.steered: list[str] = []

    def cancel(self, reason: str = "cancelled") -> None:
        self.cancelled.append(reason)

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        del step
        self.steered.append(text)
        return ["find"]


def test_a_run_that_is_not_there_is_not_found(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/runs/run_none")
    assert shown.status == 404
    assert visitor.get("/console/runs/run_none/live").status == 404


def test_run_memory_is_shown_in_order_of_first_writes(hf: Holdfast, visitor: ConsoleClient) -> None:
    memory = attached(hf, "run_1")
    for name in ("one", "two", "three"):
        memory.set(keys.shared(name), name, title=f"Title {name}", source="ada")
        hf.run_attachments.flush()
    memory.set(keys.shared("one"), "again")
    memory.set(keys.step("four"), 4)

    shown = visitor.get("/console/runs/run_1")
    assert shown.named("div", role="log", aria_label="Run memory")
    places = [shown.text.index(name) for name in ("shared:one", "shared:two", "shared:three")]
    assert places == sorted(places)
    assert "v2" in shown.text
    one = visitor.get("/console/runs/run_1?ns=step")
    assert "step:four" in one.text
    assert "shared:one" not in one.text


def test_the_value_of_an_entry_is_read_when_it_is_opened(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    memory = attached(hf, "run_1")
    memory.set(keys.shared("found"), {"ships": ["Alpha", "Beta"]})
    memory.set(keys.shared("long"), "word " * 12_000)

    assert not visitor.get("/console/runs/run_1").named("section", aria_label="Value")
    shown = visitor.get("/console/runs/run_1?key=shared:found")
    assert shown.named("section", aria_label="Value")
    assert "Alpha" in shown.text
    memory.set(keys.shared("found"), "Gamma")
    assert "Gamma" in visitor.get("/console/runs/run_1?key=shared:found").text

    long = visitor.get("/console/runs/run_1?key=shared:long")
    (more,) = [each for each in long.page.links if "offset=" in each]
    assert "A part of its text" in long.text
    assert "A part of its text" in visitor.get(more.partition("#")[0]).text
    none = visitor.get("/console/runs/run_1?key=shared:none")
    assert none.status == 200
    assert "shared:none" in none.text
    assert "There is no entry" in none.text


def test_a_plan_is_drawn_and_listed(hf: Holdfast, visitor: ConsoleClient) -> None:
    planned(hf, "run_1", "Three.", "Told.")

    shown = visitor.get("/console/runs/run_1")
    assert shown.named("figure", aria_label="Plan")
    boxes = shown.named("a", href="/console/runs/run_1?key=task%3Alook#value")
    assert "completed" in str([each.get("aria-label") for each in boxes])
    assert shown.named("table", aria_label="Tasks")
    assert "/console/runs/run_1/parts/find" in shown.page.links
    said = visitor.get("/console/runs/run_1/parts/find")
    assert "Three." in said.text


def test_a_blocked_task_names_what_blocks_it(hf: Holdfast, visitor: ConsoleClient) -> None:
    context = Context(hf=hf, run_id="run_1", model=ScriptedModel([ValueError("no ink")]))
    with pytest.raises(Exception, match="no ink"):
        asyncio.run(ParallelTaskExecutor(plan=PLAN, context=context).run())

    text = visitor.get("/console/runs/run_1").text
    assert "failed" in text
    assert "needs look, which failed" in text


def test_a_team_shows_its_board_and_its_messages(hf: Holdfast, visitor: ConsoleClient) -> None:
    def lead(asked: Any) -> Any:
        if "Nothing is on the board yet" in asked.text and len(asked.messages) == 1:
            message = call("send_message", to="bob", subject="Seals", body="Count the young.")
            return [create("Count"), message]
        return work(asked)

    context = Context(hf=hf, run_id="run_1")
    team = a_team(an_agent("ada", lead), an_agent("bob"), context=context)
    assert asyncio.run(team.run()).status == "completed"

    shown = visitor.get("/console/runs/run_1")
    assert shown.named("table", aria_label="Board")
    assert shown.named("div", role="log", aria_label="Messages")
    assert "Count the young." in shown.text
    assert shown.named("ol", aria_label="Turns")


def test_a_network_shows_its_turns_with_calls_and_outcomes(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    def seen(target: str) -> str:
        """Look."""
        return f"{target} in fog"

    desk = an_agent("desk", [call("seen", target="rock"), "It is well."], tools=[seen])
    network = Network("Port", agents=[desk], hf=hf, router=lambda state: _first(state, desk))
    run = asyncio.run(network.run("Is all well?"))

    shown = visitor.get(f"/console/runs/{run.id}")
    assert shown.named("ol", aria_label="Turns")
    for said in ("router.decided", "tool.called", "rock in fog", "It is well."):
        assert said in shown.text
    assert f"/console/runs/{run.id}" in visitor.get("/console/runs?kind=network").page.links


def _first(state: Any, agent: Any) -> Any:
    return None if state.results else agent


def event(seq: int, type: str, **data: Any) -> RunEvent:
    id = "call_1" if type.startswith("tool") else None
    return RunEvent(type=type, seq=seq, at=0, run_id="r", call_id=id, data=data)


def test_a_call_and_its_outcome_are_one_row_and_a_gap_is_a_row() -> None:
    timeline = Timeline()

    assert timeline.add([event(1, "tool.called", name="look", input={"a": 1})])
    assert timeline.add([event(2, "tool.returned", content={"data": "fog"}, ok=False)])
    assert timeline.add([event(9, "gap", missed=6)])
    assert not timeline.add([event(10, "memory.written", key="a")])

    called, gap = timeline.rows
    assert (called.input, called.outcome, called.ok) == ('look {"a":1}', "fog", False)
    assert (gap.type, gap.text) == ("gap", "missed 6")


def test_a_row_names_numbers_in_words_without_those_that_are_zero() -> None:
    timeline = Timeline()
    usage: dict[str, Any] = {"input_tokens": 253, "output_tokens": 0, "details": {}, "requests": 4}
    timeline.add([event(1, "run.completed", reason="done", usage=usage)])
    timeline.add([event(2, "run.completed", reason="done", usage={"requests": 0})])
    timeline.add([event(3, "value.changed", key="a", version=2)])

    assert [row.text for row in timeline.rows] == [
        "reason done · usage input tokens 253, requests 4",
        "reason done",
        "key a · version 2",
    ]


def test_a_timeline_has_at_most_fifty_rows_and_counts_the_others() -> None:
    timeline = Timeline()
    timeline.add(
        RunEvent(type="log", seq=n, at=0, run_id="r", data={"content": "x"}) for n in range(130)
    )
    assert (len(timeline.rows), timeline.left_out) == (50, 80)


# Versions and forks


def test_run_memory_is_shown_as_of_a_version_with_what_changed(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    planned(hf, "run_1", "Three.", "Told.")

    shown = visitor.get("/console/runs/run_1?version=1&key=step:find")
    assert "as of version 1" in shown.text
    assert "changed" in shown.text
    assert "Three." in shown.text
    assert "step:say" not in shown.text
    assert shown.named("input", type="range", name="version")
    gone = visitor.get("/console/runs/run_1?version=1&key=step:say")
    assert "Version 1 has no entry under this key." in gone.text
    assert visitor.get("/console/runs/run_1?version=99").status == 404


def test_a_run_is_forked_with_changed_values(hf: Holdfast, visitor: ConsoleClient) -> None:
    planned(hf, "run_1", "Three.", "Told.")

    assert visitor.get("/console/runs/run_1?fork=1").named("form", aria_label="Fork")
    bad = visitor.post("/console/runs/run_1/fork", {"changes": "task:look=five", "name": "New"})
    assert bad.status == 400
    assert "task:look=five" in bad.text
    assert bad.named("textarea", name="changes", aria_invalid="true")

    fields = {"changes": 'task:look="Five."\n', "name": "New", "version": ""}
    shown = visitor.follow(visitor.post("/console/runs/run_1/fork", fields))
    assert "The fork was made." in shown.text
    (fork,) = hf.runs.list("queued")
    assert (fork.name, fork.forked_from and fork.forked_from[0]) == ("New", "run_1")
    assert hf.runs.entry(fork.id, "task:look").value == "Five."


# Acts


def test_a_run_of_this_process_is_steered_and_cancelled(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    control = Steered()
    attached(hf, "run_1", control=control)

    assert visitor.get("/console/runs/run_1").named("textarea", name="steer")
    shown = visitor.follow(visitor.post("/console/runs/run_1/steer", {"steer": "Mind the fog."}))
    assert "The message was sent" in shown.text
    assert control.steered == ["Mind the fog."]
    assert visitor.post("/console/runs/run_1/steer", {"steer": " "}).status == 400

    visitor.follow(visitor.post("/console/runs/run_1/cancel"))
    assert control.cancelled == ["cancelled"]


def test_a_run_of_another_process_is_not_steered_and_it_says_where_it_runs(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    body = {"action": "acquire", "holder": "h", "place": "far:7", "name": "Far"}
    headers = {"content-type": "application/json", "origin": ORIGIN}
    sent = json.dumps(body).encode()
    visitor.send("POST", "/api/runs/run_1/lease", sent, headers=headers)
    assert hf.runs.retrieve("run_1").place == "far:7"

    shown = visitor.get("/console/runs/run_1")
    assert not shown.named("textarea", name="steer")
    assert "far:7" in shown.text
    refused = visitor.post("/console/runs/run_1/steer", {"steer": "Mind the fog."})
    assert refused.status == 409
    assert refused.named("div", role="alert")


def test_a_run_is_deleted_once_its_name_is_typed(hf: Holdfast, visitor: ConsoleClient) -> None:
    planned(hf, "run_1", "Three.", "Told.")

    assert visitor.get("/console/runs/run_1?confirm=delete").named("dialog")
    wrong = visitor.post("/console/runs/run_1/delete", {"confirmation": "x", "confirm": "delete"})
    assert wrong.status == 400
    assert wrong.named("input", name="confirmation", aria_invalid="true")
    assert hf.runs.retrieve("run_1").name == "Harbour"

    done = visitor.post("/console/runs/run_1/delete", {"confirmation": "Harbour"})
    assert "The run was deleted" in visitor.follow(done).text
    assert hf.runs.list().data == []


def test_a_running_run_is_not_deleted(hf: Holdfast, visitor: ConsoleClient) -> None:
    attached(hf, "run_1")
    shown = visitor.post("/console/runs/run_1/delete", {"confirmation": "Research"})
    assert shown.status == 409
    assert hf.runs.retrieve("run_1").status == "running"


def test_who_may_only_read_finds_no_act_and_is_refused(hf: Holdfast, signed_in: SignedIn) -> None:
    planned(hf, "run_1", "Three.", "Told.")
    question = asked(hf)
    reader = signed_in("read")

    for page in ("run_1", "run_ask"):
        shown = reader.get(f"/console/runs/{page}")
        assert shown.status == 200
        acts = [each["action"] for each in shown.named("form", method="post")]
        assert acts == ["/console/sign-out"]
    for act in ("cancel", "steer", "fork", "delete", f"questions/{question.id}"):
        assert reader.post(f"/console/runs/run_1/{act}", {}).status == 403
    assert hf.runs.question(question.id).status == "open"


# Hostile texts


def hostile_run(hf: Holdfast, id: str, text: str) -> None:
    """Make a run with *text* wherever a text may stand."""
    fine = " ".join(text.split())
    memory = attached(hf, id, fine, agent=fine, metadata={"note": text})
    memory.set(keys.shared("k"), text, title=fine, description=text, source=text)
    memory.set(keys.task("t"), {text: [text]}, source=text)
    asking(hf, question_tool(text), calls=[call("ask")], id=f"{id}_ask")
    context = Context(hf=hf, run_id=f"{id}_plan", model=ScriptedModel([text]))
    task = Task(id="t", title=fine, steps=[Step(id="s", instructions=text)])
    asyncio.run(
        ParallelTaskExecutor(plan=TaskPlan(title=fine, tasks=[task]), context=context).run()
    )


def test_no_text_of_a_run_changes_the_elements_of_its_pages(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    pages = ("{id}?key=shared:k", "{id}?key=task:t", "{id}_ask", "{id}_plan?version=1&key=step:s")
    usual: dict[str, list[str]] = {}
    for number, text in enumerate(("plain words", *HOSTILE)):
        id = f"run_{number}"
        hostile_run(hf, id, text)
        for page in pages:
            shown = visitor.get(f"/console/runs/{page.format(id=id)}")
            assert shown.status == 200
            assert usual.setdefault(page, shown.skeleton) == shown.skeleton
        part = visitor.get(f"/console/runs/{id}_plan/parts/s")
        assert usual.setdefault("part", part.skeleton) == part.skeleton


# Live


def test_what_happens_in_a_run_is_sent_by_parts_until_its_end(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    memory = RunMemory(run_id="run_1")
    over = hf.runs.attach(memory, name="Research")
    stream = next(
        str(each["hx-sse:connect"])
        for each in visitor.get("/console/runs/run_1").named("div", id="live")
    )
    client = LiveClient(visitor, stream)

    def act(client: LiveClient) -> bool:
        if len(client.events) == 1:
            memory.set(keys.shared("found"), "a secret value")
        elif len(client.events) == 2:
            assert "#memory" in client.targets
            assert "#plan" not in client.targets
            assert "shared:found" in client.events[-1]["data"]
            assert "secret" not in client.events[-1]["data"]
            over()
        return False

    events = client.follow(act)
    assert "live-dot" in events[0]["data"]
    assert "completed" in events[-2]["data"]
    assert "The run is over." in events[-2]["data"]
    assert events[-1]["event"] == "close"
    numbers = [int(each["id"]) for each in events if "id" in each]
    assert numbers == sorted(numbers)
    shown = visitor.get("/console/runs/run_1")
    assert not shown.named("div", id="live")


def test_a_stream_goes_on_after_the_last_event_received(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    planned(hf, "run_1", "Three.", "Told.")
    whole = LiveClient(visitor, "/console/runs/run_1/live").follow()
    last = [each["id"] for each in whole if "id" in each][-1]

    again = LiveClient(visitor, "/console/runs/run_1/live?after=1")
    events = again.follow(last_event_id=last)
    assert [each["id"] for each in events if "id" in each] == [last, last]
    assert LiveClient(visitor, "/console/runs/run_1/live?after=odd").follow()[0]["id"] == "0"


def test_what_is_shown_as_of_a_version_does_not_change(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    planned(hf, "run_1", "Three.", "Told.")
    client = LiveClient(visitor, "/console/runs/run_1/live?version=1&versions=x")
    events = client.follow()
    sent = "".join(each.get("data", "") for each in events)
    assert "#tasks" in sent
    assert "#memory" not in sent
    assert "#versions" not in sent


def test_a_run_that_is_deleted_ends_its_live_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    asked(hf)

    def act(client: LiveClient) -> bool:
        if len(client.events) == 1:
            hf.runs.delete("run_ask")
        return False

    events = LiveClient(visitor, "/console/runs/run_ask/live?after=1000").follow(act)
    assert events[-1]["event"] == "close"


def test_the_list_of_runs_is_sent_again_when_it_changes(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    attached(hf, "run_1", "First")

    def act(client: LiveClient) -> bool:
        if len(client.events) == 1:
            attached(hf, "run_2", "Second")
        return any("Second" in each["data"] for each in client.events)

    events = LiveClient(visitor, "/console/runs/live").follow(act)
    assert "First" in events[0]["data"]
    assert "Second" in events[-1]["data"]


@pytest.fixture
def crowd() -> Iterator[None]:
    """As many live pages as may be."""
    LIVE.add(by=LIVE_MOST)
    yield
    LIVE.add(by=-LIVE_MOST)


@pytest.mark.usefixtures("crowd")
def test_beyond_fifty_live_pages_a_page_looks_every_five_seconds_and_says_so(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    memory = RunMemory(run_id="run_1")
    over = hf.runs.attach(memory, name="Research")
    for page in ("/console/runs", "/console/runs/run_1"):
        shown = visitor.get(f"{page}/live?after=1")
        assert "50 live pages are open: this one looks every 5 s." in shown.text
        (polled,) = shown.named("div", id="live")
        assert polled["hx-trigger"] == "every 5s"
        target = str(polled["hx-get"])
        assert visitor.get(target).named("div", id="live")
    memory.set(keys.shared("late"), 1)
    assert "shared:late" in visitor.get("/console/runs/run_1/poll").html
    over()
    last = visitor.get("/console/runs/run_1/poll")
    assert "The run is over." in last.text
    assert "completed" in last.text


def test_without_script_a_live_page_says_so_with_a_link(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    attached(hf, "run_1")
    for page in ("/console/runs", "/console/runs/run_1"):
        shown = visitor.get(page)
        assert "Without script this page is not live." in shown.text
        assert page in shown.page.links


def test_a_live_page_ends_when_its_key_is_revoked(hf: Holdfast, signed_in: SignedIn) -> None:
    attached(hf, "run_1")
    reader = signed_in("read")
    signed_in("admin")

    def act(client: LiveClient) -> bool:
        if len(client.events) == 1:
            (key,) = [each for each in hf.keys.list() if each.name == "read-key"]
            hf.keys.revoke(key.id)
        return False

    client = LiveClient(reader, "/console/runs/run_1/live?after=1")
    events = client.follow(act)
    assert [each.get("event") for each in events] == [None, "close"]
    refused = reader.get("/console/runs/run_1/live")
    assert refused.status == 303


def test_pages_are_the_same_on_postgresql(fresh_postgres_url: str, runner: asyncio.Runner) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)
        planned(hf, "run_1", "Three.", "Told.")
        question = asked(hf)
        for page in ("runs", "questions", "runs/run_1?key=step:find", "runs/run_1?version=1"):
            assert visitor.get(f"/console/{page}").status == 200
        assert "run_ask" in visitor.get("/console/runs?status=waiting").html
        assert "Three." in visitor.get("/console/runs/run_1/parts/find").text
        assert visitor.get("/console/runs/compare?a=run_1&b=run_ask").status == 200
        action = f"/console/runs/run_ask/questions/{question.id}"
        assert visitor.post(action, {"answer": "Seven"}).status == 303
        events = LiveClient(visitor, "/console/runs/run_1/live").follow()
        assert events[-1]["event"] == "close"
        app.state.close()
