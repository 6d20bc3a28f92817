"""The tools of profile `graph`: those of the reference server, by name and form."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.doors.mcp.host_tool import RESULT_BYTES, Hints, HostTool, encoded
from holdfast.doors.mcp.owners import HostMemories
from holdfast.ground.errors import NotFound
from holdfast.library.graph import (
    Addition,
    Deletion,
    Entity,
    KnowledgeGraph,
    Relation,
    StoredEntity,
)
from holdfast.tools.base import JSON, Schema, Tool
from holdfast.tools.durable import read


class CreateEntities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `create_entities`."""

    entities: list[Entity]


class Relations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `create_relations` and `delete_relations`."""

    relations: list[Relation]


class AddObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `add_observations`."""

    observations: list[Addition]


class DeleteEntities(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_names": "entityNames"},
):
    """Arguments of `delete_entities`."""

    entity_names: list[str]


class DeleteObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `delete_observations`."""

    deletions: list[Deletion]


class ReadGraph(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `read_graph`: none."""


class SearchNodes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `search_nodes`."""

    query: str


class OpenNodes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `open_nodes`."""

    names: list[str]


_STRINGS: Final[Schema] = {"type": "array", "items": {"type": "string"}}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT: Final[Schema] = {"type": "string"}
_ENTITY: Final = _object(name=_TEXT, entityType=_TEXT, observations=_STRINGS)
_RELATION: Final = _object(**{"from": _TEXT, "to": _TEXT, "relationType": _TEXT})
_ENTITIES: Final[Schema] = {"type": "array", "items": _ENTITY}
_RELATIONS: Final[Schema] = {"type": "array", "items": _RELATION}
_DONE: Final = _object(success={"type": "boolean"}, message=_TEXT)
_GRAPH: Final = _object(entities=_ENTITIES, relations=_RELATIONS)


class _GraphTool(Struct, frozen=True, kw_only=True):
    title: str
    description: str
    parameters: Schema
    output: Schema
    work: Callable[[KnowledgeGraph, object], JSON]
    read_only: bool = False
    destructive: bool = False


def _names(entities: Iterable[Entity]) -> list[JSON]:
    return [each.public() for each in entities]


def _done(message: str) -> JSON:
    return {"success": True, "message": message}


def _shown(graph: KnowledgeGraph, found: Sequence[StoredEntity], *, whole: bool) -> JSON:
    """Return *found* and every relation that touches one, as far as a result has room."""
    names = {each.name for each in found}
    everything = found if whole else graph.entities()
    links = [
        link
        for each in everything
        for link in each.links()
        if link.source in names or link.to in names
    ]
    return shown_graph([each.public() for each in found], [each.public() for each in links])


def shown_graph(entities: list[JSON], relations: list[JSON]) -> dict[str, JSON]:
    """Return a graph for a result; what has no room is counted in `omitted`."""
    room = RESULT_BYTES - 400
    shown: dict[str, list[JSON]] = {"entities": [], "relations": []}
    for name, members in (("entities", entities), ("relations", relations)):
        for each in members:
            room -= len(encoded(each).encode()) + 1
            if room < 0:
                break
            shown[name].append(each)
    left = {
        "entities": len(entities) - len(shown["entities"]),
        "relations": len(relations) - len(shown["relations"]),
    }
    answer: dict[str, JSON] = {"entities": shown["entities"], "relations": shown["relations"]}
    if any(left.values()):
        answer["omitted"] = {"entities": left["entities"], "relations": left["relations"]}
        answer["message"] = "Not all of it fits. Search for nodes, or open them by name."
    return answer


_TOOLS: Final[dict[str, _GraphTool]] = {
    "create_entities": _GraphTool(
        title="Create entities",
        description="Create new entities. One that already exists is left as it is.",
        parameters=_object(entities=_ENTITIES),
        output=_object(entities=_ENTITIES),
        work=lambda graph, given: {
            "entities": _names(graph.create_entities(read(CreateEntities, given).entities))
        },
    ),
    "create_relations": _GraphTool(
        title="Create relations",
        description="Create relations between entities, in active voice.",
        parameters=_object(relations=_RELATIONS),
        output=_object(relations=_RELATIONS),
        work=lambda graph, given: {
            "relations": [
                each.public() for each in graph.create_relations(read(Relations, given).relations)
            ]
        },
    ),
    "add_observations": _GraphTool(
        title="Add observations",
        description="Add observations to entities that exist.",
        parameters=_object(
            observations={
                "type": "array",
                "items": _object(entityName=_TEXT, contents=_STRINGS),
            }
        ),
        output=_object(
            results={
                "type": "array",
                "items": _object(entityName=_TEXT, addedObservations=_STRINGS),
            }
        ),
        work=lambda graph, given: {
            "results": graph.add_observations(read(AddObservations, given).observations)
        },
    ),
    "delete_entities": _GraphTool(
        title="Delete entities",
        description="Delete entities and every relation that touches them.",
        parameters=_object(entityNames=_STRINGS),
        output=_DONE,
        destructive=True,
        work=lambda graph, given: _done(
            graph.delete_entities(read(DeleteEntities, given).entity_names)
        ),
    ),
    "delete_observations": _GraphTool(
        title="Delete observations",
        description="Delete observations of entities.",
        parameters=_object(
            deletions={
                "type": "array",
                "items": _object(entityName=_TEXT, observations=_STRINGS),
            }
        ),
        output=_DONE,
        destructive=True,
        work=lambda graph, given: _done(
            graph.delete_observations(read(DeleteObservations, given).deletions)
        ),
    ),
    "delete_relations": _GraphTool(
        title="Delete relations",
        description="Delete relations that are equal in all three parts.",
        parameters=_object(relations=_RELATIONS),
        output=_DONE,
        destructive=True,
        work=lambda graph, given: _done(graph.delete_relations(read(Relations, given).relations)),
    ),
    "read_graph": _GraphTool(
        title="Read the graph",
        description="Read all entities and relations.",
        parameters={"type": "object", "properties": {}},
        output=_GRAPH,
        read_only=True,
        work=lambda graph, given: (
            read(ReadGraph, given),
            _shown(graph, graph.entities(), whole=True),
        )[1],
    ),
    "search_nodes": _GraphTool(
        title="Search for entities",
        description="Find entities by their name, type and observations, with their relations.",
        parameters=_object(query=_TEXT),
        output=_GRAPH,
        read_only=True,
        work=lambda graph, given: _shown(
            graph, graph.search(read(SearchNodes, given).query), whole=False
        ),
    ),
    "open_nodes": _GraphTool(
        title="Open entities",
        description="Read entities by name, with their relations.",
        parameters=_object(names=_STRINGS),
        output=_GRAPH,
        read_only=True,
        work=lambda graph, given: _opened(graph, read(OpenNodes, given).names),
    ),
}


def _opened(graph: KnowledgeGraph, names: Sequence[str]) -> JSON:
    requested = frozenset(names)
    found = [each for each in graph.entities() if each.name in requested]
    return _shown(graph, found, whole=False)


def graph_of(memories: HostMemories) -> KnowledgeGraph:
    """Return the graph in the store of *memories*."""
    if memories.store is None:
        raise NotFound("memory store", "", next="Name a store for the graph.")
    return KnowledgeGraph(memories.hf.memory_stores, memories.store)


def graph_tools(memories: HostMemories) -> list[HostTool]:
    """Return the nine tools of the reference server, on the store of *memories*."""
    graph = graph_of(memories)

    def tool(name: str, each: _GraphTool) -> HostTool:
        return HostTool(
            tool=Tool(
                id=f"graph.{name}",
                name=name,
                description=each.description,
                parameters=each.parameters,
                work=lambda arguments: each.work(graph, arguments),
                checks=True,
            ),
            hints=Hints(
                title=each.title,
                read_only=each.read_only,
                destructive=each.destructive,
                idempotent=each.read_only or each.destructive,
                output=each.output,
                content=_TEXT_OF.get(name),
            ),
        )

    return [tool(name, each) for name, each in _TOOLS.items()]


_TEXT_OF: Final = {
    "create_entities": "entities",
    "create_relations": "relations",
    "add_observations": "results",
    "delete_entities": "message",
    "delete_observations": "message",
    "delete_relations": "message",
}
"""The member of a structured result that its text shows."""
