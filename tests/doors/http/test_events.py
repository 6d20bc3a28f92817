import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from doors.http.asking import HOST

import holdfast
from holdfast.doors.http.app import App, make_app
from holdfast.doors.http.state import LIVE_MOST
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as hf:
        yield hf


@pytest.fixture
def app(hf: Holdfast) -> Iterator[App]:
    app = make_app(hf)
    yield app
    app.state.close()


class Line:
    """A live answer, read frame by frame."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.left = asyncio.Event()

    async def start(self) -> dict[str, Any]:
        return await self.sent.get()

    async def frame(self) -> dict[str, str]:
        """Return the next event; comments are passed over."""
        while True:
            body: bytes = (await self.sent.get())["body"]
            if not body.startswith(b":"):
                lines = body.decode().strip().splitlines()
                return dict(line.split(": ", 1) for line in lines)  # pyright: ignore[reportReturnType] - two parts each


@asynccontextmanager
async def following(app: App, query: str = "", **headers: str) -> AsyncGenerator[Line]:
    line = Line()

    async def receive() -> dict[str, str]:
        await line.left.wait()
        return {"type": "http.disconnect"}

    sends = {"host": HOST, **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/api/events",
        "raw_path": b"/api/events",
        "query_string": query.encode(),
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in sends.items()],
    }

    async def send(message: Any) -> None:
        await line.sent.put(message)

    task = asyncio.create_task(app(scope, receive, send))
    try:
        yield line
    finally:
        line.left.set()
        await task


def test_what_happens_is_told_as_it_happens(app: App, hf: Holdfast) -> None:
    async def follow() -> tuple[dict[str, Any], dict[str, str]]:
        async with following(app) as line:
            start, _ = await line.start(), await line.sent.get()
            await asyncio.to_thread(hf.memory_stores.create, name="n")
            return start, await line.frame()

    start, frame = asyncio.run(follow())

    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    told = json.loads(frame["data"])
    assert frame["event"] == told["type"] == "store.created"
    assert frame["id"] == told["cursor"]
    assert told["workspace"] == "default"


def test_a_position_leads_on_and_types_choose(app: App, hf: Holdfast) -> None:
    cursor = hf.engine.feed().cursor
    store = hf.memory_stores.create(name="n")
    hf.memory_stores.memories.create(store.id, path="/a.md", content="")

    async def first(query: str, **headers: str) -> dict[str, str]:
        async with following(app, query, **headers) as line:
            await line.start()
            return await line.frame()

    async def both() -> tuple[dict[str, str], dict[str, str]]:
        return (
            await first(f"after={cursor}&types=memory.created,memory.deleted"),
            await first("types=memory.created", last_event_id=cursor),
        )

    by_query, by_header = asyncio.run(both())

    assert by_query["event"] == "memory.created"
    assert by_header == by_query


def test_other_workspaces_are_not_told_of(app: App, hf: Holdfast) -> None:
    cursor = hf.engine.feed().cursor
    hf.acting(workspace="lab").memory_stores.create(name="theirs")
    hf.memory_stores.archive(hf.memory_stores.create(name="mine").id)

    async def two() -> list[str]:
        async with following(app, f"after={cursor}") as line:
            await line.start()
            await line.sent.get()
            body: bytes = (await line.sent.get())["body"]
            return [
                json.loads(each.rpartition(b"data: ")[2])["workspace"]
                for each in body.split(b"\n\n")[:-1]
            ]

    assert asyncio.run(two()) == ["default", "default"]


def test_what_is_written_nowhere_is_told_too_and_once(app: App, hf: Holdfast) -> None:
    async def two() -> list[str]:
        async with following(app, "types=access.denied,store.created") as line:
            await line.start()
            await line.sent.get()
            await asyncio.to_thread(hf.memory_stores.create, name="n")
            first = await line.frame()
            await asyncio.to_thread(hf.events.publish, denied("lab"))
            await asyncio.to_thread(hf.events.publish, denied("default"))
            return [first["event"], (await line.frame())["data"]]

    created, told = asyncio.run(two())

    assert created == "store.created"
    assert json.loads(told)["workspace"] == "default"


def denied(workspace: str) -> Event:
    return Event(type="access.denied", at=datetime.now(UTC), workspace=workspace)


def test_a_position_that_is_none_is_refused(app: App) -> None:
    async def status() -> int:
        async with following(app, "after=nonsense") as line:
            return (await line.start())["status"]

    assert asyncio.run(status()) == 400


def test_a_server_that_stops_ends_what_is_live(app: App) -> None:
    async def last() -> dict[str, Any]:
        async with following(app) as line:
            await line.start()
            await line.sent.get()
            app.state.stopping.set()
            return await line.sent.get()

    assert asyncio.run(last()) == {"type": "http.response.body", "body": b""}
    assert app.state.live == 0


def test_one_too_many_is_told_to_come_back(app: App) -> None:
    app.state.live = LIVE_MOST

    async def start() -> dict[str, Any]:
        async with following(app) as line:
            return await line.start()

    said = asyncio.run(start())
    assert (said["status"], dict(said["headers"])[b"retry-after"]) == (503, b"5")
