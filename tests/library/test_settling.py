"""A write whose answer is lost on the way is settled with the server that did it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import httpx
import pytest

import holdfast
from holdfast.ground.errors import PathTaken, PreconditionFailed, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Store
from holdfast.testing.serving import Server, new_workspace

DROPPED = ("host", "connection", "content-length", "transfer-encoding")


class Forgetful(ThreadingHTTPServer):
    """Hands every request on to *url*, and forgets the answer to the next `forgets` writes."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.client, self.forgets = httpx.Client(base_url=url, timeout=60), 0

    def server_close(self) -> None:
        super().server_close()
        self.client.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        proxy = cast("Forgetful", self.server)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in DROPPED}
        answer = proxy.client.request(self.command, self.path, content=body, headers=headers)
        if self.command != "GET" and proxy.forgets:
            proxy.forgets -= 1
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name not in DROPPED:
                self.send_header(name, value)
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


@pytest.fixture
def proxy(server: Server) -> Iterator[Forgetful]:
    with Forgetful(server.url) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()


@pytest.fixture
def forgetful(proxy: Forgetful) -> Iterator[Holdfast]:
    url = f"http://127.0.0.1:{proxy.server_port}"
    with holdfast.open(url, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def store(forgetful: Holdfast) -> Store:
    return forgetful.memory_stores.create(name="Notes")


def operations(hf: Holdfast, store: Store) -> list[str]:
    return [each.operation for each in hf.memory_stores.memory_versions.list(store.id).all()]


def test_a_create_is_done_once_and_found(
    proxy: Forgetful, forgetful: Holdfast, store: Store
) -> None:
    proxy.forgets = 1

    memory = forgetful.memory_stores.memories.create(store.id, path="/a.md", content="tabs")

    assert memory.path == "/a.md"
    assert memory.content is None
    assert operations(forgetful, store) == ["created"]


def test_a_create_where_another_sits_is_refused(
    proxy: Forgetful, forgetful: Holdfast, store: Store
) -> None:
    memories = forgetful.memory_stores.memories
    memories.create(store.id, path="/a.md", content="spaces")
    proxy.forgets = 1

    with pytest.raises(PathTaken):
        memories.create(store.id, path="/a.md", content="tabs")


def test_an_update_under_a_precondition_is_done_once(
    proxy: Forgetful, forgetful: Holdfast, store: Store
) -> None:
    memories = forgetful.memory_stores.memories
    memory = memories.create(store.id, path="/a.md", content="tabs")
    seen = {"type": "content_sha256", "content_sha256": memory.content_sha256}
    proxy.forgets = 1

    memories.update(memory.id, memory_store_id=store.id, content="spaces", precondition=seen)

    assert operations(forgetful, store) == ["modified", "created"]
    with pytest.raises(PreconditionFailed):
        memories.update(memory.id, memory_store_id=store.id, content="both", precondition=seen)


def test_a_delete_is_done_once(proxy: Forgetful, forgetful: Holdfast, store: Store) -> None:
    memories = forgetful.memory_stores.memories
    memory = memories.create(store.id, path="/a.md", content="tabs")
    proxy.forgets = 1

    deleted = memories.delete(memory.id, memory_store_id=store.id)

    assert (deleted.id, deleted.type) == (memory.id, "memory_deleted")
    assert operations(forgetful, store) == ["deleted", "created"]


def test_edits_are_applied_once_however_many_answers_are_lost(
    proxy: Forgetful, forgetful: Holdfast, store: Store
) -> None:
    memories = forgetful.memory_stores.memories
    memories.create(store.id, path="/a.md", content="one\n")
    proxy.forgets = 3

    append = Save(path="/a.md", content="", base_sha256="0" * 64, appended="two\n")
    (applied,) = memories.apply(store.id, [append], edit_id="edit_1")

    assert applied.changed
    assert operations(forgetful, store) == ["modified", "created"]
    held = memories.at(store.id, "/a.md")
    assert held is not None
    assert held.content == "one\ntwo\n"


def test_what_is_lost_twice_is_unknown(proxy: Forgetful, forgetful: Holdfast, store: Store) -> None:
    proxy.forgets = 2

    with pytest.raises(Unavailable) as unknown:
        forgetful.memory_stores.memories.create(store.id, path="/a.md", content="tabs")

    assert (unknown.value.reason, unknown.value.written) == ("lost", None)


CORE = {"category": "core"}


def ops(durable: DurableMemory) -> list[str]:
    return [change.op for change in durable.history()]


def test_a_durable_entry_is_written_once(proxy: Forgetful, forgetful: Holdfast) -> None:
    durable = forgetful.durable("agent_7")
    proxy.forgets = 2

    stored = durable.set("k", "c", category="core")

    assert stored.outcome == "created"
    assert ops(durable) == ["create"]


def test_many_durable_entries_are_written_once(proxy: Forgetful, forgetful: Holdfast) -> None:
    durable = forgetful.durable("agent_7")
    items = [{"key": "k", "content": "c", **CORE}, {"key": "", "content": "c", **CORE}]
    proxy.forgets = 1

    many = durable.set_many(items, on_error="skip")

    assert [each.outcome for each in many.stored] == ["created"]
    assert [each.index for each in many.refused] == [1]
    assert ops(durable) == ["create"]


def test_a_durable_key_is_forgotten_once(proxy: Forgetful, forgetful: Holdfast) -> None:
    durable = forgetful.durable("agent_7")
    durable.set("k", "c", category="core")
    proxy.forgets = 1

    assert durable.forget("k") is True


def test_a_run_is_opened_and_ended_once(proxy: Forgetful, forgetful: Holdfast) -> None:
    durable = forgetful.durable("agent_7")
    proxy.forgets = 1
    run = durable.run("run_1")
    run.set("k", "c", category="conversation")
    proxy.forgets = 1

    ended = run.end()

    assert (ended.ended, ended.removed) == (True, 1)


def test_a_restored_durable_entry_whose_answer_is_lost_is_restored_once(
    proxy: Forgetful, forgetful: Holdfast
) -> None:
    durable = forgetful.durable("agent_7")
    first = durable.set("k", "c", category="core")
    durable.set("k", "d", category="core")
    proxy.forgets = 1

    stored = durable.restore("k", first.seq)

    assert stored.content == "c"
    assert len(durable.history("k", op="restore").data) == 1
