"""`holdfast mcp` as a process: its start, its end, its options, and hostile input."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from doors.mcp.hosting import Notices, done
from doors.mcp.process import COMMAND, HostProcess, parameters, started
from mcp import Client

import holdfast
from holdfast.doors.cli.main import main
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

STANDARD = ["ltm_recall", "ltm_remember", "ltm_forget", "memory"]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "holdfast.db")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    home = tmp_path_factory.mktemp("home")
    with started(home, ["--db", str(home / "holdfast.db")], command=COMMAND) as host:
        yield host
        assert host.end() == 0


@pytest.fixture
def host(shared: HostProcess) -> HostProcess:
    """Return a process that many tests share, as a host of one process after the other."""
    assert pong(shared)
    return shared


class Ran(NamedTuple):
    """What a command line ended with."""

    code: int
    out: str
    err: str


@pytest.fixture
def line(
    target: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Run `holdfast mcp` with arguments that serve nothing, in this process."""
    for name in ("HOLDFAST_DB", "HOLDFAST_API_KEY", "HOLDFAST_LTM_ENABLED"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ran:
        code = main(["mcp", "--db", target, *arguments])
        shown = capfd.readouterr()
        return Ran(code, shown.out, shown.err)

    return run


def listed(host: HostProcess) -> list[str]:
    return [each["name"] for each in host.request("tools/list")["result"]["tools"]]


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    return block["text"]


async def test_with_no_flags_a_host_recalls_after_a_restart_what_another_remembered(
    tmp_path: Path, mode: str
) -> None:
    async with Client(parameters(tmp_path), mode=mode) as client:
        assert [each.name for each in (await client.list_tools()).tools] == STANDARD
        assert (await done(client, "ltm_remember", text="Ada drinks tea."))["stored"]
    async with Client(
        parameters(tmp_path), mode="auto" if mode == "legacy" else "legacy"
    ) as client:
        (found,) = (await done(client, "ltm_recall", query="tea"))["results"]
        assert found["text"] == "Ada drinks tea."


def test_the_start_line_names_owners_store_and_database(tmp_path: Path, target: str) -> None:
    with started(tmp_path, ["--db", target, "--agent", "scout"]) as host:
        assert host.line.startswith(
            'holdfast mcp: remembers for ada, durable memory of scout, notes in "Notes" (new), '
        )
        assert target in host.line
        host.call("memory", command="create", path="/memories/a.md", file_text="tabs")
    with started(tmp_path, ["--db", target, "--user", "eve", "--read-only"]) as host:
        assert 'remembers for eve, notes in "Notes", read only' in host.line
    with started(tmp_path, ["--db", target], HOLDFAST_LTM_ENABLED="0") as host:
        assert "long-term memory is disabled by HOLDFAST_LTM_ENABLED=0" in host.line
        assert listed(host) == ["memory"]


def test_the_end_of_standard_input_ends_the_process_with_0(tmp_path: Path, target: str) -> None:
    with started(tmp_path, ["--db", target]) as host:
        for number in range(5):
            host.begin_call("ltm_remember", text=f"Ada has read book {number}.")
        assert host.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("shaken", [True, False])
def test_a_signal_ends_the_process_with_0(
    tmp_path: Path, target: str, number: signal.Signals, *, shaken: bool
) -> None:
    with started(tmp_path, ["--db", target], shaken=shaken) as host:
        if not shaken:
            assert host.request("ping")
        host.process.send_signal(number)
        assert host.process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve"], 2, "serve"),
        (["--user", "a\nb"], 2, "--user"),
        (["--user", ""], 2, "--user"),
        (["--agent", "a" * 300], 2, "--agent"),
        (["--profile", "everything"], 2, "--profile"),
        (["--store", "memstore_none"], 1, "memstore_none"),
        (["--store", "Missing", "--read-only"], 1, "Missing"),
        (["--store", "Twice"], 1, "Twice"),
        (["--import", "a.jsonl"], 2, "--profile graph"),
        (["--profile", "graph", "--import", "a", "--export", "b"], 2, "one of"),
        (["--profile", "graph", "--import", "a", "--read-only"], 2, "--read-only"),
        (["--profile", "graph", "--import", "missing.jsonl"], 1, "missing.jsonl"),
    ],
)
def test_what_cannot_be_served_ends_the_process(
    line: Callable[..., Ran], target: str, arguments: list[str], code: int, words: str
) -> None:
    with holdfast.open(target) as hf:
        hf.memory_stores.create(name="Twice")
        hf.memory_stores.create(name="Twice")

    ran = line(*arguments)

    assert ran.code == code, ran.err
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_without_the_extra_the_command_names_how_to_install_it(
    line: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("holdfast.doors.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "holdfast.doors.cli.mcp", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)

    ran = line()

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "pip install 'holdfast[mcp]'" in ran.err


def test_read_only_lists_what_reads(tmp_path: Path, target: str) -> None:
    with started(tmp_path, ["--db", target, "--read-only", "--agent", "scout"]) as host:
        assert listed(host) == ["ltm_recall", "memory_recall", "memory_list", "memory"]
        id = host.begin_call("ltm_remember", text="Ada drinks tea.")
        assert host.answer(id)["error"]["code"] == -32_602


GRAPH = [
    '{"type":"entity","name":"Ada","entityType":"person","observations":["writes"]}',
    '{"type":"entity","name":"Eve","entityType":"person","observations":[]}',
    '{"type":"relation","from":"Ada","to":"Eve","relationType":"knows"}',
]


def test_an_export_of_an_imported_graph_is_the_same(
    line: Callable[..., Ran], tmp_path: Path
) -> None:
    given, made = tmp_path / "memory.jsonl", tmp_path / "export.jsonl"
    given.write_text("\n".join([*GRAPH, "garbage"]))

    imported = line(*GRAPHS, "--import", str(given))
    assert imported.code == 0, imported.err
    counts = json.loads(imported.out)
    assert (counts["entities"], counts["observations"], counts["relations"]) == (2, 1, 1)
    assert [each["line"] for each in counts["skipped"]] == [4]
    again = json.loads(line(*GRAPHS, "--import", str(given)).out)
    assert (again["entities"], again["observations"], again["relations"]) == (0, 0, 0)

    exported = line(*GRAPHS, "--export", str(made))
    assert exported.code == 0, exported.err
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    assert lines == [json.loads(line) for line in GRAPH]


def test_the_progress_of_a_large_import_is_on_standard_error(
    line: Callable[..., Ran], tmp_path: Path
) -> None:
    given = tmp_path / "memory.jsonl"
    entity = {"type": "entity", "entityType": "person", "observations": ["writes"]}
    given.write_text("\n".join(json.dumps({**entity, "name": f"{n}"}) for n in range(1_100)))

    ran = line(*GRAPHS, "--import", str(given))

    assert json.loads(ran.out)["entities"] == 1_100
    assert "500 of 1,100 entities" in ran.err


GRAPHS = ("--profile", "graph")


def test_the_reference_servers_file_is_imported_once(tmp_path: Path, target: str) -> None:
    given = tmp_path / "memory.jsonl"
    given.write_text("\n".join(GRAPH))
    graph = ["--db", target, "--profile", "graph"]

    with started(tmp_path, graph, MEMORY_FILE_PATH=str(given)) as host:
        assert f"imported {given}" in host.line
        assert len(host.call("read_graph")["structuredContent"]["entities"]) == 2
        host.call("delete_entities", entityNames=["Eve"])
    with started(tmp_path, graph, MEMORY_FILE_PATH=str(given)) as host:
        assert "imported" not in host.line
        assert len(host.call("read_graph")["structuredContent"]["entities"]) == 1
    assert given.read_text() == "\n".join(GRAPH)


async def test_a_servers_url_makes_the_process_a_thin_client(
    tmp_path: Path, hf: Holdfast, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    key = str(hf.keys.create("k", scope="write").secret)
    notices = Notices()
    with serving(hf, clock=SystemClock()) as url:
        started = parameters(tmp_path, "--db", url, "--api-key", key, "--profile", "full")
        async with Client(started, mode=mode, message_handler=notices.receive) as client:
            await done(client, "ltm_remember", text="Ada drinks tea.")
            await client.call_tool(
                "memory", {"command": "create", "path": "/memories/a.md", "file_text": "tabs"}
            )
            assert (await done(client, "memory_search", query="tabs"))["count"] == 1
            (store,) = hf.memory_stores.list().data
            note = f"holdfast://stores/{store.id}/a.md"
            async with notices.following(client, note):
                memory = hf.memory_stores.memories.at(store.id, "/a.md")
                assert memory is not None
                hf.memory_stores.memories.update(
                    memory.id, memory_store_id=store.id, content="spaces"
                )
                await notices.until(note)
    ltm = hf.longterm("ada")
    assert ltm is not None
    assert [each.text for each in ltm.list("items").data] == ["Ada drinks tea."]


def pong(host: HostProcess) -> bool:
    return "result" in host.request("ping")


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"\n",
        b"{}\n",
        b"null\n",
        b"[]\n",
        b'{"jsonrpc": "2.0", "id": 7\n',
        b"\xff\xfe\x00\n",
        b'{"jsonrpc": "2.0", "id": 7, "method": "ping\xff"}\n',
        b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]\n',
        b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}\n',
        b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n',
        b'{"jsonrpc": "2.0", "id": 7, "result": {}}\n',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}\n',
        b'{"jsonrpc": "2.0", "method": "notifications/unknown"}\n',
        b"[" * 100_000 + b"]" * 100_000 + b"\n",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_a_line_that_is_no_message_leaves_the_server_running(
    host: HostProcess, line: bytes
) -> None:
    host.write(line)
    assert pong(host)


def test_a_message_may_come_in_pieces(host: HostProcess) -> None:
    message = json.dumps({"jsonrpc": "2.0", "id": 70, "method": "ping"}).encode()
    host.write(*(message[at : at + 1] for at in range(len(message))), b"\n")
    assert "result" in host.answer(70)


def test_half_a_line_at_the_end_of_the_input_is_no_call(tmp_path: Path, target: str) -> None:
    with started(tmp_path, ["--db", target]) as host:
        host.write(b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name"')
        assert host.end() == 0


def test_an_unknown_method_is_an_error(host: HostProcess) -> None:
    assert host.request("tools/destroy", {})["error"]["code"] == -32_601
    assert host.request("completion/complete", {})["error"]["code"] in {-32_601, -32_602}
    assert pong(host)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "memory", "arguments": [1]}),
        ("tools/call", {"name": "memory", "arguments": "{}"}),
        ("tools/list", {"cursor": 5}),
        ("resources/read", {}),
        ("resources/read", {"uri": 5}),
        ("resources/read", {"uri": "a" * 100_000}),
        ("resources/subscribe", {"uri": {}}),
        ("prompts/get", {"name": "recall", "arguments": {"topic": 5}}),
        ("prompts/get", {"name": "recall", "arguments": []}),
        ("initialize", {"protocolVersion": 5}),
    ],
)
def test_parameters_of_another_form_are_an_error_of_the_protocol(
    host: HostProcess, method: str, params: dict[str, Any]
) -> None:
    error = host.request(method, params)["error"]
    assert error["code"] in {-32_600, -32_602, -32_002}
    assert pong(host)


def test_random_messages_leave_the_server_running(host: HostProcess) -> None:
    random = Random(0)
    methods: list[Any] = [
        "tools/call",
        "tools/list",
        "resources/read",
        "prompts/get",
        "notifications/x",
        5,
    ]
    members: list[Any] = [None, 1, "text", [], {}, {"name": "memory"}, {"uri": "x"}, {"_meta": []}]
    versions: list[Any] = ["2.0", "2.0", "2.0", "1.0", 2]
    ids: list[Any] = [-1, "id", 1.5, None, {}, []]
    for _ in range(300):
        message: dict[str, Any] = {
            "jsonrpc": random.choice(versions),
            "id": random.choice(ids),
            "method": random.choice(methods),
            "params": random.choice(members),
        }
        for name in random.sample(list(message), random.randrange(2)):
            del message[name]
        host.send(message)
    assert pong(host)
    assert listed(host) == STANDARD


def test_an_argument_of_ten_megabytes_is_refused_and_written_nowhere(host: HostProcess) -> None:
    path, huge = "/memories/a.md", "x" * 10_000_000

    result = host.call("memory", command="create", path=path, file_text=huge)
    assert result["isError"]
    assert "1 MiB" in text_of(result)
    assert len(text_of(result)) < 10_000

    assert host.call("memory", command="view", path=path)["isError"]
    assert host.call("ltm_remember", text=huge)["isError"]
    assert host.call("ltm_recall", query="xx")["structuredContent"]["count"] == 0


@pytest.mark.parametrize("depth", [100, 5_000])
def test_a_deep_argument_is_refused(host: HostProcess, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    head = b'{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name":"ltm_recall",'
    host.write(head + b'"arguments":{"query":' + deep + b"}}}\n")

    assert pong(host)
    assert host.call("ltm_recall", query="tea")["structuredContent"]["count"] == 0


def test_fifty_calls_at_once_are_all_answered(host: HostProcess) -> None:
    ids = {
        host.begin_call("memory", command="create", path=f"/memories/{number}.md", file_text="tabs")
        for number in range(50)
    }
    answers = [host.receive() for _ in ids]

    assert {each["id"] for each in answers} == ids
    assert not any(each["result"].get("isError") for each in answers)
    found = host.request("resources/list")["result"]["resources"]
    assert sum(each["name"].endswith(".md") for each in found) == 50


def test_cancelled_writes_are_whole_or_absent_and_the_process_goes_on(
    tmp_path: Path, target: str
) -> None:
    text = "tabs\n" * 1_000
    with started(tmp_path, ["--db", target]) as host:
        for number in range(20):
            path = f"/memories/{number}.md"
            id = host.begin_call("memory", command="create", path=path, file_text=text)
            params = {"requestId": id, "reason": "test"}
            host.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert pong(host)
        assert host.end() == 0
    assert sizes(target) <= {5_000}


def sizes(target: str) -> set[int]:
    """Return the sizes of all notes."""
    with holdfast.open(target) as hf:
        return {
            each.content_size_bytes
            for store in hf.memory_stores.list().data
            for each in hf.memory_stores.memories.list(store.id).all()
            if isinstance(each, Memory)
        }


def test_a_client_that_dies_in_a_call_leaves_a_whole_write(tmp_path: Path, target: str) -> None:
    with started(tmp_path, ["--db", target]) as host:
        for number in range(10):
            path = f"/memories/{number}.md"
            host.begin_call("memory", command="create", path=path, file_text="tabs\n" * 1_000)
        assert host.process.stdout is not None
        host.process.stdout.close()
        assert host.end() == 0
        assert host.process.stderr is not None
        assert b"Traceback" not in host.process.stderr.read()
    assert sizes(target) <= {5_000}
