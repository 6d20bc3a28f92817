"""Networks that a server runs: listed, run, followed and cancelled."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from doors.http.asking import Asker

import holdfast
from holdfast.doors.http.app import App, make_app
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Agent, EngineHistory, Network, RouterContext, ask_human
from holdfast.runtime.runs.definitions import load
from holdfast.testing.scripted import ScriptedModel, call


def once(ctx: RouterContext) -> str | None:
    return None if ctx.call_count else "ada"


def desk(*, name: str = "desk", said: Any = "Hello.") -> Network:
    ada = Agent("ada", description="Greets.", instructions="", model=ScriptedModel(lambda _: said))
    return Network(name, [ada], description="A desk.", router=once)


DESK, MANY, NOTHING = desk(), {"one": desk(name="one"), "two": desk(name="two")}, 5
HERE = __name__


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


def waiting() -> Network:
    model = ScriptedModel(lambda _: never())
    return Network("slow", [Agent("ada", instructions="", model=model)], router=once)


def asking(go: asyncio.Event) -> Network:
    """Return a network of which an agent asks for a berth after *go*."""

    async def berth() -> str:
        """Ask for a berth."""
        await go.wait()
        return f"berth {ask_human('Which berth?')}"

    model = ScriptedModel(lambda asked: "Moored." if "berth 7" in asked.text else call("berth"))
    return Network(
        "asking", [Agent("ada", instructions="", model=model, tools=[berth])], router=once
    )


@pytest.fixture
def go() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def app(hf: Holdfast, go: asyncio.Event) -> Iterator[App]:
    failing = desk(name="failing", said=OSError("down"))
    app = make_app(hf, definitions=[desk(), failing, waiting(), asking(go)])
    yield app
    app.state.close()


async def begun(app: App, count: int) -> None:
    """Wait until the run `run_1` has told *count* events."""
    async with asyncio.timeout(30):
        while (going := app.state.registry.active("default", "run_1")) is None:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
        while len(going.frames) < count:
            await going.news(30)


def events(body: bytes) -> list[tuple[str, str, Any]]:
    """Return the id, the type and the data of each message of a stream."""
    found: list[tuple[str, str, Any]] = []
    for message in body.decode().split("\n\n"):
        told = dict(line.split(": ", 1) for line in message.splitlines() if line[:1] != ":")
        if told:
            found.append((told.get("id", ""), told["event"], json.loads(told["data"])))
    return found


def test_networks_are_listed(ask: Asker) -> None:
    assert ask.get("/api/networks").json()["data"][0] == {
        "name": "desk",
        "description": "A desk.",
        "agents": [{"name": "ada", "description": "Greets."}],
    }


def test_a_run_answers_with_all_of_it_and_is_kept(ask: Asker, hf: Holdfast) -> None:
    body = {"input": "Hi?", "thread_id": "t", "data": {"city": "Oslo"}, "run_id": "run_1"}

    answer = ask.post("/api/networks/desk/runs", body)

    told = answer.json()
    assert (answer.status, told["id"], told["status"], told["thread_id"]) == (
        200,
        "run_1",
        "completed",
        "t",
    )
    assert told["results"][0]["agent"] == "ada"
    assert told["data"] == {"city": "Oslo"}
    assert [each.kind for each in hf.threads.turns("t").data] == ["user", "result"]
    assert hf.runs.retrieve("run_1").reason == "done"


def test_what_can_be_run_is_listed(ask: Asker) -> None:
    assert ask.get("/api/definitions").json()["data"][0] == {
        "name": "desk",
        "kind": "network",
        "description": "A desk.",
        "version": "1",
        "queue": "default",
    }


def test_a_run_is_queued_by_the_name_of_its_definition(ask: Asker) -> None:
    body = {"definition": "desk", "input": "Hi?", "run_id": "run_1", "metadata": {"ticket": "42"}}

    queued = ask.post("/api/runs", body)

    assert queued.status == 202
    told = queued.json()
    assert (told["id"], told["status"], told["kind"]) == ("run_1", "queued", "task")
    assert (told["queue"], told["metadata"]) == ("default", {"ticket": "42"})
    assert ask.post("/api/runs", body).json() == told
    assert ask.post("/api/runs", body | {"input": "Ho?"}).status == 409
    assert ask.post("/api/runs", {"definition": "elsewhere"}).json()["kind"] == "task"


def test_a_queued_run_is_taken_by_the_worker_of_the_server(
    ask: Asker, app: App, hf: Holdfast
) -> None:
    body = {"definition": "desk", "input": "Hi?", "run_id": "run_1", "wait": 60}

    async def worked() -> Any:
        working = asyncio.create_task(app.state.registry.work())
        answer = await ask.awaited("POST", "/api/runs", body)
        await app.state.registry.stop()
        await working
        return answer

    answer = ask.runner.run(worked())

    assert (answer.status, answer.json()["status"]) == (202, "completed")
    assert [each.kind for each in hf.threads.turns(answer.json()["thread_id"])] == [
        "user",
        "result",
    ]


def test_a_queued_run_may_be_answered_as_its_events(ask: Asker, app: App) -> None:
    ask.stays = True
    headers = {"accept": "text/event-stream"}
    body = {"definition": "desk", "input": "Hi?", "run_id": "run_2"}

    async def worked() -> Any:
        working = asyncio.create_task(app.state.registry.work())
        answer = await ask.awaited("POST", "/api/runs", body, headers=headers)
        await app.state.registry.stop()
        await working
        return answer

    told = [each[1] for each in events(ask.runner.run(worked()).body)]

    assert told[:2] == ["run.queued", "run.started"]
    assert told[-2:] == ["run.completed", "ended"]


def test_queued_runs_are_given_back_when_the_server_stops(
    ask: Asker, app: App, hf: Holdfast
) -> None:
    app.state.registry.grace = 0

    async def stopped() -> None:
        working = asyncio.create_task(app.state.registry.work())
        hf.runs.start("slow", "Hi?", run_id="run_1")
        begun = hf.runs.follow("run_1", types="run.started")
        async with asyncio.timeout(60):
            await asyncio.to_thread(next, begun)
        await app.state.registry.stop()
        await working

    ask.runner.run(stopped())

    assert hf.runs.retrieve("run_1").status == "queued"


def test_a_failed_run_is_an_answer_too(ask: Asker) -> None:
    answer = ask.post("/api/networks/failing/runs", {"input": "Hi?"})

    assert (answer.status, answer.json()["status"]) == (200, "failed")
    assert answer.json()["stop_reason"] == "model_error"


def test_a_run_may_be_answered_as_its_events(ask: Asker, hf: Holdfast) -> None:
    headers, ask.stays = {"accept": "text/event-stream"}, True

    told = events(ask("POST", "/api/networks/desk/runs", {"input": "Hi?"}, headers=headers).body)

    assert [each[0] for each in told[:-1]] == [str(each[2]["seq"]) for each in told[:-1]]
    stored = list(hf.runs.follow(told[0][2]["run_id"]))
    assert [each[2] for each in told[:-1] if each[1] != "text.delta"] == [
        each.to_dict() for each in stored
    ]
    assert [each[1] for each in told[-2:]] == ["run.completed", "ended"]
    assert "".join(d["data"]["delta"] for _, t, d in told if t == "text.delta") == "Hello."


def test_what_is_not_served_is_not_found(ask: Asker) -> None:
    assert ask.post("/api/networks/other/runs", {"input": "Hi?"}).status == 404
    assert ask.get("/api/runs/run_9/events").status == 404
    assert ask.post("/api/runs/run_9/cancel").status == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"input": 5}, {"input": "Hi?", "max_turns": 0}, {"input": "Hi?", "run_id": "a b"}],
)
def test_what_cannot_be_run_is_refused(ask: Asker, body: Any) -> None:
    answer = ask.post("/api/networks/desk/runs", body)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


def test_the_end_of_a_run_that_is_over_is_told(ask: Asker) -> None:
    ask.post("/api/networks/desk/runs", {"input": "Hi?", "run_id": "run_1"})

    told = events(ask.get("/api/runs/run_1/events").body)

    assert [each[1] for each in (told[0], *told[-2:])] == ["run.started", "run.completed", "ended"]
    assert told[-2][2]["data"]["reason"] == "done"


def test_a_run_that_is_over_cannot_be_cancelled(ask: Asker) -> None:
    ask.post("/api/networks/desk/runs", {"input": "Hi?", "run_id": "run_1"})

    assert ask.post("/api/runs/run_1/cancel").status == 409


def test_a_run_is_followed_from_where_one_was_and_cancelled(ask: Asker, app: App) -> None:
    ask.stays = True

    async def both() -> tuple[Any, Any, Any]:
        making = asyncio.create_task(
            ask.awaited("POST", "/api/networks/slow/runs", {"input": "Hi?", "run_id": "run_1"})
        )
        await begun(app, 4)
        following = asyncio.create_task(ask.awaited("GET", "/api/runs/run_1/events?after=1"))
        again = await ask.awaited(
            "POST", "/api/networks/slow/runs", {"input": "Hi?", "run_id": "run_1"}
        )
        assert again.status == 409
        cancelled = await ask.awaited("POST", "/api/runs/run_1/cancel", {"reason": "enough"})
        return await making, await following, cancelled

    made, followed, cancelled = ask.runner.run(both())

    told = events(followed.body)
    assert (cancelled.status, made.json()["stop_detail"]) == (202, "enough")
    assert [each[1] for each in told] == [
        "router.decided",
        "version.kept",
        "agent.started",
        "agent.finished",
        "run.cancelled",
        "ended",
    ]
    assert [each[0] for each in told] == ["2", "3", "4", "5", "6", ""]


def test_who_follows_a_run_that_waits_goes_on_after_the_answer(
    ask: Asker, app: App, hf: Holdfast, go: asyncio.Event
) -> None:
    ask.stays = True
    body = {"input": "Hi?", "run_id": "run_1", "thread_id": "t"}

    async def both() -> tuple[Any, Any]:
        making = asyncio.create_task(ask.awaited("POST", "/api/networks/asking/runs", body))
        await begun(app, 6)
        following, resting = (
            asyncio.create_task(ask.awaited("GET", f"/api/runs/run_1/events?{query}"))
            for query in ("", "rest=true")
        )
        # Both have begun to wait for what follows.
        await asyncio.sleep(0)
        go.set()
        assert (await making).json()["status"] == "waiting"
        rested = await resting
        assert not following.done()
        hf.runs.answer("run_1", "7")
        again = await ask.awaited("POST", "/api/networks/asking/runs", body)
        assert again.json()["status"] == "completed"
        return await following, rested

    followed, rested = (events(each.body) for each in ask.runner.run(both()))

    assert [each[1] for each in rested[-2:]] == ["run.waiting", "ended"]
    assert [each[1] for each in followed[-2:]] == ["run.completed", "ended"]
    stored = [each.to_dict() for each in hf.runs.follow("run_1")]
    assert [each[2] for each in followed[:-1] if each[1] != "text.delta"] == stored


def test_runs_end_with_the_server_and_that_is_kept(ask: Asker, app: App, hf: Holdfast) -> None:
    async def stopping() -> Any:
        making = asyncio.create_task(
            ask.awaited("POST", "/api/networks/slow/runs", {"input": "Hi?", "run_id": "run_1"})
        )
        await begun(app, 3)
        await app.state.registry.stop()
        return await making

    assert ask.runner.run(stopping()).json()["status"] == "cancelled"
    assert hf.runs.retrieve("run_1").detail == "the server stops"


def test_a_network_with_a_history_of_its_own_keeps_it(hf: Holdfast, runner: Any) -> None:
    with holdfast.open(":memory:") as other:
        network = desk()
        network.history = EngineHistory(other)
        app = make_app(hf, definitions=network)
        Asker(app, runner).post("/api/networks/desk/runs", {"input": "Hi?", "run_id": "run_1"})
        app.state.close()

        assert other.runs.retrieve("run_1").status == "completed"
    assert list(hf.runs.list().data) == []


def test_networks_are_loaded_by_name() -> None:
    assert list(load([f"{HERE}:DESK", f"{HERE}:MANY"])) == ["desk", "one", "two"]


@pytest.mark.parametrize(
    "names",
    [
        ["nowhere"],
        ["no_such_module:desk"],
        [f"{HERE}:NO_SUCH"],
        [f"{HERE}:NOTHING"],
        [f"{HERE}:DESK", f"{HERE}:DESK"],
    ],
)
def test_what_is_no_network_is_refused(names: list[str]) -> None:
    with pytest.raises(InvalidInput, match="definitions"):
        load(names)
