"""The knowledge graph: the reference server's tools, results, import and export."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from doors.mcp.hosting import done, hosted, refused, text_of
from doors.mcp.node_packages import NODE, installed
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from holdfast.doors.mcp.graph_tools import graph_of
from holdfast.doors.mcp.host_tool import encoded
from holdfast.doors.mcp.owners import GRAPH, HostMemories, Owners
from holdfast.library.graph import KnowledgeGraph, export_records, import_lines, path_of
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

OWNERS = Owners(store=GRAPH, profile="graph")
ADA = {"name": "Ada", "entityType": "person", "observations": ["Likes tabs", "Lives in Paris"]}
BOB: dict[str, Any] = {"name": "Bob", "entityType": "person", "observations": []}
TAX = {"name": "Tax report", "entityType": "document", "observations": ["Due in May"]}
KNOWS = {"from": "Ada", "to": "Bob", "relationType": "knows"}
WRITES = {"from": "Bob", "to": "Tax report", "relationType": "writes"}


@pytest.fixture
async def graph(hf: Holdfast) -> AsyncGenerator[Client]:
    async with hosted(hf, OWNERS) as client:
        yield client


@pytest.fixture
async def filled(graph: Client) -> Client:
    await done(graph, "create_entities", entities=[ADA, BOB, TAX])
    await done(graph, "create_relations", relations=[KNOWS, WRITES])
    return graph


async def test_an_entity_that_is_there_or_twice_in_the_call_is_skipped(graph: Client) -> None:
    first = await done(graph, "create_entities", entities=[ADA, BOB, ADA])
    again = await done(graph, "create_entities", entities=[ADA, TAX])

    assert first == {"entities": [ADA, BOB]}
    assert again == {"entities": [TAX]}


async def test_the_text_of_what_was_created_is_a_list(graph: Client) -> None:
    result = await graph.call_tool("create_entities", {"entities": [ADA]})

    assert isinstance(result, types.CallToolResult)
    assert json.loads(text_of(result)) == [ADA]


async def test_exact_doubles_of_relations_are_skipped(filled: Client) -> None:
    other = KNOWS | {"relationType": "likes"}

    assert await done(filled, "create_relations", relations=[KNOWS, other, other]) == {
        "relations": [other]
    }


async def test_a_relation_to_nobody_refuses_all_of_them(filled: Client) -> None:
    good = {"from": "Bob", "to": "Ada", "relationType": "knows"}

    text = await refused(filled, "create_relations", relations=[good, KNOWS | {"to": "Carl"}])

    assert text == "Entity with name Carl not found"
    graph = await done(filled, "read_graph")
    assert good not in graph["relations"]


async def test_observations_are_added_once(filled: Client) -> None:
    added = await done(
        filled,
        "add_observations",
        observations=[
            {"entityName": "Ada", "contents": ["Likes tabs", "Has a dog"]},
            {"entityName": "Ada", "contents": ["Has a dog", "Plays chess"]},
        ],
    )

    assert added == {
        "results": [
            {"entityName": "Ada", "addedObservations": ["Has a dog"]},
            {"entityName": "Ada", "addedObservations": ["Plays chess"]},
        ]
    }


async def test_an_observation_of_nobody_refuses_all_of_them(filled: Client) -> None:
    text = await refused(
        filled,
        "add_observations",
        observations=[
            {"entityName": "Bob", "contents": ["Cooks"]},
            {"entityName": "Carl", "contents": ["Sings"]},
        ],
    )

    assert text == "Entity with name Carl not found"
    assert (await done(filled, "open_nodes", names=["Bob"]))["entities"] == [BOB]


async def test_a_deleted_entity_takes_its_relations_with_it(filled: Client) -> None:
    gone = await done(filled, "delete_entities", entityNames=["Bob"])

    assert gone == {"success": True, "message": "Entities deleted successfully"}
    assert await done(filled, "read_graph") == {"entities": [ADA, TAX], "relations": []}


async def test_a_deletion_names_what_it_did_not_find(filled: Client) -> None:
    messages = [
        (await done(filled, name, **arguments))["message"]
        for name, arguments in (
            ("delete_entities", {"entityNames": ["Bob", "Carl"]}),
            (
                "delete_observations",
                {"deletions": [{"entityName": "Carl", "observations": ["x"]}]},
            ),
            ("delete_relations", {"relations": [KNOWS | {"to": "Carl"}]}),
        )
    ]

    assert messages == [
        "Deleted 1 of 2 entities. Not found: Carl",
        "Deleted 0 of 1 entities. Not found: Carl",
        "Deleted 0 of 1 relations. Not found: Ada knows Carl",
    ]


async def test_observations_and_relations_are_deleted_exactly(filled: Client) -> None:
    await done(
        filled,
        "delete_observations",
        deletions=[{"entityName": "Ada", "observations": ["Likes tabs"]}],
    )
    await done(filled, "delete_relations", relations=[KNOWS])

    assert await done(filled, "open_nodes", names=["Ada"]) == {
        "entities": [ADA | {"observations": ["Lives in Paris"]}],
        "relations": [],
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("LIKES TABS", ["Ada"]),
        ("person", ["Ada", "Bob"]),
        ("paris tabs", ["Ada"]),
        ("report may", ["Tax report"]),
        ("nothing of that", []),
    ],
)
async def test_a_search_finds_the_words_that_are_nowhere_side_by_side(
    filled: Client, query: str, names: list[str]
) -> None:
    found = await done(filled, "search_nodes", query=query)

    assert [each["name"] for each in found["entities"]][: len(names) or None] == names


async def test_what_is_opened_comes_with_every_relation_that_touches_it(filled: Client) -> None:
    opened = await done(filled, "open_nodes", names=["Bob", "Nobody"])

    assert opened == {"entities": [BOB], "relations": [KNOWS, WRITES]}


async def test_a_graph_that_does_not_fit_says_what_is_left_out(graph: Client) -> None:
    many = [
        {"name": f"Entity {n}", "entityType": "thing", "observations": ["x" * 900]}
        for n in range(100)
    ]
    await done(graph, "create_entities", entities=many)

    result = await graph.call_tool("read_graph", {})

    assert isinstance(result, types.CallToolResult)
    assert result.structured_content is not None
    assert len(text_of(result).encode()) <= 60_000
    shown = len(result.structured_content["entities"])
    assert result.structured_content["omitted"] == {"entities": 100 - shown, "relations": 0}
    assert "open them by name" in result.structured_content["message"]
    assert [each["name"] for each in result.structured_content["entities"]] == [
        each["name"] for each in many[:shown]
    ]


async def test_an_entity_that_is_too_large_is_refused_in_words(graph: Client) -> None:
    big = ADA | {"observations": ["x" * 102_400]}

    assert "more than 102,400" in await refused(graph, "create_entities", entities=[big])


async def test_a_call_that_would_change_more_than_one_transaction_holds_changes_nothing(
    graph: Client,
) -> None:
    many = [BOB | {"name": f"{n}"} for n in range(1_001)]

    assert "at most" in await refused(graph, "create_entities", entities=many)
    assert (await done(graph, "read_graph"))["entities"] == []
    created = await done(graph, "create_entities", entities=many[:1_000])
    assert len(created["entities"]) == 1_000


async def test_a_large_import_is_reported_as_it_goes_on(hf: Holdfast) -> None:
    lines = [
        json.dumps({"type": "entity", "name": f"{n}", "entityType": "t", "observations": ["x"]})
        for n in range(1_100)
    ]
    seen = list[tuple[int, int]]()

    report = import_lines(of(hf), lines, lambda done, count: seen.append((done, count)))

    assert (report.entities, report.observations) == (1_100, 1_100)
    assert seen == [(500, 1_100), (1_000, 1_100), (1_100, 1_100)]


async def test_an_entity_is_a_file_with_versions(hf: Holdfast, filled: Client) -> None:
    await done(
        filled, "add_observations", observations=[{"entityName": "Ada", "contents": ["Dances"]}]
    )

    store = hf.memory_stores.list().data[0]
    memory = hf.memory_stores.memories.at(store.id, "/entities/Ada.json")
    assert store.name == GRAPH
    assert memory is not None
    assert json.loads(memory.content or "") == {
        "name": "Ada",
        "entityType": "person",
        "observations": ["Likes tabs", "Lives in Paris", "Dances"],
        "relations": [{"to": "Bob", "relationType": "knows"}],
    }
    versions = hf.memory_stores.memory_versions.list(store.id, memory_id=memory.id).data
    assert len(versions) == 3


LOOK_ALIKES = [
    "a/b",
    "a%2Fb",
    "a b",
    " a b",
    "a.b",
    ".",
    "..",
    "",
    "A",
    "a",
    "é",
    "e\u0301",
    "x" * 300,
    "x" * 301,
    "%",
    "~",
]


async def test_names_that_look_alike_are_different_files(graph: Client) -> None:
    entities = [{"name": each, "entityType": "t", "observations": [each]} for each in LOOK_ALIKES]

    created = await done(graph, "create_entities", entities=entities)
    read = await done(graph, "read_graph")

    assert created["entities"] == entities
    assert read["entities"] == entities
    assert len({path_of(each) for each in LOOK_ALIKES}) == len(LOOK_ALIKES)


async def test_two_hosts_lose_no_observation(hf: Holdfast) -> None:
    async with hosted(hf, OWNERS) as one, hosted(hf, OWNERS) as two:
        await done(one, "create_entities", entities=[BOB])

        async def add(client: Client, name: str) -> None:
            for number in range(20):
                await done(
                    client,
                    "add_observations",
                    observations=[{"entityName": "Bob", "contents": [f"{name} {number}"]}],
                )

        await asyncio.gather(add(one, "one"), add(two, "two"))
        (bob,) = (await done(one, "open_nodes", names=["Bob"]))["entities"]

    assert sorted(bob["observations"]) == sorted(
        f"{name} {number}" for name in ("one", "two") for number in range(20)
    )


LINES = [
    json.dumps({"type": "entity", **ADA}),
    "",
    json.dumps({"type": "entity", **BOB}),
    "{not JSON",
    json.dumps({"type": "relation", **KNOWS}),
    json.dumps({"type": "relation", **KNOWS, "to": "Carl"}),
    json.dumps({"type": "entity", "name": "Ada", "entityType": "x", "observations": ["Sings"]}),
    json.dumps({"type": "colour", "name": "red"}),
    json.dumps({"type": "entity", "name": 3}),
]


def of(hf: Holdfast) -> KnowledgeGraph:
    return graph_of(HostMemories(hf, OWNERS))


async def test_an_import_merges_and_names_the_lines_it_left_out(hf: Holdfast) -> None:
    report = import_lines(of(hf), LINES)
    again = import_lines(of(hf), LINES)

    assert (report.entities, report.observations, report.relations) == (2, 3, 1)
    assert [each.line for each in report.skipped] == [4, 6, 8, 9]
    assert (again.entities, again.observations, again.relations) == (0, 0, 0)
    ada = next(each for each in of(hf).entities() if each.name == "Ada")
    assert (ada.entity_type, ada.observations) == (
        "person",
        ("Likes tabs", "Lives in Paris", "Sings"),
    )


@pytest.mark.usefixtures("filled")
async def test_an_import_of_an_export_changes_nothing(hf: Holdfast) -> None:
    exported = [encoded(each) for each in export_records(of(hf))]

    report = import_lines(of(hf), exported)

    assert (report.entities, report.observations, report.relations) == (0, 0, 0)
    assert report.skipped == []
    assert [encoded(each) for each in export_records(of(hf))] == exported


SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("create_entities", {"entities": [ADA, BOB, TAX]}),
    ("create_entities", {"entities": [ADA]}),
    ("create_relations", {"relations": [KNOWS, WRITES]}),
    ("create_relations", {"relations": [KNOWS]}),
    (
        "add_observations",
        {"observations": [{"entityName": "Bob", "contents": ["Cooks", "Sings"]}]},
    ),
    ("add_observations", {"observations": [{"entityName": "Bob", "contents": ["Cooks"]}]}),
    ("read_graph", {}),
    ("search_nodes", {"query": "TABS"}),
    ("search_nodes", {"query": "person"}),
    ("open_nodes", {"names": ["Ada", "Tax report"]}),
    ("delete_observations", {"deletions": [{"entityName": "Bob", "observations": ["Sings"]}]}),
    ("delete_relations", {"relations": [WRITES]}),
    ("read_graph", {}),
    ("delete_entities", {"entityNames": ["Bob"]}),
    ("read_graph", {}),
]


async def scripted(client: Client) -> list[Any]:
    results: list[Any] = []
    for name, arguments in SCRIPT:
        result = await client.call_tool(name, arguments)
        assert isinstance(result, types.CallToolResult)
        results.append((name, result.is_error, result.structured_content))
    return results


async def test_the_reference_server_gives_the_same_results(hf: Holdfast, tmp_path: Path) -> None:
    package = "@modelcontextprotocol/server-memory@2026.8.31"
    program = installed(package, tmp_path, "mcp-server-memory")
    server = StdioServerParameters(
        command=str(NODE),
        args=[str(program)],
        env={**os.environ, "MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")},
    )
    async with Client(stdio_client(server)) as reference:
        theirs = await scripted(reference)
        offered = (await reference.list_tools()).tools
    async with hosted(hf, OWNERS) as client:
        ours = await scripted(client)
        tools = (await client.list_tools()).tools

    assert ours == theirs
    assert [each.name for each in tools] == [each.name for each in offered]
    hints = [each.annotations and each.annotations.destructive_hint for each in tools]
    assert hints == [each.annotations and each.annotations.destructive_hint for each in offered]
    report = import_lines(of(hf), (tmp_path / "memory.jsonl").read_text("utf-8").splitlines())
    assert (report.entities, report.skipped) == (0, [])


async def test_fifty_calls_at_once_on_one_entity_lose_no_observation(filled: Client) -> None:
    observations = [[{"entityName": "Bob", "contents": [f"fact {n}"]}] for n in range(50)]

    await asyncio.gather(
        *(done(filled, "add_observations", observations=each) for each in observations)
    )

    (bob,) = (await done(filled, "open_nodes", names=["Bob"]))["entities"]
    assert sorted(bob["observations"]) == sorted(f"fact {n}" for n in range(50))
