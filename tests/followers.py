"""Listeners of a run: by the library, a server, its stream or the command line, on threads."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import httpx

import holdfast
import holdfast.aio

SECONDS = 60.0
"""How long a test waits for what has to come."""

COMMAND = "import sys; from holdfast.doors.cli.main import main; sys.exit(main(sys.argv[1:]))"

Told = dict[str, Any]
Way = Callable[..., Iterator[Told]]


class Follower:
    """What one listener received of a run, which *events* yields on a thread."""

    def __init__(self, events: Callable[[], Iterator[Told]]) -> None:
        self.seen: list[Told] = []
        self._changed, self._raised = Condition(), list[BaseException]()
        self._events = events
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            for event in self._events():
                with self._changed:
                    self.seen.append(event)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - raised by `all`
            self._raised.append(error)
        with self._changed:
            self._changed.notify_all()

    def until(self, type: str, **data: object) -> None:
        """Wait for an event of *type* with *data*."""
        with self._changed:
            there = self._changed.wait_for(
                lambda: any(is_of(each, type, data) for each in self.seen) or self._raised, SECONDS
            )
        assert there, (type, self.seen)
        assert not self._raised, self._raised

    def all(self) -> list[Told]:
        """Return all that it received, once that has ended."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), self.seen
        if self._raised:
            raise self._raised[0]
        return self.seen


def is_of(event: Told, type: str, data: Told) -> bool:
    """Return whether *event* is of *type* with *data*."""
    return event["type"] == type and data.items() <= event["data"].items()


def by_library(target: str | Path, run_id: str, **options: Any) -> Iterator[Told]:
    """Follow *run_id* in the database, or through the server, at *target*."""
    with holdfast.open(target) as hf:
        for event in hf.runs.follow(run_id, **options):
            yield event.to_dict()


def by_aio(target: str | Path, run_id: str, **options: Any) -> Iterator[Told]:
    """Follow *run_id* by the async library."""

    async def opened() -> tuple[Any, Any]:
        hf = await holdfast.aio.open(target)
        return hf, aiter(await hf.runs.follow(run_id, **options))

    with asyncio.Runner() as runner:
        hf, events = runner.run(opened())
        while (event := runner.run(_next(events))) is not None:
            yield event.to_dict()
        runner.run(hf.close())


async def _next(events: Any) -> Any:
    return await anext(events, None)


def by_stream(url: str | Path, run_id: str, **options: Any) -> Iterator[Told]:
    """Follow *run_id* by the messages of the server at *url*, connecting again by their ids."""
    headers = {"last-event-id": str(options.pop("after", 0))}
    if "types" in options:
        options["types"] = ",".join(options["types"])
    again = Event()
    while True:
        try:
            for message in _messages(f"{url}/api/runs/{run_id}/events", options, headers):
                if message["event"] == "ended":
                    return
                headers["last-event-id"] = message["id"]
                event = json.loads(message["data"])
                assert (message["id"], message["event"]) == (str(event["seq"]), event["type"])
                yield event
        except httpx.TransportError:
            again.wait(0.1)


def _messages(url: str, query: Told, headers: dict[str, str]) -> Generator[dict[str, str]]:
    """Yield the messages of one connection."""
    message: dict[str, str] = {}
    with httpx.stream("GET", url, params=query, headers=headers, timeout=SECONDS) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name:
                message[name] = value
            elif "event" in message:
                yield message
            if not line:
                message = {}
    raise httpx.RemoteProtocolError("the stream ended before the run")


def by_command(target: str | Path, run_id: str, **options: Any) -> Iterator[Told]:
    """Follow *run_id* by `holdfast runs watch --json` in a process."""
    given = [sys.executable, "-c", COMMAND, "runs", "watch", run_id, "--json"]
    given += ["--db", str(target), *(["--rest"] if options.get("rest") else [])]
    for type in options.get("types", ()):
        given += ["--type", type]
    for name in ("after", "wait"):
        given += [f"--{name}", str(options.get(name, 0))]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen(given, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    assert process.returncode == 0


WAYS: dict[str, Way] = {
    "library": by_library,
    "aio": by_aio,
    "remote": by_library,
    "stream": by_stream,
    "command": by_command,
}
"""The ways to follow a run, by name. `remote` and `stream` are of a server's URL."""


def following(way: str, target: str | Path, run_id: str, **options: Any) -> Follower:
    """Return a listener of *run_id* at *target* in the *way*."""
    return Follower(partial(WAYS[way], target, run_id, **options))


def ordered(events: list[Told]) -> None:
    """Check that *events* are numbered, in causal order, with one end."""
    assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
    types = [each["type"] for each in events]
    assert (types[0], types[-1]) == ("run.started", "run.completed")
    assert types.count("run.completed") == 1
    for at, event in enumerate(events):
        before = events[:at]
        if event["type"] == "tool.returned":
            assert ("tool.called", event["call_id"]) in [(e["type"], e["call_id"]) for e in before]
        elif event["type"] == "step.completed":
            key = f"step:{event['part']}"
            assert key in [e["data"]["key"] for e in before if e["type"] == "memory.written"]
            assert any(key in e["data"]["changed"] for e in before if e["type"] == "version.kept")
