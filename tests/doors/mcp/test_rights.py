"""Rights over HTTP: which tools, resources and prompts each credential reaches."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from doors.mcp.hosting import GRAPH, done, refused, text_of
from doors.mcp.web import (
    AGENTS,
    ALL,
    ARGUMENTS,
    EVERY,
    READ,
    STORES,
    USERS,
    connected,
    filled,
    key,
    post,
    token,
    tools,
)
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.doors.mcp.http import HttpHosts
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio


class Caller(NamedTuple):
    """A credential, the owners it names, and the tools, resources and prompts it reaches.

    The credential is a key, with the options of its creation, or the token of a session with an
    access to the store; or there is none.
    """

    query: str
    tools: list[str]
    resources: set[str]
    prompts: list[str]
    key: dict[str, str] | None = None
    access: str | None = None

    @property
    def keyed(self) -> bool:
        return self.key is not None or self.access is not None

    def secret(self, hf: Holdfast, store: str) -> str | None:
        if self.access is not None:
            return token(hf, store, access=self.access)
        return None if self.key is None else key(hf, **self.key)


KINDS = {"store", "note", "durable", "longterm"}
NOTES = {"store", "note"}
PROMPTS = ["recall", "briefing", "keep"]
GRAPH_KINDS = {"graph", *NOTES}
GRAPHS = "store=Notes&profile=graph"
CALLERS = {
    "open": Caller(EVERY, ALL, KINDS, PROMPTS),
    "open graph": Caller(GRAPHS, GRAPH, GRAPH_KINDS, []),
    "admin": Caller(EVERY, ALL, KINDS, PROMPTS, {"scope": "admin"}),
    "write": Caller(EVERY, ALL, KINDS, PROMPTS, {"scope": "write"}),
    "write graph": Caller(GRAPHS, GRAPH, GRAPH_KINDS, [], {"scope": "write"}),
    "read": Caller(
        EVERY, [each for each in ALL if each in READ], KINDS, PROMPTS[:2], {"scope": "read"}
    ),
    "read graph": Caller(GRAPHS, GRAPH[-3:], GRAPH_KINDS, [], {"scope": "read"}),
    "user": Caller("profile=full", USERS, {"longterm"}, PROMPTS, {"user": "ada"}),
    "user read": Caller(
        "", ["ltm_recall"], {"longterm"}, PROMPTS[:2], {"scope": "read", "user": "ada"}
    ),
    "agent": Caller("agent=scout", AGENTS, {"durable"}, ["briefing"], {"agent": "scout"}),
    "session": Caller("profile=full", STORES, NOTES, ["briefing"], access="read_write"),
    "session read-only": Caller(
        "profile=full", STORES[:3], NOTES, ["briefing"], access="read_only"
    ),
    "session graph": Caller("profile=graph", GRAPH, GRAPH_KINDS, [], access="read_write"),
    "session graph read-only": Caller(
        "profile=graph", GRAPH[-3:], GRAPH_KINDS, [], access="read_only"
    ),
}
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["writes"]}
RELATION = {"from": "Ada", "to": "Ada", "relationType": "is"}
CALLS: dict[str, dict[str, Any]] = {
    **ARGUMENTS,
    "create_entities": {"entities": [ENTITY]},
    "create_relations": {"relations": [RELATION]},
    "add_observations": {"observations": [{"entityName": "Ada", "contents": ["sings"]}]},
    "delete_entities": {"entityNames": ["Eve"]},
    "delete_observations": {"deletions": [{"entityName": "Ada", "observations": ["swims"]}]},
    "delete_relations": {"relations": [RELATION]},
    "read_graph": {},
    "search_nodes": {"query": "Ada"},
    "open_nodes": {"names": ["Ada"]},
}


class Place(NamedTuple):
    """A server, its handle, the URIs of its resources, and those of other owners."""

    url: str
    hf: Holdfast
    store: str
    resources: dict[str, str]
    foreign: list[str]


@contextmanager
def place(target: Path, *, keyed: bool) -> Generator[Place]:
    """Serve a database with a memory of each kind, and one of others beside it."""
    with (
        holdfast.open(target) as hf,
        holdfast.open(target, workspace="theirs") as others,
        serving(hf, clock=SystemClock(), make_subapp=HttpHosts) as url,
    ):
        store, theirs = filled(hf), filled(others)
        mine = hf.memory_stores.create(name="Other").id
        hf.memory_stores.memories.create(mine, path="/a.md", content="other")
        hf.durable("other").set("target", "other", category="core")
        bob = hf.longterm("bob", enabled=True)
        assert bob is not None
        bob.remember("Bob drinks tea.")
        if keyed:
            key(hf)
        resources = {
            "store": f"holdfast://stores/{store}",
            "note": f"holdfast://stores/{store}/a.md",
            "durable": "holdfast://durable/scout",
            "longterm": "holdfast://longterm/ada",
            "graph": "memory://knowledge-graph",
        }
        foreign = [
            *(f"holdfast://stores/{each}{path}" for each in (mine, theirs) for path in PATHS),
            "holdfast://durable/other",
            "holdfast://longterm/bob",
        ]
        yield Place(f"{url}/mcp", hf, store, resources, foreign)


PATHS = ("", "/a.md")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Place]]:
    """Serve two databases: with keys, and without."""
    folder = tmp_path_factory.mktemp("rights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "1")
        with (
            place(folder / "keyed.db", keyed=True) as keyed,
            place(folder / "open.db", keyed=False) as unkeyed,
        ):
            yield {True: keyed, False: unkeyed}


@pytest.mark.parametrize("name", CALLERS)
async def test_each_caller_reaches_the_tools_resources_and_prompts_of_its_rights(
    places: dict[bool, Place], mode: str, name: str
) -> None:
    caller = CALLERS[name]
    where = places[caller.keyed]
    secret = caller.secret(where.hf, where.store)

    async with connected(where.url, caller.query, mode, secret=secret) as client:
        assert await tools(client) == caller.tools
        listed = {each.uri for each in (await client.list_resources()).resources}
        # The files of a graph can be read, and are not listed.
        kinds = {"graph"} if "graph" in caller.resources else caller.resources
        assert {where.resources[kind] for kind in kinds} <= listed
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        assert prompts == caller.prompts

        for tool, arguments in CALLS.items():
            if tool in caller.tools:
                await client.call_tool(tool, arguments)
                continue
            with pytest.raises(MCPError) as caught:
                await client.call_tool(tool, arguments)
            assert caught.value.error.code == types.INVALID_PARAMS
        for prompt in set(PROMPTS) - set(prompts):
            with pytest.raises(MCPError):
                await client.get_prompt(prompt, {"topic": "tea"} if prompt == "recall" else {})

        for kind in caller.resources:
            assert (await client.read_resource(where.resources[kind])).contents
        unreachable = [uri for kind, uri in where.resources.items() if kind not in caller.resources]
        errors = set[tuple[int, str]]()
        for uri in [*unreachable, *where.foreign, "holdfast://stores/memstore_none"]:
            assert uri not in listed
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            error = caught.value.error
            errors.add((error.code, error.message.replace(uri, "URI")))
        # What exists elsewhere cannot be told from what does not exist.
        assert len(errors) == 1


@pytest.mark.parametrize("name", [each for each in CALLERS if "read" in each])
async def test_a_caller_that_reads_changes_nothing(places: dict[bool, Place], name: str) -> None:
    where, caller = places[True], CALLERS[name]
    secret = caller.secret(where.hf, where.store)
    before = state_of(where)

    async with connected(where.url, caller.query, secret=secret) as client:
        for tool in caller.tools:
            await client.call_tool(tool, CALLS[tool])
        if "memory" in caller.tools:
            for command in COMMANDS:
                assert "read-only" in await refused(client, "memory", **command)

    assert state_of(where) == before


COMMANDS: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/b.md", "file_text": ""},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "tabs", "new_str": "x"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "x"},
    {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"},
    {"command": "delete", "path": "/memories/a.md"},
]


def state_of(where: Place) -> list[object]:
    """Return everything that a caller may have changed."""
    ltm = where.hf.longterm("ada")
    assert ltm is not None
    ltm.flush()
    memories = where.hf.memory_stores.memories.list(where.store, view="full").all()
    return [
        [(each.id, each.access_count) for each in ltm.list("items").data],
        where.hf.durable("scout").list().data,
        list(memories),
    ]


@pytest.mark.parametrize(
    ("caller", "query"),
    [
        ("user", "user=eve"),
        ("user", "agent=scout"),
        ("user", "store=Notes"),
        ("user", "profile=graph"),
        ("agent", "agent=other"),
        ("agent", "user=ada"),
        ("session", "user=ada"),
        ("session", "agent=scout"),
        ("session", "store=Other"),
    ],
)
def test_another_owner_than_the_credentials_is_forbidden(
    hf: Holdfast, url: str, store: str, caller: str, query: str
) -> None:
    hf.memory_stores.create(name="Other")
    secret = CALLERS[caller].secret(hf, store)

    answer = post(f"{url}?{query}", authorization=f"Bearer {secret}")

    assert answer.status_code == 403


def test_a_key_of_another_workspace_reaches_nothing_here(hf: Holdfast, url: str) -> None:
    secret = key(hf, workspace="theirs")
    answer = post(url, authorization=f"Bearer {secret}", anthropic_workspace_id="default")
    assert answer.status_code == 403


async def test_a_key_of_another_workspace_sees_its_own(hf: Holdfast, url: str, store: str) -> None:
    async with connected(url, EVERY, secret=key(hf, workspace="theirs")) as client:
        with pytest.raises(MCPError):
            await client.read_resource(f"holdfast://stores/{store}/a.md")
        assert (await done(client, "ltm_recall", query="tea"))["results"] == []


async def test_a_session_of_several_stores_names_one(hf: Holdfast, url: str, store: str) -> None:
    other = hf.memory_stores.create(name="Other").id
    secret = token(hf, store, other)

    answer = post(url, authorization=f"Bearer {secret}")
    assert answer.status_code == 400
    assert "Notes" in answer.text
    assert "Other" in answer.text

    async with connected(url, "store=Notes", secret=secret) as client:
        result = await client.call_tool("memory", ARGUMENTS["memory"])
        assert isinstance(result, types.CallToolResult)
        assert "tabs" in text_of(result)
    async with connected(url, f"store={other}", secret=secret) as client:
        await refused(client, "memory", **ARGUMENTS["memory"])


async def test_a_change_names_the_key_or_the_session_that_made_it(
    hf: Holdfast, url: str, store: str
) -> None:
    attached = [{"type": "memory_store", "memory_store_id": store, "access": "read_write"}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=attached).id
    made = hf.keys.create("k", scope="write")
    secrets = {
        made.id: str(made.secret),
        session: str(hf.sessions.create_token(session).token),
    }
    for id, secret in secrets.items():
        query = "store=Notes&profile=full" if id == made.id else "profile=full"
        async with connected(url, query, secret=secret) as client:
            path = f"/memories/{id}.md"
            await client.call_tool("memory", {"command": "create", "path": path, "file_text": ""})
            (version,) = (await done(client, "memory_history", path=path))["versions"]
            assert version["by"] == id


async def test_a_session_reaches_what_is_left_of_its_stores(
    hf: Holdfast, url: str, store: str, mode: str
) -> None:
    other = hf.memory_stores.create(name="Other").id
    secret = token(hf, store, other)
    hf.memory_stores.delete(other)
    async with connected(url, "", mode, secret=secret) as client:
        assert (await client.read_resource(f"holdfast://stores/{store}/a.md")).contents

    hf.memory_stores.delete(store)
    async with connected(url, "", mode, secret=secret) as client:
        assert await tools(client) == []
        assert (await client.list_resources()).resources == []


async def test_a_session_without_a_store_has_no_tools(hf: Holdfast, url: str) -> None:
    async with connected(url, secret=token(hf)) as client:
        assert await tools(client) == []


@pytest.mark.usefixtures("store")
async def test_a_recall_by_a_key_that_only_reads_leaves_no_mark(hf: Holdfast, url: str) -> None:
    async def recalls(scope: str) -> int:
        async with connected(url, "user=ada", secret=key(hf, scope=scope)) as client:
            assert (await done(client, "ltm_recall", query="tea"))["count"] == 1
            await client.get_prompt("recall", {"topic": "tea"})
        ltm = hf.longterm("ada")
        assert ltm is not None
        ltm.flush()
        return ltm.list("items").data[0].access_count

    assert await recalls("read") == 0
    assert await recalls("write") == 2


async def test_long_term_memory_needs_its_switch(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")
    async with connected(url, "user=ada&store=Notes") as client:
        assert await tools(client) == ["memory"]
        assert client.instructions is not None
        assert "HOLDFAST_LTM_ENABLED=0" in client.instructions
