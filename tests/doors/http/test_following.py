"""Those who wait for a store's next change: many, without a thread each; and what edits may be."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.stores import written
from doors.http.asking import Asker, Said

import holdfast
from holdfast.doors.http import state as server_state
from holdfast.doors.http.app import App, make_app
from holdfast.doors.http.request import MIB, THREADS
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

MANY = 5 * THREADS


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as hf:
        yield hf


@pytest.fixture
def app(hf: Holdfast) -> Iterator[App]:
    app = make_app(hf, clock=FrozenClock())
    yield app
    app.state.close()


def changes(store: str, after: int, wait: float = 30) -> str:
    return f"/api/memory_stores/{store}/changes?after={after}&wait={wait}"


async def all_wait(app: App, many: int) -> None:
    """Return when *many* requests wait."""
    async with asyncio.timeout(30):
        while app.state.notifier.waits < many:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def test_more_wait_than_there_are_threads_and_all_are_told(
    app: App, ask: Asker, hf: Holdfast, store: str
) -> None:
    async def told() -> list[Said]:
        after = hf.memory_stores.memories.snapshot(store).seq
        asked = [
            asyncio.ensure_future(ask.awaited("GET", changes(store, after))) for _ in range(MANY)
        ]
        await all_wait(app, MANY)
        await asyncio.to_thread(written, hf, hf.memory_stores.retrieve(store), "/a.md")
        return await asyncio.gather(*asked)

    said = ask.runner.run(told())

    paths = [[each["memory"]["path"] for each in one.json()["changes"]] for one in said]
    assert paths == [["/a.md"]] * MANY
    assert app.state.notifier.waits == 0


def test_while_they_wait_others_are_answered(
    app: App, ask: Asker, hf: Holdfast, store: str
) -> None:
    async def search() -> Said:
        after = hf.memory_stores.memories.snapshot(store).seq
        asked = [
            asyncio.ensure_future(ask.awaited("GET", changes(store, after))) for _ in range(MANY)
        ]
        await all_wait(app, MANY)
        said = await ask.awaited("GET", f"/api/memory_stores/{store}/search?q=tabs")
        app.state.stopping.set()
        await asyncio.gather(*asked)
        return said

    assert ask.runner.run(search()).json() == {"data": []}


def test_a_server_that_stops_answers_who_waits(
    app: App, ask: Asker, hf: Holdfast, store: str
) -> None:
    async def last() -> Said:
        after = hf.memory_stores.memories.snapshot(store).seq
        asked = asyncio.ensure_future(ask.awaited("GET", changes(store, after)))
        await all_wait(app, 1)
        app.state.stopping.set()
        return await asked

    assert ask.runner.run(last()).json()["changes"] == []


def test_one_too_many_who_wait_is_told_to_come_back(
    ask: Asker, hf: Holdfast, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_state, "WAITING_MOST", 0)
    after = hf.memory_stores.memories.snapshot(store).seq

    said = ask.get(changes(store, after))

    assert (said.status, said.headers["retry-after"]) == (503, "1")
    assert ask.get(changes(store, after, wait=0)).status == 200


@pytest.mark.parametrize("wait", ["x", "-1", "31", "1e2", "", "nan"])
def test_a_time_that_is_none_is_refused(ask: Asker, store: str, wait: str) -> None:
    said = ask.get(f"/api/memory_stores/{store}/changes?after=0&wait={wait}")

    assert (said.status, said.facts["facts"]["field"]) == (400, "wait")


def test_edits_may_be_as_long_as_thirty_two_mebibytes(ask: Asker, store: str) -> None:
    path = f"/api/memory_stores/{store}/apply"
    saves: list[dict[str, Any]] = [
        {"type": "save", "path": f"/{number}.md", "content": "x" * 100_000} for number in range(330)
    ]
    body = json.dumps({"edit_id": "edit_1", "edits": saves}).encode()
    assert 31 * MIB < len(body) < 32 * MIB

    said = ask("POST", path, body)

    assert (said.status, len(said.json()["data"])) == (200, 330)
    assert ask("POST", path, b" " * (32 * MIB + 1)).status == 413


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"type": "save", "path": "/a", "content": "", "other": 1}, "edits[0].other"),
        ({"type": "save", "path": "/a"}, "edits[0].content"),
        ({"type": "swap"}, "edits[0].type"),
        ({"path": "/a", "content": ""}, "edits[0].type"),
        ({"type": "delete", "memory_id": 7}, "edits[0].memory_id"),
        ({"type": "move", "moves": [{"memory_id": "mem_1"}]}, "edits[0].moves[0].path"),
        (None, "edits[0]"),
    ],
)
def test_an_edit_of_another_shape_is_named(
    ask: Asker, store: str, edit: object, field: str
) -> None:
    body = {"edit_id": "edit_1", "edits": [edit]}

    said = ask.post(f"/api/memory_stores/{store}/apply", body)

    assert (said.status, said.facts["facts"]["field"]) == (400, field)
