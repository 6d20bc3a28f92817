"""Every tool, resource and prompt over MCP answers every kind of credential as the tables say."""

import asyncio
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlencode

import pytest
from doors.http.asking import Asker, Said
from doors.mcp.hosting import GRAPH
from doors.mcp.web import AGENTS, META, MODERN, READ, STORES, USERS
from doors.world import Credential, Watch, World, copied, marks_in, world
from torture.counts import counted

from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.server import host_of
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

Profile = Literal["full", "graph"]
PROFILES: Final[tuple[Profile, ...]] = ("full", "graph")
READS: Final = READ | set(GRAPH[-3:])
OWNERS: Final = {"user": USERS, "agent": AGENTS, "store": STORES}
RESOURCES: Final = {
    # The owner of each kind of resource, and the profiles that have it.
    "holdfast://stores/{s}": ("store", {"full", "graph"}),
    "holdfast://stores/{s}/a.md": ("store", {"full", "graph"}),
    "holdfast://durable/{agent}": ("agent", {"full", "graph"}),
    "holdfast://longterm/{user}": ("user", {"full"}),
    "memory://knowledge-graph": ("store", {"graph"}),
}
PROMPTS: Final = {"recall": "user", "briefing": "any", "keep": "user"}
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["writes"]}
RELATION = {"from": "Ada", "to": "Ada", "relationType": "is"}
CALLS: Final[dict[str, dict[str, Any]]] = {
    # What reads comes first.
    "ltm_recall": {"query": "tea"},
    "memory_recall": {"key": "key"},
    "memory_list": {},
    "memory": {"command": "view", "path": "/memories/a.md"},
    "memory_search": {"query": "x"},
    "memory_history": {"path": "/memories/a.md"},
    "read_graph": {},
    "search_nodes": {"query": "Ada"},
    "open_nodes": {"names": ["Ada"]},
    "ltm_remember": {"text": "Ada has a dog."},
    "memory_store": {"key": "other", "category": "core", "content": "z"},
    "memory_restore": {"version_id": "{v}"},
    "create_entities": {"entities": [ENTITY]},
    "create_relations": {"relations": [RELATION]},
    "add_observations": {"observations": [{"entityName": "Ada", "contents": ["sings"]}]},
    "delete_observations": {"deletions": [{"entityName": "Ada", "observations": ["sings"]}]},
    "delete_relations": {"relations": [RELATION]},
    "delete_entities": {"entityNames": ["Ada"]},
    "memory_forget": {"key": "key"},
    "ltm_forget": {"id": "{item}"},
}
NOT_THERE: Final = {
    # What another owner has not, and a call that names it is refused for.
    *("memory", "memory_history", "memory_restore"),
}
METHODS: Final = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def owners_of(credential: Credential) -> set[str]:
    """Return the kinds of owners that *credential* reaches."""
    if credential.token is not None:
        return {"store"}
    if credential.bound:
        return {each for each in ("agent", "user") if getattr(credential, each) is not None}
    return set(OWNERS)


def address_of(credential: Credential, profile: Profile, place: World) -> str:
    """Return where a host with *credential* connects to what *profile* serves of its owners."""
    names = {"profile": profile}
    if credential.token is None and not credential.bound:
        names |= {"store": place.ids["s"], "user": "ada", "agent": "agent_7"}
    return f"/mcp?{urlencode(names)}"


def status_of(credential: Credential, profile: Profile) -> int | None:
    """Return the status with which every request is refused, None if it is not."""
    if credential.everywhere is not None or credential.refusal is not None:
        return credential.everywhere or credential.refusal
    # A graph is in a store.
    return 403 if profile == "graph" and credential.bound else None


def tools_of(credential: Credential, profile: Profile) -> list[str]:
    """Return the tools that *credential* reaches."""
    reached = owners_of(credential)
    named = [each for owner, names in OWNERS.items() if owner in reached for each in names]
    found = GRAPH if profile == "graph" else named
    return [each for each in found if each in READS or not credential.reads]


def prompts_of(credential: Credential, profile: Profile) -> list[str]:
    """Return the prompts that *credential* reaches."""
    if profile == "graph":
        return []
    reached = {*owners_of(credential), "any"}
    found = [name for name, owner in PROMPTS.items() if owner in reached]
    return [each for each in found if each != "keep" or not credential.reads]


class Client:
    """A host that sends requests of the modern era with one credential."""

    def __init__(
        self, place: World, credential: Credential, profile: Profile, query: str | None = None
    ) -> None:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            **credential.headers,
        }
        self._ask = Asker(place.app, place.runner, headers)
        self._target = f"/mcp?{query}" if query else address_of(credential, profile, place)

    def send(self, method: str, **params: Any) -> Said:
        """Return the response to one request."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        headers = {"mcp-method": method}
        if name := params.get("name") or params.get("uri"):
            headers["mcp-name"] = name
        return self._ask("POST", self._target, body, headers=headers)


@contextmanager
def hosting(place: World) -> Generator[None]:
    """Let hosts connect to *place* within the block."""
    started, stop = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with place.app._subapp.running():  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
            started.set()
            await stop.wait()

    async def begin() -> "asyncio.Task[None]":
        task = asyncio.create_task(run())
        await started.wait()
        return task

    async def end() -> None:
        stop.set()
        await task

    task = place.runner.run(begin())
    try:
        yield
    finally:
        place.runner.run(end())


@pytest.fixture(scope="module")
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, clock: FrozenClock) -> Iterator[World]:
    """Give a world in a file, with long-term memory enabled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        with world(str(tmp_path_factory.mktemp("world") / "world.db"), clock) as place:
            yield place


def test_every_tool_resource_and_prompt_has_a_row(place: World) -> None:
    hf: Holdfast = place.app.state.hf
    tools, prompts, uris = set[str](), set[str](), set[str]()
    for profile in ("standard", "full", "files", "graph"):
        owners = Owners(user="ada", agent="agent_7", store=place.ids["s"], profile=profile)
        host = host_of(HostMemories(hf, owners))
        tools |= set(host.tools.by_name)
        prompts |= {each.name for each in host.prompts.listed().prompts}
        uris |= {each.uri for each in host.resources.listed(None).resources}

    assert tools == {*CALLS} == {*USERS, *AGENTS, *STORES, *GRAPH}
    assert prompts == {*PROMPTS}
    assert {each for each in uris if each.count("/") == 3 or "://k" in each} == {
        each.format(**place.ids) for each in RESOURCES if not each.endswith(".md")
    }


def filled(arguments: dict[str, Any], place: World) -> dict[str, Any]:
    ids = {f"{{{name}}}": id for name, id in place.ids.items()}
    return {key: ids.get(str(each), each) for key, each in arguments.items()}


def requests(place: World, profile: Profile) -> list[tuple[str, dict[str, Any]]]:
    """Return every request that a host may send, those that read first."""
    listed: list[tuple[str, dict[str, Any]]] = [(each, {}) for each in METHODS]
    uris = [each.format(**place.ids) for each in RESOURCES]
    prompts = [(name, {"topic": "tea"} if name == "recall" else {}) for name in PROMPTS]
    del profile
    return [
        *listed,
        *(("resources/read", {"uri": each}) for each in uris),
        *(("prompts/get", {"name": name, "arguments": given}) for name, given in prompts),
        *(
            ("tools/call", {"name": name, "arguments": filled(given, place)})
            for name, given in CALLS.items()
        ),
    ]


class Expectation:
    """What a credential reaches through one profile."""

    def __init__(self, place: World, credential: Credential, profile: Profile) -> None:
        self.credential = credential
        self.tools, self.prompts = tools_of(credential, profile), prompts_of(credential, profile)
        reached = owners_of(credential)
        self.uris = {
            uri.format(**place.ids)
            for uri, (owner, profiles) in RESOURCES.items()
            if owner in reached and profile in profiles and self._own(owner, uri)
        }

    def _own(self, owner: str, uri: str) -> bool:
        """Whether the owner that *credential* reaches is the one that *uri* names, if it does."""
        credential = self.credential
        if "{" not in uri:
            return True
        names = {"agent": ("agent_7", credential.agent), "user": ("ada", credential.user)}
        name, bound = names.get(owner, ("", None))
        return credential.token != "other store" and bound in {None, name}

    def fault(  # noqa: PLR0911 - one a method
        self, method: str, params: dict[str, Any], said: Said
    ) -> str:
        """Return what is wrong with the answer to a request, '' if nothing is."""
        answer = json.loads(said.body)
        name = params.get("name", params.get("uri", ""))
        if not self.credential.home:
            # There are owners of the same names, and no such store.
            return "" if {"result", "error"} & answer.keys() else f"answers {answer}"
        match method:
            case "tools/list":
                listed = [each["name"] for each in answer["result"]["tools"]]
                return "" if listed == self.tools else f"lists {listed}"
            case "prompts/list":
                listed = [each["name"] for each in answer["result"]["prompts"]]
                return "" if listed == self.prompts else f"lists {listed}"
            case "tools/call":
                reached = name in self.tools
            case "prompts/get":
                reached = name in self.prompts
            case "resources/read":
                reached = name in self.uris
            case _:
                return "" if "result" in answer else f"answers {answer}"
        if not reached:
            code = answer.get("error", {}).get("code")
            return "" if code == -32602 else f"answers {answer}"
        if "result" not in answer:
            return f"answers {answer}"
        own = "store" in self.credential.sees or name not in NOT_THERE
        failed = bool(answer["result"].get("isError"))
        return f"fails: {answer['result']}" if failed and own else ""


def test_each_credential_reaches_the_tools_resources_and_prompts_of_its_rights(
    place: World, tmp_path: Path, clock: FrozenClock
) -> None:
    """Try every request with each credential, on a copy."""
    faults, cells, seen = list[str](), 0, set[str]()
    for credential in place.credentials:
        with copied(place, tmp_path, clock) as copy, hosting(copy):
            watch = Watch(copy.database)
            for profile in PROFILES:
                client = Client(copy, credential, profile)
                refusal = status_of(credential, profile)
                expectation = Expectation(copy, credential, profile)
                for method, params in requests(copy, profile):
                    said = client.send(method, **params)
                    if params.get("name") in {"recall", "ltm_recall"}:
                        copy.settle()
                    changed, shown = watch.changed(), marks_in(said.body)
                    name = params.get("name", params.get("uri", ""))
                    fault = ""
                    if refusal is not None:
                        fault = "" if said.status == refusal else f"{said.status}: {said.body!r}"
                    else:
                        fault = expectation.fault(method, params, said)
                    writes = refusal is None and name in expectation.tools and name not in READS
                    if not fault and shown - credential.sees:
                        fault = f"shows {shown}"
                    # A recall by a key that writes leaves a mark.
                    marks = name in {"recall", "ltm_recall"} and not credential.reads
                    if not fault and changed and not ((writes or marks) and credential.home):
                        fault = f"changes {changed}"
                    there = "store" in credential.sees or name not in NOT_THERE
                    if not fault and writes and there and credential.sees and not changed:
                        fault = "changes nothing"
                    if fault:
                        faults.append(f"{method} {name}, {credential.name}, {profile}: {fault}")
                    seen |= shown
                    cells += 1
    counted("authorisation", cells, door="mcp", engine="sqlite")
    assert not faults, "\n".join(faults)
    assert seen == {"store", "agent7", "ada", "rest"}
    assert cells > 1_500


COMMANDS: Final[list[dict[str, Any]]] = [
    {"command": "create", "path": "/memories/b.md", "file_text": ""},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "x", "new_str": "z"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "z"},
    {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"},
    {"command": "delete", "path": "/memories/a.md"},
]


def test_a_credential_that_reads_writes_no_file(
    place: World, tmp_path: Path, clock: FrozenClock
) -> None:
    readers = [each for each in place.credentials if each.reads and "store" in owners_of(each)]
    admitted = [each for each in readers if status_of(each, "full") is None]
    assert {each.name for each in admitted} == {"read key", "token: read-only store"}
    with copied(place, tmp_path, clock) as copy, hosting(copy):
        watch = Watch(copy.database)
        for credential in admitted:
            client = Client(copy, credential, "full")
            for command in COMMANDS:
                said = client.send("tools/call", name="memory", arguments=command)
                assert json.loads(said.body)["result"]["isError"], command
                assert "read-only" in said.body.decode()
                assert watch.changed() == []
        writer = next(each for each in copy.credentials if each.token == "own session")
        said = Client(copy, writer, "full").send("tools/call", name="memory", arguments=COMMANDS[0])
        assert not json.loads(said.body)["result"].get("isError")
        assert watch.changed() != []


@pytest.mark.parametrize("named", ["user=mallory", "agent=agent_9", "store={other store}"])
def test_another_owner_than_the_credentials_is_forbidden(
    place: World, tmp_path: Path, clock: FrozenClock, named: str
) -> None:
    narrow = [each for each in place.credentials if each.bound or each.token]
    query = named.replace("{other store}", place.ids["other store"])
    with copied(place, tmp_path, clock) as copy, hosting(copy):
        for credential in narrow:
            kind, _, name = query.partition("=")
            own = getattr(credential, kind, None) == name
            if credential.refusal or own or (credential.token == "other store" and kind == "store"):
                continue
            client = Client(copy, credential, "full", query)
            assert client.send("tools/list").status == 403, credential.name
