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
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Store
from holdfast.testing.shared import Server, new_workspace

DROPPED = ("host", "connection", "content-length", "transfer-encoding")


class Forgetful(ThreadingHTTPServer):
    """Hands every request on to *url*, and forgets the answer to the next `forgets` writes."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.client, self.forgets = httpx.Client(base_url=url), 0

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

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class's names

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
