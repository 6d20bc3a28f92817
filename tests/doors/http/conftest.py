"""An app over a database in memory, and somebody who asks it."""

import asyncio
from collections.abc import Iterator

import pytest
from doors.http.asking import Asker, SharedApp

import holdfast
from holdfast.doors.http.app import App, make_app
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def app(hf: Holdfast, clock: FrozenClock) -> Iterator[App]:
    app = make_app(hf, clock=clock)
    yield app
    app.state.close()


@pytest.fixture
def strict(hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner) -> Iterator[Asker]:
    app = make_app(hf, clock=clock, strict=True)
    yield Asker(app, runner)
    app.state.close()


@pytest.fixture
def ask(app: App, runner: asyncio.Runner) -> Asker:
    return Asker(app, runner)


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedApp]:
    """Share an app, open until a key is made, among tests that do not disturb each other."""
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf, asyncio.Runner() as runner:
        app = make_app(hf, clock=clock)
        yield SharedApp(hf, Asker(app, runner))
        app.state.close()


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="notes").id


@pytest.fixture
def memory(hf: Holdfast, store: str) -> str:
    return hf.memory_stores.memories.create(store, path="/a.md", content="tabs").id
