"""A knowledge graph in a store, its import and its export.

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

from holdfast.ground.errors import PathTaken, PreconditionFailed, StoreFull, ToolRefused
from holdfast.ground.json_values import JSON
from holdfast.library.bridges import NamedStore
from holdfast.memories.stores.edits import EDITS_MAX, Edit, Remove, Save
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.stores import MemoryStores
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX

T = TypeVar("T")

FOLDER: Final = "/entities/"
NODES_MOST: Final = 50
"""Entities that a search returns."""
_PAGE: Final = 100
_NAME_BYTES: Final = 200
_HEAD: Final = 120
_MERGED: Final = 500
"""Entities of one transaction of an import."""
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


class Addition(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_name": "entityName"},
):
    """Observations to add to an entity."""

    entity_name: str
    contents: list[str]


class Deletion(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"entity_name": "entityName"},
):
    """Observations to delete from an entity."""

    entity_name: str
    observations: list[str]


class _Node(Struct, frozen=True):
    """A stored entity and its memory."""

    memory: Memory
    entity: StoredEntity


class SkippedLine(Struct, frozen=True, kw_only=True):
    """A line of a file that was not imported."""

    line: int
    reason: str


class GraphImport(Struct, frozen=True, kw_only=True):
    """What an import added."""

    entities: int
    observations: int
    relations: int
    skipped: list[SkippedLine] = field(default_factory=list[SkippedLine])


class KnowledgeGraph:
    """The graph in the store *choice* of *stores*."""

    def __init__(self, stores: MemoryStores, choice: NamedStore) -> None:
        self._choice, self._stores = choice, stores

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

    def add_observations(self, additions: Sequence[Addition]) -> list[JSON]:
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

    def delete_observations(self, deletions: Sequence[Deletion]) -> str:
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
        deletions = [Deletion(entity_name=n, observations=o) for n, o in merged.items()]
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
            matches = self._stores.memories.search(
                store, query, limit=NODES_MOST, path_prefix=FOLDER
            )
            ids = [match.memory.id for match in matches if match.memory.id not in known]
            ranked = [by_id[id] for id in ids if id in by_id]
        return [node.entity for node in [*containing, *ranked][:NODES_MOST]]

    def merge(
        self, entities: Iterable[StoredEntity], report: Callable[[int], None] = lambda _: None
    ) -> tuple[int, int, int]:
        """Add what is missing; return how many entities, observations, relations.

        Each transaction has some of *entities*; *report* is called with how many are done.
        """
        requested, added = list(entities), (0, 0, 0)
        for start in range(0, len(requested), _MERGED):
            part = requested[start : start + _MERGED]
            more = self._merge(part)
            added = (added[0] + more[0], added[1] + more[1], added[2] + more[2])
            report(start + len(part))
        return added

    def preview(self, entities: Iterable[StoredEntity]) -> tuple[int, int, int]:
        """Return what `merge` would add; write nothing."""
        return self._merging(list(entities))(self._choice.id() or "")[1]

    def _merge(self, entities: Sequence[StoredEntity]) -> tuple[int, int, int]:
        return self._write(self._merging(entities))

    def _merging(
        self, entities: Sequence[StoredEntity]
    ) -> Callable[[str], tuple[Sequence[Edit], tuple[int, int, int]]]:
        def work(store: str) -> tuple[Sequence[Edit], tuple[int, int, int]]:
            edits: list[Edit] = []
            added = [0, 0, 0]
            for new in entities:
                node = self._node(store, new.name)
                old = node.entity if node else None
                joined = _joined(old, new) if old else new
                added[0] += old is None
                added[1] += len(joined.observations) - (len(old.observations) if old else 0)
                added[2] += len(joined.relations) - (len(old.relations) if old else 0)
                if joined != old:
                    edits.append(_new(joined) if node is None else _changed(node, joined))
            return edits, (added[0], added[1], added[2])

        return work

    def _write(self, work: Callable[[str], tuple[Sequence[Edit], T]], *, create: bool = True) -> T:
        """Apply the edits of *work* in one transaction, and return its result.

        If others changed an entity meanwhile, *work* is called again.
        """
        store = self._choice.id(create=create)
        if store is None:
            return work("")[1]
        memories = self._stores.memories
        for number in range(_TRIES):
            edits, result = work(store)
            if not edits:
                return result
            _check_count(edits)
            try:
                memories.apply(store, edits, edit_id=f"edit_{secrets.token_hex(16)}")
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
        memory = self._stores.memories.at(store, path_of(name))
        if memory is None:
            return None
        entity = _read(memory)
        if entity is None:
            raise ToolRefused(
                f"The file {memory.path} is not an entity. Correct or delete it first."
            )
        return _Node(memory, entity)

    def _nodes(self, store: str) -> list[_Node]:
        """Return every entity in order of creation; other files are left out."""
        if not store:
            return []
        page = self._stores.memories.list(store, path_prefix=FOLDER, limit=_PAGE, view="full")
        nodes = [
            _Node(memory, entity)
            for memory in page.all()
            if isinstance(memory, Memory) and (entity := _read(memory)) is not None
        ]
        return sorted(nodes, key=lambda node: (node.memory.created_at, node.memory.id))


def path_of(name: str) -> str:
    """Return the path of the entity *name*; different names have different paths."""
    return f"{FOLDER}{file_name(name)}.json"


def file_name(name: str) -> str:
    """Return *name* as the name of a file; different names have different ones."""
    raw = name.encode("utf-8", "surrogatepass")
    plain = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw) or "%"
    if plain.strip() != plain:
        plain = plain.replace(" ", "%20")
    if len(plain) > _NAME_BYTES:
        plain = f"{plain[:_HEAD]}~{sha256(raw).hexdigest()[:16]}"
    return plain


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


def _check_count(edits: Sequence[Edit]) -> None:
    if len(edits) > EDITS_MAX:
        raise ToolRefused(
            f"This would change {len(edits):,} entities; one call changes {EDITS_MAX:,} at most."
            " Send less in one call; delete relations before the entities that they end at."
        )


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
) -> tuple[list[StoredEntity], list[tuple[int, Relation]], list[SkippedLine]]:
    """Parse a file of the reference server.

    Return entities, relations with the numbers of their lines, and lines left out.
    """
    entities: dict[str, StoredEntity] = {}
    relations: list[tuple[int, Relation]] = []
    skipped: list[SkippedLine] = []
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
                skipped.append(SkippedLine(line=number, reason="its type is no entity or relation"))
        except (msgspec.MsgspecError, UnicodeError) as error:
            skipped.append(SkippedLine(line=number, reason=str(error)))
    return list(entities.values()), relations, skipped


def import_lines(
    graph: KnowledgeGraph,
    lines: Iterable[str],
    report: Callable[[int, int], None] = lambda _done, _all: None,
    *,
    dry_run: bool = False,
) -> GraphImport:
    """Merge a file of the reference server into *graph*; twice is once.

    *report* is called with the number of entities that are done, and of all. A dry run writes
    nothing, and returns the same result.
    """
    entities, relations, skipped = read_lines(lines)
    merged = {each.name: each for each in entities}
    known = {each.name: each for each in graph.entities()}
    for number, each in relations:
        if each.source not in merged and each.source in known:
            merged[each.source] = known[each.source]
        missing = [end for end in (each.source, each.to) if end not in merged and end not in known]
        if missing:
            reason = f"no entity has the name {missing[0]}"
            skipped.append(SkippedLine(line=number, reason=reason))
            continue
        link = Link(to=each.to, relation_type=each.relation_type)
        entity = merged[each.source]
        if link not in entity.relations:
            merged[each.source] = replace(entity, relations=(*entity.relations, link))
    if dry_run:
        added = graph.preview(merged.values())
    else:
        added = graph.merge(merged.values(), lambda done: report(done, len(merged)))
    skipped.sort(key=lambda one: one.line)
    return GraphImport(
        entities=added[0], observations=added[1], relations=added[2], skipped=skipped
    )


def export_records(graph: KnowledgeGraph) -> Iterator[dict[str, JSON]]:
    """Yield the lines of *graph* in the form of the reference server's file."""
    entities = graph.entities()
    for each in entities:
        yield {"type": "entity", **cast("dict[str, JSON]", each.public())}
    for each in entities:
        for link in each.links():
            yield {"type": "relation", **cast("dict[str, JSON]", link.public())}
