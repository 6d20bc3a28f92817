"""A handle on a server, against a server that says what the test wants it to say."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from holdfast.ground import errors
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError, InvalidInput, NotFound, PathTaken, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor
from holdfast.library.remote import RemoteHoldfast
from holdfast.library.remote_errors import from_answer, rebuilt
from holdfast.library.remote_events import frames
from holdfast.library.wire_client import Connections, WireClient

JSON = dict[str, Any]
AT = "2026-11-21T10:00:00.123456Z"
STORE: JSON = {
    "type": "memory_store",
    "id": "memstore_1",
    "name": "Notes",
    "description": "",
    "metadata": {},
    "created_at": AT,
    "updated_at": AT,
    "archived_at": None,
}
MEMORY: JSON = {
    "type": "memory",
    "id": "mem_1",
    "memory_store_id": "memstore_1",
    "memory_version_id": "memver_1",
    "path": "/a.md",
    "content": "tabs",
    "content_sha256": "0" * 64,
    "content_size_bytes": 4,
    "created_at": AT,
    "updated_at": AT,
}
VERSION: JSON = {
    "type": "memory_version",
    "id": "memver_1",
    "memory_store_id": "memstore_1",
    "memory_id": "mem_1",
    "operation": "created",
    "path": "/a.md",
    "content": "tabs",
    "content_size_bytes": 4,
    "content_sha256": "0" * 64,
    "created_at": AT,
    "created_by": {"type": "api_actor", "api_key_id": "apikey_1"},
    "redacted_at": None,
    "redacted_by": None,
}
ME: JSON = {
    "type": "identity",
    "actor": {"type": "api_actor", "api_key_id": "apikey_1"},
    "scope": "write",
    "workspace": "w1",
    "agent": None,
    "user": None,
}


@dataclass
class Answer:
    """What the server says next; a status of 0 hangs up without a word."""

    body: object = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> object:
        return json.loads(self.body)


HANG_UP = Answer(status=0)


class Scripted(ThreadingHTTPServer):
    """Gives the answers it was handed, one after the other, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []

    def says(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast("Scripted", self.server)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.asked.append(Asked(self.command, self.path, headers, body))
        answer = server.answers.pop(0)
        if answer.status == 0:
            self.close_connection = True
            return
        content = (
            answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        )
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""


def refusal(error: HoldfastError, status: int) -> Answer:
    """Return the answer of a server that met *error* on a compat route."""
    facts = {
        name: to_rfc3339(value) if isinstance(value, datetime) else value
        for name, value in error.carried().items()
    }
    told = {"class": type(error).__name__, "next": error.next, "facts": facts}
    body = {"type": "error", "error": {"type": "x_error", "message": str(error)}}
    return Answer(body, status, {"holdfast-error": json.dumps(told)})


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def hf(server: Scripted, pauses: list[float]) -> Iterator[RemoteHoldfast]:
    connections = Connections(server.url)
    client = WireClient(connections, api_key="hf_1", workspace="default", pause=pauses.append)
    with RemoteHoldfast(client, on_close=connections.close) as hf:
        yield hf


class TestWhatIsSent:
    def test_what_is_left_out_is_not_sent_and_none_is_null(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(STORE))

        hf.memory_stores.create(name="Notes", description=None)

        assert server.asked[0].json == {"name": "Notes", "description": None}

    def test_a_credential_goes_with_every_request(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(STORE))

        hf.memory_stores.retrieve("memstore_1")

        assert server.asked[0].headers["x-api-key"] == "hf_1"
        assert "anthropic-workspace-id" not in server.asked[0].headers

    def test_a_workspace_that_is_not_the_default_is_named(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(STORE))

        hf.acting(workspace="w2").memory_stores.retrieve("memstore_1")

        assert server.asked[0].headers["anthropic-workspace-id"] == "w2"

    @pytest.mark.parametrize(
        ("id", "segment"),
        [("a/b", "a%2Fb"), ("a b+c", "a%20b%2Bc"), ("..", "%2E%2E"), ("é", "%C3%A9")],
    )
    def test_an_id_is_one_segment_whatever_is_in_it(
        self, hf: RemoteHoldfast, server: Scripted, id: str, segment: str
    ) -> None:
        server.says(Answer(STORE))

        hf.memory_stores.retrieve(id)

        assert server.asked[0].target == f"/v1/memory_stores/{segment}"

    def test_filters_become_a_query(self, hf: RemoteHoldfast, server: Scripted) -> None:
        server.says(Answer({"data": [], "next_page": None}))

        hf.memory_stores.list(
            limit=5, include_archived=True, created_at_gte=datetime(2026, 1, 1, tzinfo=UTC)
        )

        assert server.asked[0].query == {
            "limit": "5",
            "include_archived": "true",
            "created_at[gte]": "2026-01-01T00:00:00+00:00",
        }

    @pytest.mark.parametrize("content", ["\ud800", b"bytes", 1.0 / 1e-320, {1: "x"}, object()])
    def test_what_json_cannot_carry_is_refused_with_its_field(
        self, hf: RemoteHoldfast, server: Scripted, content: Any
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content=content)

        assert refused.value.field == "content"
        assert server.asked == []

    def test_text_that_is_none_is_refused_in_a_query(self, hf: RemoteHoldfast) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.memory_stores.memories.list("memstore_1", path_prefix="/\ud800/")

        assert refused.value.field == "path_prefix"


class TestWhatComesBack:
    def test_a_record_is_the_one_the_server_sent(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(VERSION))

        version = hf.memory_stores.memory_versions.retrieve("memver_1", memory_store_id="s")

        assert version.created_by == Actor.api("apikey_1")
        assert version.created_at == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)

    def test_a_page_walks_on(self, hf: RemoteHoldfast, server: Scripted) -> None:
        prefix = {"type": "memory_prefix", "path": "/b/"}
        server.says(
            Answer({"data": [MEMORY], "next_page": "page_2"}),
            Answer({"data": [prefix], "next_page": None}),
        )

        page = hf.memory_stores.memories.list("memstore_1", depth=1, limit=1)
        paths = [each.path for each in page.all()]

        assert paths == ["/a.md", "/b/"]
        assert server.asked[1].query == {"depth": "1", "limit": "1", "page": "page_2"}

    def test_nothing_at_a_path_is_none(self, hf: RemoteHoldfast, server: Scripted) -> None:
        server.says(refusal(NotFound("memory", "/a.md"), 404))

        assert hf.memory_stores.memories.at("memstore_1", "/a.md") is None

    def test_a_store_that_is_not_there_is_not_none(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(refusal(NotFound("memory store", "memstore_1"), 404))

        with pytest.raises(NotFound):
            hf.memory_stores.memories.at("memstore_1", "/a.md")

    def test_an_answer_that_is_not_json_is_not_of_a_server(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(b"<html>sign in here</html>"))

        with pytest.raises(Unavailable) as answered:
            hf.memory_stores.create(name="Notes")

        assert answered.value.reason == "io"
        assert answered.value.written is None

    def test_a_record_of_another_shape_is_a_fault(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer({"type": "memory_store"}))

        with pytest.raises(errors.EngineFault):
            hf.memory_stores.retrieve("memstore_1")

    def test_who_it_is_is_asked_once(self, hf: RemoteHoldfast, server: Scripted) -> None:
        server.says(Answer(ME))

        assert (hf.workspace, hf.actor) == ("w1", Actor.api("apikey_1"))
        assert len(server.asked) == 1


SAMPLES: list[HoldfastError] = [
    InvalidInput("path", "must start with a slash", limit=3, given="x" * 99, index=1, next="Do."),
    errors.Refused("No.", next="Do."),
    errors.StoreArchived("memstore_1"),
    errors.StoreFull("memstore_1", 10_000),
    errors.HeadVersion("memver_1", "mem_1"),
    errors.Unsupported("backup", next="Do."),
    errors.TooLarge(1_048_576),
    errors.ToolRefused("Error: no such file"),
    errors.NotAuthenticated(),
    errors.NotPermitted("Too small.", needed="admin", next="Do."),
    errors.ScopeDenied("Another's.", needed="admin"),
    NotFound("memory", "mem_1"),
    errors.Conflict("At version 2.", reason="version", next="Do."),
    PathTaken("mem_1", "/é\u2028.md"),
    errors.PreconditionFailed("mem_1", expected=None, current=None),
    errors.ContentGone("memver_1", datetime(2026, 1, 1, 2, 3, 4, 567890, tzinfo=UTC)),
    errors.CursorExpired("page_1"),
    errors.ToolNameTaken("memory", "run.list", "files.view"),
    Unavailable("Busy.", reason="busy", written=None, retry_after=0.25),
    errors.Corrupt("/data/h.db", "page 3"),
    errors.TooNew(9, 3),
    errors.EngineFault("A bug.", statement="get_store"),
    errors.MissingExtra("postgres"),
]


class TestErrors:
    @pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("joined", [True, False], ids=["compat", "own"])
    def test_an_error_comes_back_as_the_same_class_with_the_same_facts(
        self, error: HoldfastError, *, joined: bool
    ) -> None:
        header = refusal(error, 400).headers["holdfast-error"]

        again = rebuilt(header, str(error) if joined else error.message)

        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)

    def test_every_class_has_a_sample(self) -> None:
        def tree(root: type[HoldfastError]) -> set[type[HoldfastError]]:
            return {root}.union(*(tree(each) for each in root.__subclasses__()))

        assert tree(HoldfastError) - {type(each) for each in SAMPLES} == {HoldfastError}

    def test_a_class_that_is_not_known_is_told_by_the_body(self) -> None:
        headers = {"holdfast-error": '{"class": "FromTheFuture", "facts": {}}'}
        body = b'{"error": {"type": "conflict_error", "message": "No."}}'

        error = from_answer(409, headers, body, writes=True)

        assert type(error) is errors.Conflict
        assert error.message == "No."

    @pytest.mark.parametrize(
        ("status", "kind", "expected"),
        [
            (409, "memory_path_conflict_error", PathTaken),
            (409, "memory_precondition_failed_error", errors.PreconditionFailed),
            (404, "not_found_error", NotFound),
            (400, "invalid_request_error", InvalidInput),
            (405, "invalid_request_error", errors.Unsupported),
            (403, "permission_error", errors.NotPermitted),
            (401, "authentication_error", errors.NotAuthenticated),
            (413, "request_too_large", errors.TooLarge),
            (500, "api_error", errors.EngineFault),
            (503, "overloaded_error", Unavailable),
            (418, "", errors.EngineFault),
        ],
    )
    def test_without_the_header_type_and_status_tell(
        self, status: int, kind: str, expected: type[HoldfastError]
    ) -> None:
        body = {"error": {"type": kind, "message": "So.", "conflicting_path": "/a"}}

        error = from_answer(status, {}, msgspec.json.encode(body), writes=True)

        assert type(error) is expected
        assert error.carried().get("conflicting_path") in {None, "/a"}

    def test_a_gateway_without_a_server_behind_is_unavailable(self) -> None:
        error = from_answer(502, {}, b"<html>Bad Gateway</html>", writes=True)

        assert isinstance(error, Unavailable)
        assert (error.reason, error.written) == ("lost", None)

    def test_facts_that_the_class_does_not_know_are_not_taken(self) -> None:
        error = rebuilt('{"class": "StoreArchived", "facts": {"store_id": "s", "args": []}}', "So.")

        assert error is not None
        assert error.carried() == {"store_id": "s"}
        assert error.args == ("So.",)


class TestWhenItIsNotThere:
    def test_a_read_is_asked_again_while_the_server_is_busy(
        self, hf: RemoteHoldfast, server: Scripted, pauses: list[float]
    ) -> None:
        busy = Unavailable("Busy.", reason="busy", retry_after=0.5)
        server.says(refusal(busy, 503), HANG_UP, Answer(STORE))

        store = hf.memory_stores.retrieve("memstore_1")

        assert store.name == "Notes"
        assert pauses == [0.5, 0.2]

    def test_a_write_that_was_not_done_is_asked_again(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        busy = Unavailable("Busy.", reason="busy", written=False)
        server.says(refusal(busy, 503), Answer(STORE))

        assert hf.memory_stores.create(name="Notes").id == "memstore_1"

    def test_a_write_that_may_have_been_done_is_not(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(HANG_UP)

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.create(name="Notes")

        assert (unknown.value.reason, unknown.value.written) == ("lost", None)
        assert len(server.asked) == 1

    def test_a_write_that_twice_is_the_same_as_once_is(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(HANG_UP, Answer(STORE))

        assert hf.memory_stores.archive("memstore_1").id == "memstore_1"

    def test_what_once_was_unknown_stays_so(self, hf: RemoteHoldfast, server: Scripted) -> None:
        full = Unavailable("Full.", reason="full", written=False)
        server.says(HANG_UP, refusal(full, 503))

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.archive("memstore_1")

        assert (unknown.value.reason, unknown.value.written) == ("full", None)

    def test_what_waiting_does_not_heal_is_not_asked_again(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(refusal(Unavailable("Full.", reason="full"), 503))

        with pytest.raises(Unavailable):
            hf.memory_stores.retrieve("memstore_1")

        assert len(server.asked) == 1

    def test_no_server_is_unavailable_and_nothing_was_written(self, pauses: list[float]) -> None:
        with Scripted() as gone:
            url = gone.url
        client = WireClient(
            Connections(url), api_key=None, workspace="default", pause=pauses.append
        )
        with (
            RemoteHoldfast(client, on_close=client.close) as hf,
            pytest.raises(Unavailable) as lost,
        ):
            hf.memory_stores.create(name="Notes")

        assert (lost.value.reason, lost.value.written) == ("lost", False)
        assert lost.value.__cause__ is not None
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6]

    def test_a_closed_handle_says_so(self, hf: RemoteHoldfast) -> None:
        hf.close()

        with pytest.raises(Unavailable) as closed:
            hf.memory_stores.list()

        assert closed.value.reason == "closed"


class TestSettling:
    def test_a_create_whose_answer_was_lost_is_found_at_its_path(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        server.says(HANG_UP, taken, Answer(MEMORY), Answer(VERSION), Answer(ME), Answer(MEMORY))

        memory = hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

        assert memory.id == "mem_1"

    @pytest.mark.parametrize("other", [{"content": "spaces"}, {"path": "/a.md/b"}])
    def test_another_memory_at_the_path_is_still_in_the_way(
        self, hf: RemoteHoldfast, server: Scripted, other: JSON
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        server.says(HANG_UP, taken, Answer(MEMORY | other), Answer(VERSION))

        with pytest.raises(PathTaken):
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

    def test_a_memory_of_another_actor_is_not_ours(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        theirs = VERSION | {"created_by": {"type": "user_actor", "user_id": "user_ada"}}
        server.says(HANG_UP, taken, Answer(MEMORY), Answer(theirs), Answer(ME))

        with pytest.raises(PathTaken):
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

    def test_an_update_under_a_precondition_is_asked_again(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(HANG_UP, Answer(MEMORY))

        memory = hf.memory_stores.memories.update(
            "mem_1",
            memory_store_id="memstore_1",
            content="tabs",
            precondition={"type": "content_sha256", "content_sha256": "0" * 64},
        )

        assert memory.content == "tabs"

    def test_an_update_without_one_is_not(self, hf: RemoteHoldfast, server: Scripted) -> None:
        server.says(HANG_UP)

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.memories.update("mem_1", memory_store_id="s", content="tabs")

        assert unknown.value.written is None

    def test_what_is_gone_after_a_lost_answer_was_deleted(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(HANG_UP, refusal(NotFound("memory", "mem_1"), 404))

        deleted = hf.memory_stores.memories.delete("mem_1", memory_store_id="memstore_1")

        assert (deleted.id, deleted.type) == ("mem_1", "memory_deleted")


class TestForSession:
    TOKEN: JSON = {  # noqa: RUF012 - never changed
        "type": "session_token",
        "id": "sestok_1",
        "session_id": "sesn_1",
        "token": "hfs_1",
        "created_at": AT,
        "expires_at": None,
    }

    def test_it_acts_by_a_token_of_its_own_and_revokes_it(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(self.TOKEN), Answer(STORE), Answer(self.TOKEN))

        with hf.for_session("sesn_1") as narrowed:
            narrowed.memory_stores.retrieve("memstore_1")

        keys = [(each.method, each.headers["x-api-key"]) for each in server.asked]
        assert keys == [("POST", "hf_1"), ("GET", "hfs_1"), ("DELETE", "hf_1")]

    def test_closing_the_handle_closes_those_made_of_it(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(self.TOKEN), Answer(self.TOKEN))
        narrowed = hf.for_session("sesn_1")

        hf.close()

        assert server.asked[-1].target == "/api/sessions/sesn_1/tokens/sestok_1"
        with pytest.raises(Unavailable):
            narrowed.memory_stores.retrieve("memstore_1")

    def test_closing_does_not_fail_for_a_session_that_ended(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(Answer(self.TOKEN), refusal(NotFound("session", "sesn_1"), 404))

        hf.for_session("sesn_1").close()

        assert len(server.asked) == 2


class TestEvents:
    def test_a_broken_stream_goes_on_after_the_last_event(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        def message(id: str) -> bytes:
            data = {"type": "store.created", "at": AT, "workspace": "w1", "actor": ME["actor"]}
            return f"id: {id}\nevent: store.created\ndata: {json.dumps(data)}\n\n".encode()

        live = {"content-type": "text/event-stream"}
        server.says(
            Answer(b": hello\n\n" + message("c1") + b"id: c2\n", 200, live),
            Answer(message("c2"), 200, live),
            Answer({"error": {"type": "authentication_error", "message": "No."}}, 401),
        )
        heard: list[Event] = []
        both = threading.Event()

        def listen(event: Event) -> None:
            heard.append(event)
            if len(heard) == 2:
                both.set()

        hf.events.subscribe(listen, ["store.created"])

        assert both.wait(30)
        assert [each.cursor for each in heard] == ["c1", "c2"]
        assert heard[0].actor == Actor.api("apikey_1")
        assert server.asked[0].query == {"types": "store.created"}
        assert server.asked[1].headers["last-event-id"] == "c1"

    def test_a_stream_that_is_refused_raises_where_it_was_asked_for(
        self, hf: RemoteHoldfast, server: Scripted
    ) -> None:
        server.says(refusal(errors.NotAuthenticated(), 401))

        with pytest.raises(errors.NotAuthenticated):
            hf.events.subscribe(lambda _: None)

        assert not hf.events.heard

    def test_lines_of_data_are_joined_and_a_cut_message_is_left_out(self) -> None:
        lines = ["id: 1", "data: {", "data: }", "", ": comment", "", "id: 2", "data: {}"]

        assert [(each.id, each.data) for each in frames(lines)] == [("1", "{\n}")]


class TestOpening:
    @pytest.mark.parametrize("url", ["http://", "https:///x", "http://h/?a=b", "http://h:port"])
    def test_an_address_of_no_server_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            Connections(url)

        assert refused.value.field == "target"

    def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
        self, server: Scripted
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            WireClient(Connections(server.url), api_key="hf_\nsecret", workspace="default")

        assert "secret" not in str(refused.value)

    def test_without_the_extra_the_error_names_it(self) -> None:
        code = (
            "import sys; sys.modules['httpx'] = None\n"
            "import holdfast\n"
            "try: holdfast.open('http://127.0.0.1:1')\n"
            "except ImportError as error: print(type(error).__name__, error)"
        )

        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout

        assert said.startswith("MissingExtra")
        assert "holdfast[remote]" in said

    @pytest.mark.parametrize("feature", ["verify", "scrub", "doctor"])
    def test_what_only_the_database_s_place_can_do_is_unsupported(
        self, hf: RemoteHoldfast, feature: str
    ) -> None:
        with pytest.raises(errors.Unsupported):
            getattr(hf, feature)()

    def test_there_is_no_engine(self, hf: RemoteHoldfast) -> None:
        assert not hasattr(hf, "engine")
