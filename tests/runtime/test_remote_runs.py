"""Runs through a server: a remote handle is a place for them as good as a database."""

import asyncio
import select
import socket
import socketserver
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec.structs import replace
from runtime.lives import KINDS, Death, Life, killed, lived
from runtime.plans.workers import Workers, plan, task
from runtime.test_lives import replies
from served import Served, served

import holdfast
from holdfast.errors import RunTaken, RunWaiting, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.library.remote import client
from holdfast.library.remote.runs import pieces
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow, VersionSave
from holdfast.runtime import (
    Context,
    EngineCheckpoints,
    ParallelTaskExecutor,
    TaskExecutor,
    ask_human,
)
from holdfast.runtime.plans.leases import LeaseRequest
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.testing.serving import Server, new_workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def target(server: Server) -> str:
    return f"{new_workspace()}@{server.url}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_a_plan_of_six_tasks_killed_three_times_asks_for_each_once(
    target: str, log: Path
) -> None:
    for done in (1, 2, 3):
        killed("plan", target, Life(log, Death(number=2)))
        assert replies(log) == done

    assert await lived("plan", target, Life(log)) == "done"

    assert replies(log) == 6
    workspace, _, url = target.partition("@")
    with holdfast.open(url, workspace=workspace) as hf:
        emitted = [event.type for event in hf.runs.follow("run_1")]
        run = hf.runs.retrieve("run_1")
    assert emitted.count("run.completed") == 1
    assert emitted.count("run.taken_over") == 3
    assert (run.status, run.fence) == ("completed", 4)


@pytest.mark.parametrize("kind", ["workflow", "network", "agent"])
async def test_killed_at_its_second_request_another_process_asks_nothing_again(
    kind: str, target: str, log: Path
) -> None:
    _, result, requests = KINDS[kind]
    killed(kind, target, Life(log, Death(number=2)))
    assert replies(log) == 1

    assert await lived(kind, target, Life(log)) == result

    assert replies(log) == requests


class Between(socketserver.ThreadingTCPServer):
    """A network between a client and a server, which loses the responses it is told to.

    A response is lost once the server has sent it: that of the request with the text `loses`.
    """

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Wire)
        self.upstream = urlsplit(url).port
        self.loses, self.lost, self.is_away = b"", 0, False
        self.on_loss: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Wire(socketserver.BaseRequestHandler):
    """One connection of a client, passed on to the server."""

    def handle(self) -> None:
        caller, network, losing = self.request, cast("Between", self.server), False
        try:
            with socket.create_connection(("127.0.0.1", network.upstream)) as server:
                while True:
                    for each in select.select([caller, server], [], [])[0]:
                        data = each.recv(65_536)
                        if each is caller and network.loses and network.loses in data:
                            losing, network.loses = True, b""
                        elif each is server and losing:
                            network.lost += 1
                            network.on_loss()
                            return
                        if not data or network.is_away:
                            return
                        (server if each is caller else caller).sendall(data)
        except OSError:
            return


@contextmanager
def between(url: str) -> Generator[Between]:
    """Give a network to the server at *url*."""
    with Between(url) as network:
        thread = Thread(target=network.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield network
        finally:
            network.shutdown()
            thread.join()


@pytest.fixture
def network(server: Server) -> Iterator[Between]:
    with between(server.url) as network:
        yield network


@pytest.fixture
def hf(network: Between) -> Iterator[Holdfast]:
    with holdfast.open(network.url, workspace=new_workspace()) as hf:
        yield hf


def three(hf: Holdfast, workers: Workers) -> ParallelTaskExecutor:
    """Return the execution of a plan of three tasks, one after another."""
    tasks = plan(task("a"), task("b", depends_on=["a"]), task("c", depends_on=["b"]))
    return ParallelTaskExecutor(plan=tasks, context=workers.context(hf=hf, run_id="run_1"))


def followed(hf: Holdfast) -> list[str]:
    """Return the types of the events of the run, which is over."""
    return [event.type for event in hf.runs.follow("run_1")]


@pytest.mark.parametrize("request_lost", [b"/runs/run_1/versions/1 ", b'"cause":"end"'])
async def test_a_version_whose_response_is_lost_is_stored_once(
    hf: Holdfast, network: Between, request_lost: bytes
) -> None:
    workers, network.loses = Workers(), request_lost

    await three(hf, workers).run()

    assert network.lost == 1
    versions = list(hf.runs.versions("run_1"))
    assert [each.cause for each in reversed(versions)] == ["step", "step", "step", "end"]
    assert followed(hf).count("version.kept") == 4
    assert followed(hf)[-1] == "run.completed"
    assert workers.began == ["a1", "b1", "c1"]


async def test_an_acquisition_whose_response_is_lost_is_made_once_and_emitted(
    hf: Holdfast, network: Between
) -> None:
    network.loses, emitted = b'"action":"acquire"', list[str]()

    async for event in three(hf, Workers()).stream():
        emitted.append(event.type)

    assert network.lost == 1
    assert emitted[0] == "run.started"
    assert [each.count("run.started") for each in (emitted, followed(hf))] == [1, 1]
    assert hf.runs.retrieve("run_1").fence == 1


async def test_a_run_that_rests_while_the_response_is_lost_waits_once(
    hf: Holdfast, network: Between
) -> None:
    network.loses, seen = b'"status":"waiting"', list[object]()

    def moor() -> str:
        """Moor the ship."""
        seen.append(ask_human("Which berth?"))
        return "moored"

    def dock(*turns: Any) -> TaskExecutor:
        context = Context(hf=hf, run_id="run_1", model=ScriptedModel(list(turns)))
        return TaskExecutor(task=task("dock"), context=context, tools=[moor])

    with pytest.raises(RunWaiting):
        await dock(call("moor")).run()
    assert network.lost == 1
    assert hf.runs.retrieve("run_1").status == "waiting"
    assert len(list(hf.runs.questions(run="run_1"))) == 1
    hf.runs.answer("run_1", "7")
    assert hf.runs.retrieve("run_1").status == "queued"

    await dock("Moored.").run()

    assert seen == ["7"]
    counted = followed(hf)
    types = ("question.asked", "question.answered", "run.waiting", "run.completed")
    assert [counted.count(each) for each in types] == [1, 1, 1, 1]


async def test_a_server_that_is_killed_in_the_middle_of_a_save_stores_it_once(
    tmp_path: Path,
) -> None:
    path, workers = tmp_path / "h.db", Workers()
    with ExitStack() as servers, between("http://127.0.0.1:1") as network:

        def start() -> None:
            process = servers.enter_context(served(path))
            network.upstream = urlsplit(process.url).port
            running.append(process)

        def restart() -> None:
            running[-1].process.kill()
            running[-1].process.wait(60)
            start()

        running: list[Served] = []
        start()
        network.loses, network.on_loss = b"/runs/run_1/versions/2 ", restart
        with holdfast.open(network.url) as hf:
            await three(hf, workers).run()

            assert network.lost == 1
            assert [each.number for each in hf.runs.versions("run_1")] == [4, 3, 2, 1]
            assert followed(hf).count("run.completed") == 1
            assert workers.began == ["a1", "b1", "c1"]


async def test_a_run_goes_on_while_the_server_is_away_and_its_next_save_has_all(
    hf: Holdfast, network: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSES", ())
    began: list[str] = []

    def work(asked: Asked) -> object:
        began.append("b1" if "Work on b1" in asked.text else "a1")
        network.is_away = began == ["a1"]
        return "done"

    tasks = plan(task("a"), task("b", depends_on=["a"]))
    context = Context(hf=hf, run_id="run_1", model=ScriptedModel(work))
    await ParallelTaskExecutor(plan=tasks, context=context).run()

    state = hf.runs.at("run_1")
    assert [state.memory.get_value(key) for key in ("task:a", "task:b")] == ["done", "done"]
    assert [each.cause for each in hf.runs.versions("run_1")] == ["end", "step"]
    assert [followed(hf).count(each) for each in ("run.started", "run.completed")] == [1, 1]
    assert began == ["a1", "b1"]


async def test_a_run_that_another_has_is_refused_with_who_has_it(remote: Holdfast) -> None:
    request = LeaseRequest(run_id="run_1", name="A plan", holder="ada", place="rock:7")
    lease, workers = EngineCheckpoints(remote).acquire(request), Workers()

    with pytest.raises(RunTaken) as caught:
        await three(remote, workers).run()

    error = caught.value
    assert (error.run_id, error.holder, error.place, error.ids) == ("run_1", "ada", "rock:7", ())
    assert error.until is not None
    assert workers.began == []
    assert remote.runs.retrieve("run_1").fence == lease.fence


async def test_an_owner_that_was_taken_over_stops_and_writes_nothing(remote: Holdfast) -> None:
    taken = asyncio.Event()

    async def take(_: Asked) -> object:
        if not taken.is_set():
            taken.set()
            request = LeaseRequest(
                run_id="run_1", name="B", holder="bob", place="rock:8", take_over="always"
            )
            await asyncio.to_thread(EngineCheckpoints(remote).acquire, request)
        return call("finish_step", result="done")

    context = Context(hf=remote, run_id="run_1", model=ScriptedModel(take))
    with pytest.raises(StaleRun):
        await TaskExecutor(task=task("a"), context=context).run()

    run = remote.runs.retrieve("run_1")
    assert (run.status, run.place, run.fence, run.versions) == ("running", "rock:8", 2, 0)


def test_a_version_larger_than_one_request_comes_whole(remote: Holdfast) -> None:
    text = msgspec.json.encode("x" * 3_000_000)
    rows = tuple(StateRow("value", f"v{number}", text) for number in range(3))
    save = VersionSave(run_id="run_1", fence=0, at=1, cause="step", rows=rows[:1])
    place = remote.runs.checkpoints
    place.replace(save)

    found = place.append(replace(save, rows=rows))

    kept = place.load("run_1")
    assert found.number == 2
    assert kept is not None
    assert (kept.number, list(kept.state.values())) == (2, [text] * 3)
    assert [each.number for each in remote.runs.versions("run_1")] == [2, 1]


def test_pieces_keep_the_order_and_the_last_one_is_the_version() -> None:
    rows = tuple(StateRow("value", str(number), b"1234") for number in range(5))
    turns = (KeptTurn("read", 0, b"12345678"),)
    save = VersionSave(run_id="r", fence=1, at=1, cause="step", rows=rows, turns=turns)

    found = list(pieces(save, 8))

    assert [each.cause for each in found] == [None, None, None, "step"]
    assert tuple(row for each in found for row in each.rows) == rows
    assert found[0].turns == turns
    assert list(pieces(replace(save, rows=()), 8)) == [replace(save, rows=())]
