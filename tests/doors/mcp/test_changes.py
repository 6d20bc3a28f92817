"""Notices of changes: of which, to which clients, and how many."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from doors.mcp.hosting import LISTED, Fence, Notices, hosted, subscribe, unsubscribe
from mcp import Client
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.doors.mcp.changes import NOTICES, SUBSCRIPTIONS, ChangeHub, Watch
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.resources import HostResources
from holdfast.doors.mcp.stdio import Calls
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

OWNERS = Owners(user="ada", agent="fence", store="Notes")
LTM = "holdfast://longterm/ada"


@asynccontextmanager
async def noticed(
    hf: Holdfast, mode: str, *uris: str, owners: Owners = OWNERS
) -> AsyncGenerator[tuple[Client, Callable[[], Awaitable[list[str]]]]]:
    """Subscribe a client to *uris*; yield it, and a function that returns its notices until now."""
    notices, fence = Notices(), Fence(hf)
    async with (
        hosted(hf, owners, mode, message_handler=notices.receive) as client,
        notices.following(client, fence.uri, *uris),
    ):
        yield client, lambda: fence.passed(notices)


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Notes").id


def uri_of(store: str, path: str = "") -> str:
    return f"holdfast://stores/{store}{path}"


class Writer:
    """Another process that opens the same database, and runs statements on it."""

    CODE = """
import sys
import holdfast
hf = holdfast.open(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
hf.close()
"""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer("ready")

    def _answer(self, expected: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == expected

    def write(self, statement: str) -> None:
        """Run *statement* there."""
        assert self._process.stdin is not None
        print(statement, file=self._process.stdin, flush=True)
        self._answer("done")


@contextmanager
def writer(target: Path) -> Generator[Writer]:
    command = [sys.executable, "-c", Writer.CODE, str(target)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


async def test_a_change_by_another_process_is_noticed(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "holdfast.db"
    with holdfast.open(target) as hf, writer(target) as other:
        store = hf.memory_stores.create(name="Notes").id
        hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
        notices = Notices()
        note = uri_of(store, "/a.md")
        async with (
            hosted(hf, OWNERS, mode, message_handler=notices.receive) as client,
            notices.following(client, note),
        ):
            await asyncio.to_thread(
                other.write,
                f"m = hf.memory_stores.memories.at({store!r}, '/a.md');"
                f"hf.memory_stores.memories.update(m.id, memory_store_id={store!r}, content='x')",
            )
            assert await notices.until(note) == []
            (contents,) = (await client.read_resource(note, cache_mode="bypass")).contents
            assert contents.model_dump()["text"] == "x"

            await asyncio.to_thread(
                other.write,
                f"hf.memory_stores.memories.create({store!r}, path='/b.md', content='x')",
            )
            assert await notices.until(LISTED) == []


async def test_each_kind_of_resource_is_noticed(hf: Holdfast, mode: str, store: str) -> None:
    note = uri_of(store, "/a.md")
    memories = hf.memory_stores.memories
    memory = memories.create(store, path="/a.md", content="tabs")
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None

    async with noticed(hf, mode, uri_of(store), note, LTM) as (_, until_now):
        memories.update(memory.id, memory_store_id=store, content="spaces")
        assert await until_now() == [uri_of(store), note]

        ltm.remember("Ada drinks tea.")
        assert set(await until_now()) == {LTM}


async def test_an_agent_is_notified_of_what_agents_share_and_not_of_what_others_keep(
    hf: Holdfast, mode: str
) -> None:
    notices, mine, other = Notices(), "holdfast://durable/scout", hf.durable("other")
    async with (
        hosted(hf, Owners(user="ada", agent="scout"), mode, message_handler=notices.receive) as it,
        notices.following(it, mine, LTM),
    ):
        ltm = hf.longterm("ada", enabled=True)
        assert ltm is not None
        other.set("target", "fly.io", category="core")
        await it.read_resource(mine)
        ltm.remember("Ada drinks tea.")
        assert await notices.until(LTM) == []

        other.set("target", "fly.io", category="workspace")
        assert set(await notices.until(mine)) <= {LTM}
        other.forget("target")
        assert set(await notices.until(mine)) <= {LTM}


def entity(name: str) -> dict[str, object]:
    return {"entities": [{"name": name, "entityType": "person", "observations": ["writes"]}]}


async def test_the_graph_is_noticed_and_no_other_store(hf: Holdfast, mode: str) -> None:
    graph, owners = (
        "memory://knowledge-graph",
        Owners(agent="fence", store="Graph", profile="graph"),
    )
    async with noticed(hf, mode, graph, owners=owners) as (client, until_now):
        await client.call_tool("create_entities", entity("Ada"))
        assert set(await until_now()) == {LISTED, graph}

        note = hf.memory_stores.create(name="Notes").id
        hf.memory_stores.memories.create(note, path="/a.md", content="tabs")
        assert await until_now() == []


async def test_a_memory_that_appears_moves_or_goes_changes_the_list(
    hf: Holdfast, mode: str, store: str
) -> None:
    memories = hf.memory_stores.memories
    async with noticed(hf, mode) as (_, until_now):
        memory = memories.create(store, path="/a.md", content="tabs")
        assert await until_now() == [LISTED]

        memories.update(memory.id, memory_store_id=store, content="spaces")
        assert await until_now() == []

        memories.update(memory.id, memory_store_id=store, path="/b.md")
        memories.update(memory.id, memory_store_id=store, content="more")
        assert set(await until_now()) == {LISTED}

        memories.delete(memory.id, memory_store_id=store)
        assert await until_now() == [LISTED]


async def test_the_deletion_of_the_store_changes_the_list(
    hf: Holdfast, mode: str, store: str
) -> None:
    async with noticed(hf, mode, uri_of(store)) as (_, until_now):
        hf.memory_stores.delete(store)
        assert await until_now() == [LISTED, uri_of(store)]


async def test_a_note_is_noticed_when_it_appears_and_goes_and_not_for_its_neighbour(
    hf: Holdfast, mode: str, store: str
) -> None:
    note, memories = uri_of(store, "/a.md"), hf.memory_stores.memories
    async with noticed(hf, mode, note) as (_, until_now):
        memories.create(store, path="/b.md", content="tabs")
        assert await until_now() == [LISTED]

        memory = memories.create(store, path="/a.md", content="tabs")
        assert await until_now() == [LISTED, note]

        memories.delete(memory.id, memory_store_id=store)
        assert await until_now() == [LISTED, note]

        memories.create(store, path="/c.md", content="tabs")
        assert await until_now() == [LISTED]


async def test_changes_of_others_are_not_noticed(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "holdfast.db"
    with holdfast.open(target) as hf, holdfast.open(target, workspace="theirs") as theirs:
        store = hf.memory_stores.create(name="Notes").id
        async with noticed(hf, mode, uri_of(store), LTM) as (_, until_now):
            for other in (hf, theirs):
                ltm = other.longterm("bob", enabled=True)
                assert ltm is not None
                ltm.remember("Bob drinks tea.")
                other.durable("scout").set("target", "fly.io", category="core")
                elsewhere = other.memory_stores.create(name="Elsewhere").id
                other.memory_stores.memories.create(elsewhere, path="/a.md", content="tabs")
            ada = theirs.longterm("ada", enabled=True)
            assert ada is not None
            ada.remember("Another Ada drinks tea.")

            assert await until_now() == []


@pytest.mark.parametrize(
    "uri",
    [
        "holdfast://stores/{other}",
        "holdfast://stores/{other}/a.md",
        "holdfast://longterm/bob",
        "holdfast://durable/scout",
        "memory://knowledge-graph",
        "file:///etc/passwd",
    ],
)
async def test_what_may_not_be_read_cannot_be_subscribed_to(
    hf: Holdfast, mode: str, store: str, uri: str
) -> None:
    other = hf.memory_stores.create(name="Other").id
    uri = uri.format(other=other)
    if mode == "legacy":
        async with hosted(hf, OWNERS, mode) as client:
            with pytest.raises(MCPError) as caught:
                await subscribe(client, uri)
            assert caught.value.error.code == -32_002
        return
    async with noticed(hf, mode, uri, uri_of(store)) as (_, until_now):
        hf.memory_stores.memories.create(other, path="/a.md", content="tabs")
        hf.durable("scout").set("target", "fly.io", category="core")
        ltm = hf.longterm("bob", enabled=True)
        assert ltm is not None
        ltm.remember("Bob drinks tea.")

        assert await until_now() == []


async def test_a_client_that_unsubscribes_is_not_notified(hf: Holdfast, store: str) -> None:
    memory = hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
    note = uri_of(store, "/a.md")
    async with noticed(hf, "legacy", note, LTM) as (client, until_now):
        await unsubscribe(client, note)
        await unsubscribe(client, "holdfast://never/subscribed")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store, content="spaces")

        assert await until_now() == []


async def test_a_client_that_disconnects_is_dropped(hf: Holdfast, mode: str) -> None:
    before = _subscriptions()
    async with noticed(hf, mode, LTM):
        assert _subscriptions() == before + 1
    async with asyncio.timeout(60):
        while _subscriptions() != before:
            await asyncio.to_thread(threading.Event().wait, 0.01)


def _subscriptions() -> float:
    return SUBSCRIPTIONS.value()


class Told:
    """Events on demand, in place of a database's feed."""

    def __init__(self) -> None:
        self.receive: Callable[[Event | None], None] = lambda _: None
        self.followed = threading.Semaphore(0)
        self.left = threading.Semaphore(0)

    def __call__(
        self,
        receive: Callable[[Event | None], None],
        opened: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        self.receive = receive
        opened()
        self.followed.release()
        stop.wait(60)
        self.left.release()


class Subscriber:
    """A watch of user ada's items and of the list, and the notices sent to it."""

    def __init__(self, hf: Holdfast) -> None:
        self.sent: asyncio.Queue[ServerEvent] = asyncio.Queue()
        self.reads = asyncio.Event()
        self.reads.set()
        self.permitted = True
        resources = HostResources(HostMemories(hf, Owners(user="ada", store="Notes")))
        self.watch = Watch(
            resources, "default", [LTM], listed=True, send=self._send, allowed=self._allowed
        )

    async def _send(self, event: ServerEvent) -> None:
        await self.reads.wait()
        self.sent.put_nowait(event)

    async def _allowed(self) -> bool:
        return self.permitted

    async def next(self) -> ServerEvent:
        async with asyncio.timeout(60):
            return await self.sent.get()


@asynccontextmanager
async def hub_of(source: Told, *, sending: float = 60.0) -> AsyncGenerator[ChangeHub]:
    calls = Calls()
    hub = ChangeHub(source, calls.run, sending=sending)
    try:
        yield hub
    finally:
        hub.close()
        assert calls.finish(60)


def change(owner: str = "ada") -> Event:
    return Event(
        type="longterm.stored",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        workspace="default",
        owner=owner,
    )


async def dropped(hub: ChangeHub, watch: Watch) -> None:
    """Return once *hub* has dropped *watch*."""
    async with asyncio.timeout(60):
        while hub.holds(watch):
            await asyncio.to_thread(threading.Event().wait, 0.01)


async def test_several_changes_are_one_notice(hf: Holdfast) -> None:
    source, subscriber, before = Told(), Subscriber(hf), NOTICES.value()
    async with hub_of(source) as hub:
        await hub.add(subscriber.watch)
        for _ in range(50):
            source.receive(change())
        assert await subscriber.next() == ResourceUpdated(uri=LTM)
        source.receive(change())
        assert await subscriber.next() == ResourceUpdated(uri=LTM)
        assert subscriber.sent.empty()
    assert NOTICES.value() == before + 2


async def test_a_client_that_does_not_read_is_dropped_and_holds_up_no_other(hf: Holdfast) -> None:
    source, stuck, other = Told(), Subscriber(hf), Subscriber(hf)
    stuck.reads.clear()
    async with hub_of(source) as hub:
        await hub.add(stuck.watch)
        await hub.add(other.watch)
        for _ in range(3):
            source.receive(change())
            assert await other.next() == ResourceUpdated(uri=LTM)
        assert hub.holds(stuck.watch)

    async with hub_of(source, sending=0.01) as hub:
        await hub.add(stuck.watch)
        await hub.add(other.watch)
        source.receive(change())
        await dropped(hub, stuck.watch)
        assert hub.holds(other.watch)


async def test_a_client_that_may_no_longer_read_is_dropped(hf: Holdfast) -> None:
    source, subscriber = Told(), Subscriber(hf)
    async with hub_of(source) as hub:
        await hub.add(subscriber.watch)
        subscriber.permitted = False
        source.receive(change())
        await dropped(hub, subscriber.watch)
        assert subscriber.sent.empty()


async def test_missed_events_may_have_changed_everything(hf: Holdfast) -> None:
    source, subscriber = Told(), Subscriber(hf)
    async with hub_of(source) as hub:
        await hub.add(subscriber.watch)
        source.receive(None)
        assert await subscriber.next() == ResourcesListChanged()
        assert await subscriber.next() == ResourceUpdated(uri=LTM)


async def test_changes_are_followed_while_there_is_a_subscriber(hf: Holdfast) -> None:
    source, one, two = Told(), Subscriber(hf), Subscriber(hf)
    async with hub_of(source) as hub:
        for _ in range(2):
            await hub.add(one.watch)
            await hub.add(two.watch)
            assert source.followed.acquire(timeout=60)
            hub.drop(one.watch)
            source.receive(change())
            assert await two.next() == ResourceUpdated(uri=LTM)
            assert not source.left.acquire(blocking=False)

            hub.drop(two.watch)
            assert await asyncio.to_thread(source.left.acquire, timeout=60)
            assert not source.followed.acquire(blocking=False)
