"""A knowledge graph in a store: the tools of profile `graph`, their import and export.

An entity is one memory, `/entities/<name>.json`, with its observations and the relations that begin
at it. Each call is one transaction, so that two hosts lose no observation.
"""

import random
import secrets
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from time import sleep
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.doors.mcp.owners import HostMemories
from holdfast.doors.mcp.tools import RESULT_BYTES, Hints, HostTool, encoded
from holdfast.ground.errors import NotFound, PathTaken, PreconditionFailed, StoreFull, ToolRefused
from holdfast.memories.stores.edits import Edit, Remove, Save
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX
from holdfast.tools.base import JSON, Schema, Tool
from holdfast.tools.durable import read

T = TypeVar("T")

FOLDER: Final = "/entities/"
NODES_MOST: Final = 50
"""Entities that a search returns."""
_PAGE: Final = 100
_NAME_BYTES: Final = 200
_HEAD: Final = 120
_EDITS: Final = 500
"""Edits of one transaction of an import."""
_TRIES: Final = 40
_PAUSE_FIRST: Final = 0.002
_PAUSE_MOST: Final = 0.2
"""Seconds, at most, between two tries to change an entity that others change; they double."""
_PLAIN: Final = frozenset(f"{string.ascii_letters}{string.digits}-_ ".encode())


class Link(Struct, frozen=True, kw_only=True, rename={"relation_type": "relationType"}):
    """A relation to another entity, as the entity where it begins stores it."""

    to: str
    relation_type: str


class Entity(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_type": "entityType"},
):
    """An entity of the graph, as a host writes it."""

    name: str
    entity_type: str
    observations: tuple[str, ...]

    def public(self) -> JSON:
        """Return it as a result shows it."""
        return {
            "name": self.name,
            "entityType": self.entity_type,
            "observations": list(self.observations),
        }


class StoredEntity(Struct, frozen=True, kw_only=True, rename={"entity_type": "entityType"}):
    """The content of an entity's file."""

    name: str
    entity_type: str
    observations: tuple[str, ...] = ()
    relations: tuple[Link, ...] = ()

    def public(self) -> JSON:
        """Return it as a result shows it, without its relations."""
        return Entity(
            name=self.name, entity_type=self.entity_type, observations=self.observations
        ).public()

    def links(self) -> "Iterator[Relation]":
        """Yield the relations that begin at it."""
        for link in self.relations:
            yield Relation(source=self.name, to=link.to, relation_type=link.relation_type)


class Relation(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "relation_type": "relationType"},
):
    """A relation between two entities."""

    source: str
    to: str
    relation_type: str

    def public(self) -> JSON:
        """Return it as a result shows it."""
        return {"from": self.source, "to": self.to, "relationType": self.relation_type}


class CreateEntities(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `create_entities`."""

    entities: list[Entity]


class Relations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `create_relations` and `delete_relations`."""

    relations: list[Relation]


class _Addition(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_name": "entityName"},
):
    entity_name: str
    contents: list[str]


class AddObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `add_observations`."""

    observations: list[_Addition]


class DeleteEntities(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_names": "entityNames"},
):
    """Arguments of `delete_entities`."""

    entity_names: list[str]


class _Deletion(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_name": "entityName"},
):
    entity_name: str
    observations: list[str]


class DeleteObservations(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `delete_observations`."""

    deletions: list[_Deletion]


class ReadGraph(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `read_graph`: none."""


class SearchNodes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `search_nodes`."""

    query: str


class OpenNodes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `open_nodes`."""

    names: list[str]


class _Node(Struct, frozen=True):
    """A stored entity and its memory."""

    memory: Memory
    entity: StoredEntity


class Skipped(Struct, frozen=True, kw_only=True):
    """A line of a file that was not imported."""

    line: int
    reason: str


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import added."""

    entities: int
    observations: int
    relations: int
    skipped: list[Skipped] = field(default_factory=list[Skipped])


class KnowledgeGraph:
    """The graph in the store of *memories*."""

    def __init__(self, memories: HostMemories) -> None:
        if memories.store is None:
            raise NotFound("memory store", "", next="Name a store for the graph.")
        self._choice, self._hf = memories.store, memories.hf

    def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Create those that do not exist; return them."""

        def work(store: str) -> tuple[Sequence[Edit], list[Entity]]:
            created: dict[str, Entity] = {}
            for each in entities:
                if each.name not in created and self._node(store, each.name) is None:
                    created[each.name] = each
            edits = [_new(_stored(each)) for each in created.values()]
            return edits, list(created.values())

        return self._write(work)

    def create_relations(self, relations: Sequence[Relation]) -> list[Relation]:
        """Create those that do not exist; return them. An unknown end refuses all of them."""

        def work(store: str) -> tuple[Sequence[Edit], list[Relation]]:
            nodes = self._nodes_of(store, [end for r in relations for end in (r.source, r.to)])
            created: list[Relation] = []
            after = {name: node.entity for name, node in nodes.items()}
            for each in relations:
                entity = after[each.source]
                link = Link(to=each.to, relation_type=each.relation_type)
                if link not in entity.relations:
                    after[each.source] = replace(entity, relations=(*entity.relations, link))
                    created.append(each)
            # An end that is not changed is saved as it is, so that its deletion meanwhile is found.
            return [_changed(node, after[name]) for name, node in nodes.items()], created

        return self._write(work)

    def add_observations(self, additions: Sequence[_Addition]) -> list[JSON]:
        """Add to each entity what it does not have; return what was added."""

        def work(store: str) -> tuple[Sequence[Edit], list[JSON]]:
            nodes = self._nodes_of(store, [each.entity_name for each in additions])
            after = {name: node.entity for name, node in nodes.items()}
            results: list[JSON] = []
            for each in additions:
                entity = after[each.entity_name]
                added = [one for one in each.contents if one not in entity.observations]
                after[each.entity_name] = replace(
                    entity, observations=(*entity.observations, *added)
                )
                results.append({"entityName": each.entity_name, "addedObservations": list(added)})
            return [_changed(nodes[name], entity) for name, entity in after.items()], results

        return self._write(work)

    def delete_entities(self, names: Sequence[str]) -> str:
        """Delete entities and every relation that touches them; return a message."""
        gone = frozenset(names)

        def work(store: str) -> tuple[Sequence[Edit], list[str]]:
            edits: list[Edit] = []
            found: list[str] = []
            for node in self._nodes(store):
                if node.entity.name in gone:
                    edits.append(Remove(memory_id=node.memory.id))
                    found.append(node.entity.name)
                    continue
                left = tuple(each for each in node.entity.relations if each.to not in gone)
                if len(left) < len(node.entity.relations):
                    edits.append(_changed(node, replace(node.entity, relations=left)))
            return edits, found

        found = frozenset(self._write(work, create=False))
        missing = [each for each in dict.fromkeys(names) if each not in found]
        return _deleted("Entities", "entities", len(gone), missing)

    def delete_observations(self, deletions: Sequence[_Deletion]) -> str:
        """Delete observations; return a message."""

        def work(store: str) -> tuple[Sequence[Edit], list[str]]:
            edits: list[Edit] = []
            found: list[str] = []
            for each in deletions:
                node = self._node(store, each.entity_name)
                if node is None:
                    continue
                found.append(each.entity_name)
                left = tuple(
                    one for one in node.entity.observations if one not in each.observations
                )
                edits.append(_changed(node, replace(node.entity, observations=left)))
            return edits, found

        merged: dict[str, list[str]] = {}
        for each in deletions:
            merged.setdefault(each.entity_name, []).extend(each.observations)
        deletions = [_Deletion(entity_name=n, observations=o) for n, o in merged.items()]
        found = frozenset(self._write(work, create=False))
        missing = [name for name in merged if name not in found]
        return _deleted("Observations", "entities", len(merged), missing)

    def delete_relations(self, relations: Sequence[Relation]) -> str:
        """Delete relations that are equal in all three parts; return a message."""

        def work(store: str) -> tuple[Sequence[Edit], list[Relation]]:
            edits: list[Edit] = []
            found: list[Relation] = []
            for name in dict.fromkeys(each.source for each in relations):
                node = self._node(store, name)
                if node is None:
                    continue
                going = [each for each in node.entity.links() if each in relations]
                left = tuple(
                    link
                    for link, each in zip(node.entity.relations, node.entity.links(), strict=True)
                    if each not in going
                )
                found += going
                edits.append(_changed(node, replace(node.entity, relations=left)))
            return edits, found

        found = self._write(work, create=False)
        distinct = list(dict.fromkeys(relations))
        missing = [
            f"{each.source} {each.relation_type} {each.to}"
            for each in distinct
            if each not in found
        ]
        return _deleted("Relations", "relations", len(distinct), missing)

    def entities(self) -> list[StoredEntity]:
        """Return every entity, in order of creation."""
        store = self._choice.id()
        return [] if store is None else [node.entity for node in self._nodes(store)]

    def search(self, query: str) -> list[StoredEntity]:
        """Return the entities that contain *query*, then those with the most of its words."""
        store = self._choice.id()
        if store is None:
            return []
        nodes = self._nodes(store)
        sought = query.lower()
        containing = [node for node in nodes if _contains(node.entity, sought)]
        known = {node.memory.id for node in containing}
        by_id = {node.memory.id: node for node in nodes}
        ranked: list[_Node] = []
        if sought.strip():
            matches = self._hf.memory_stores.memories.search(
                store, query, limit=NODES_MOST, path_prefix=FOLDER
            )
            ids = [match.memory.id for match in matches if match.memory.id not in known]
            ranked = [by_id[id] for id in ids if id in by_id]
        return [node.entity for node in [*containing, *ranked][:NODES_MOST]]

    def merge(self, entities: Iterable[StoredEntity]) -> tuple[int, int, int]:
        """Add what is not there; return the numbers of entities, observations and relations."""
        requested = {each.name: each for each in entities}

        def work(store: str) -> tuple[Sequence[Edit], tuple[int, int, int]]:
            there = {node.entity.name: node for node in self._nodes(store)}
            edits: list[Edit] = []
            added = [0, 0, 0]
            for name, new in requested.items():
                node = there.get(name)
                old = node.entity if node else None
                joined = _joined(old, new) if old else new
                added[0] += old is None
                added[1] += len(joined.observations) - (len(old.observations) if old else 0)
                added[2] += len(joined.relations) - (len(old.relations) if old else 0)
                if joined != old:
                    edits.append(_new(joined) if node is None else _changed(node, joined))
            return edits, (added[0], added[1], added[2])

        return self._write(work)

    def _write(self, work: Callable[[str], tuple[Sequence[Edit], T]], *, create: bool = True) -> T:
        """Apply the edits of *work*, and return its result; again if others changed an entity."""
        store = self._choice.id(create=create)
        if store is None:
            return work("")[1]
        for number in range(_TRIES):
            edits, result = work(store)
            try:
                for start in range(0, len(edits), _EDITS):
                    self._hf.memory_stores.memories.apply(
                        store,
                        edits[start : start + _EDITS],
                        edit_id=f"edit_{secrets.token_hex(16)}",
                    )
            except (PreconditionFailed, PathTaken):
                most = min(_PAUSE_MOST, _PAUSE_FIRST * 2**number)
                sleep(random.uniform(0, most))  # noqa: S311 - not for a secret
            except StoreFull as full:
                raise ToolRefused(
                    f"The graph is full: it has {full.cap:,} entities, the most there may be."
                    " Delete entities first."
                ) from full
            else:
                return result
        raise ToolRefused("Others change the same entities at this moment. Try again.")

    def _nodes_of(self, store: str, names: Iterable[str]) -> dict[str, _Node]:
        nodes: dict[str, _Node] = {}
        for name in dict.fromkeys(names):
            node = self._node(store, name)
            if node is None:
                raise ToolRefused(f"Entity with name {name} not found")
            nodes[name] = node
        return nodes

    def _node(self, store: str, name: str) -> _Node | None:
        if not store:
            return None
        memory = self._hf.memory_stores.memories.at(store, path_of(name))
        if memory is None:
            return None
        entity = _read(memory)
        if entity is None:
            raise ToolRefused(f"The file {memory.path} is not an entity. Mend or delete it first.")
        return _Node(memory, entity)

    def _nodes(self, store: str) -> list[_Node]:
        """Return every entity in order of creation; files that are no entities are left out."""
        if not store:
            return []
        page = self._hf.memory_stores.memories.list(
            store, path_prefix=FOLDER, limit=_PAGE, view="full"
        )
        nodes = [
            _Node(memory, entity)
            for memory in page.all()
            if isinstance(memory, Memory) and (entity := _read(memory)) is not None
        ]
        return sorted(nodes, key=lambda node: (node.memory.created_at, node.memory.id))


def path_of(name: str) -> str:
    """Return the path of the entity *name*; different names have different paths."""
    raw = name.encode("utf-8", "surrogatepass")
    plain = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw) or "%"
    if plain.strip() != plain:
        plain = plain.replace(" ", "%20")
    if len(plain) > _NAME_BYTES:
        plain = f"{plain[:_HEAD]}~{sha256(raw).hexdigest()[:16]}"
    return f"{FOLDER}{plain}.json"


def _read(memory: Memory) -> StoredEntity | None:
    try:
        return msgspec.json.decode(memory.content or "", type=StoredEntity)
    except msgspec.DecodeError:
        return None


def _stored(entity: Entity) -> StoredEntity:
    return StoredEntity(
        name=entity.name, entity_type=entity.entity_type, observations=entity.observations
    )


def _content(entity: StoredEntity) -> str:
    content = msgspec.json.format(msgspec.json.encode(entity), indent=2).decode()
    size = len(content.encode())
    if size > CONTENT_BYTES_MAX:
        raise ToolRefused(
            f"The entity {entity.name} would take {size:,} bytes, more than {CONTENT_BYTES_MAX:,}."
            " Split it into several entities with relations between them."
        )
    return content


def _new(entity: StoredEntity) -> Save:
    return Save(path=path_of(entity.name), content=_content(entity), new=True)


def _changed(node: _Node, entity: StoredEntity) -> Save:
    return Save(
        path=node.memory.path,
        memory_id=node.memory.id,
        base_sha256=node.memory.content_sha256,
        content=_content(entity) if entity != node.entity else node.memory.content or "",
    )


def _joined(old: StoredEntity, new: StoredEntity) -> StoredEntity:
    return replace(
        old,
        observations=tuple(dict.fromkeys((*old.observations, *new.observations))),
        relations=tuple(dict.fromkeys((*old.relations, *new.relations))),
    )


def _contains(entity: StoredEntity, sought: str) -> bool:
    texts = (entity.name, entity.entity_type, *entity.observations)
    return any(sought in each.lower() for each in texts)


def _deleted(what: str, of: str, count: int, missing: Sequence[str]) -> str:
    if not missing:
        return f"{what} deleted successfully"
    names = ", ".join(missing)
    return f"Deleted {count - len(missing)} of {count} {of}. Not found: {names}"


# The file of the reference server: one JSON object a line.


def read_lines(
    lines: Iterable[str],
) -> tuple[list[StoredEntity], list[tuple[int, Relation]], list[Skipped]]:
    """Parse a file of the reference server: entities, relations by line, lines left out."""
    entities: dict[str, StoredEntity] = {}
    relations: list[tuple[int, Relation]] = []
    skipped: list[Skipped] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line, type=dict[str, Any])
            kind = record.pop("type", None)
            if kind == "entity":
                each = msgspec.convert(record, StoredEntity)
                known = entities.get(each.name)
                entities[each.name] = _joined(known, each) if known else _joined(each, each)
            elif kind == "relation":
                relations.append((number, msgspec.convert(record, Relation)))
            else:
                skipped.append(Skipped(line=number, reason="its type is no entity or relation"))
        except (msgspec.MsgspecError, UnicodeError) as error:
            skipped.append(Skipped(line=number, reason=str(error)))
    return list(entities.values()), relations, skipped


def import_lines(graph: KnowledgeGraph, lines: Iterable[str]) -> ImportReport:
    """Merge a file of the reference server into *graph*; twice is once."""
    entities, relations, skipped = read_lines(lines)
    merged = {each.name: each for each in entities}
    known = {each.name: each for each in graph.entities()}
    for number, each in relations:
        if each.source not in merged and each.source in known:
            merged[each.source] = known[each.source]
        missing = [end for end in (each.source, each.to) if end not in merged and end not in known]
        if missing:
            reason = f"no entity has the name {missing[0]}"
            skipped.append(Skipped(line=number, reason=reason))
            continue
        link = Link(to=each.to, relation_type=each.relation_type)
        entity = merged[each.source]
        if link not in entity.relations:
            merged[each.source] = replace(entity, relations=(*entity.relations, link))
    added = graph.merge(merged.values())
    skipped.sort(key=lambda one: one.line)
    return ImportReport(
        entities=added[0], observations=added[1], relations=added[2], skipped=skipped
    )


def export_lines(graph: KnowledgeGraph) -> Iterator[str]:
    """Yield *graph* in the form of the reference server's file, a line at a time."""
    entities = graph.entities()
    for each in entities:
        yield encoded({"type": "entity", **cast("dict[str, JSON]", each.public())})
    for each in entities:
        for link in each.links():
            yield encoded({"type": "relation", **cast("dict[str, JSON]", link.public())})


# The tools.

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


def graph_tools(memories: HostMemories) -> list[HostTool]:
    """Return the nine tools of the reference server, on the store of *memories*."""
    graph = KnowledgeGraph(memories)

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
