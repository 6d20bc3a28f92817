"""Resources: what a host may read besides calling tools, by URI."""

from collections.abc import Container, Iterable
from datetime import datetime
from itertools import islice
from typing import Final
from urllib.parse import quote, unquote

import mcp_types as types

from holdfast import recalled_block
from holdfast.doors.mcp.graph_tools import graph_of, shown_graph
from holdfast.doors.mcp.host_tool import RESULT_BYTES, encoded
from holdfast.doors.mcp.owners import HostMemories
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.longterm.records import Item, Recalled
from holdfast.memories.stores.records import Memory
from holdfast.tools.base import JSON

GRAPH_URI: Final = "memory://knowledge-graph"
ITEMS_MOST: Final = 100
PAGE: Final = 100
VERSIONS_MOST: Final = 200
"""Versions that are compared to find out whether a memory has moved."""
_SCHEME: Final = "holdfast://"
_TYPES: Final = {"md": "text/markdown", "json": "application/json"}
_JSON: Final = "application/json"
_PLAIN: Final = "text/plain"
_HELD: Final = "This note is held, as it reads as an order to a machine: a person may accept it."
_ABOUT_GRAPH: Final = "All entities and relations of the knowledge graph."
_ABOUT_NOTES: Final = "Paths and sizes of the notes."
_ABOUT_AGENT: Final = "What the agent knows at the start of a run."
_ABOUT_USER: Final = "What is remembered about the user, newest first."

TEMPLATE: Final = types.ResourceTemplate(
    uri_template="holdfast://stores/{store}/{+path}",
    name="note",
    title="A note",
    description="One file of the notes, as text.",
)


def uri_of(kind: str, *names: str) -> str:
    """Return a URI of a resource; each name is percent-encoded."""
    return _SCHEME + "/".join([kind, *(quote(each, safe="") for each in names)])


class HostResources:
    """The resources of one host."""

    def __init__(self, memories: HostMemories) -> None:
        self._memories = memories
        self._graph = memories.owners.profile == "graph" and memories.store is not None

    def listed(self, cursor: str | None) -> types.ListResourcesResult:
        """Return a page: the owners' resources, then the notes by path."""
        if self._graph:
            return types.ListResourcesResult(resources=[self._owned(GRAPH_URI, "knowledge-graph")])
        found = [] if cursor is not None else self._of_owners()
        store = self._memories.store_id()
        if store is None:
            if cursor is not None:
                raise InvalidInput("cursor", "is not one of this list", given=cursor)
            return types.ListResourcesResult(resources=found)
        page = self._memories.hf.memory_stores.memories.list(store, limit=PAGE, page=cursor)
        found += [self._note(store, each) for each in page.data if isinstance(each, Memory)]
        return types.ListResourcesResult(resources=found, next_cursor=page.next_page)

    def templates(self) -> types.ListResourceTemplatesResult:
        """Return the template of a note, if there is a store."""
        offered = self._memories.store is not None and not self._graph
        return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE] if offered else [])

    def read(self, uri: str) -> types.TextResourceContents:
        """Return the text of *uri*; raise NotFound for any that this host may not read."""
        kind, names = _parts(uri)
        text: str | None = None
        mime = _PLAIN
        if self._graph and uri == GRAPH_URI:
            text, mime = self._whole_graph(), _JSON
        elif kind == "durable" and names == [self._memories.owners.agent]:
            text = self._hydration()
        elif kind == "longterm" and names == [self._memories.owners.user]:
            text = self._items()
        elif kind == "stores" and names and names[0] == self._memories.store_id():
            text, mime = self._of_store(names[0], names[1:])
        if text is None:
            raise NotFound("resource", uri, next="List the resources for what there is.")
        return types.TextResourceContents(uri=uri, mime_type=mime, text=text)

    def store_id(self) -> str | None:
        """Return the id of the store whose memories are resources, if there is one."""
        return self._memories.store_id()

    def state(self, uri: str) -> object:
        """Return a value that differs after a change of *uri*, or None.

        A resource that is made of many rows has no such value: any event may change it.
        """
        kind, names = _parts(uri)
        if kind == "stores" and len(names) > 1 and names[0] == self._memories.store_id():
            memory = self._at(names[0], names[1:])
            return "" if memory is None else memory.content_sha256
        return None

    def moved(self, store: str, memory_id: str, versions: Container[str]) -> bool:
        """Return whether a memory's *versions* have another path than those before them."""
        page = self._memories.hf.memory_stores.memory_versions.list(store, memory_id=memory_id)
        paths = set[str | None]()
        for version in islice(page.all(), VERSIONS_MOST):
            paths.add(version.path)
            if version.id not in versions:
                break
        return len(paths) > 1

    def readable(self, uri: str) -> bool:
        """Return whether this host may read *uri*, or could once it exists."""
        kind, names = _parts(uri)
        return (
            (self._graph and uri == GRAPH_URI)
            or (kind == "durable" and names == [self._memories.owners.agent])
            or (
                kind == "longterm"
                and self._memories.longterm is not None
                and names == [self._memories.owners.user]
            )
            or (kind == "stores" and bool(names) and names[0] == self._memories.store_id())
        )

    def _of_owners(self) -> list[types.Resource]:
        memories, found = self._memories, list[types.Resource]()
        store = self._memories.store_id()
        if store is not None:
            found.append(self._owned(uri_of("stores", store), "notes"))
        if memories.durable is not None:
            found.append(self._owned(uri_of("durable", str(memories.owners.agent)), "agent"))
        if memories.longterm is not None:
            found.append(self._owned(uri_of("longterm", str(memories.owners.user)), "user"))
        return found

    def _owned(self, uri: str, name: str) -> types.Resource:
        """Return the resource that all of a memory is, with its size and last change."""
        about, last_change = {
            "knowledge-graph": (_ABOUT_GRAPH, self._store_change),
            "notes": (_ABOUT_NOTES, self._store_change),
            "agent": (_ABOUT_AGENT, self._agent_change),
            "user": (_ABOUT_USER, self._user_change),
        }[name]
        contents, changed = self.read(uri), last_change()
        return types.Resource(
            uri=uri,
            name=name,
            description=about,
            mime_type=contents.mime_type,
            size=len(contents.text.encode()),
            annotations=types.Annotations(last_modified=to_rfc3339(changed)) if changed else None,
        )

    def _store_change(self) -> datetime | None:
        store = self._memories.store_id()
        if store is None:
            return None
        stores = self._memories.hf.memory_stores
        newest = stores.memory_versions.list(store, limit=1).data
        return newest[0].created_at if newest else stores.retrieve(store).created_at

    def _agent_change(self) -> datetime | None:
        durable = self._memories.durable
        newest = durable.list(limit=1).data if durable is not None else ()
        return newest[0].updated_at if newest else None

    def _user_change(self) -> datetime | None:
        items = newest_items(self._memories, ITEMS_MOST)
        return max((each.item.updated_at for each in items if each.item), default=None)

    def _note(self, store: str, memory: Memory) -> types.Resource:
        return types.Resource(
            uri=uri_of("stores", store, *memory.path[1:].split("/")),
            name=memory.path,
            description="A note.",
            mime_type=_mime(memory.path),
            size=memory.content_size_bytes,
            annotations=types.Annotations(last_modified=to_rfc3339(memory.updated_at)),
        )

    def _of_store(self, store: str, segments: list[str]) -> tuple[str | None, str]:
        memories = self._memories.hf.memory_stores.memories
        if not segments:
            files: list[JSON] = [
                {
                    "path": each.path,
                    "size_bytes": each.content_size_bytes,
                    **({} if each.held is None else {"held": True}),
                }
                for each in memories.list(store, limit=PAGE).all()
                if isinstance(each, Memory)
            ]
            return _listing(files), _JSON
        memory = self._at(store, segments)
        if memory is None:
            return None, _PLAIN
        if memory.held is not None:
            return _HELD, _PLAIN
        return memory.content or "", _mime(memory.path)

    def _at(self, store: str, segments: list[str]) -> Memory | None:
        try:
            return self._memories.hf.memory_stores.memories.at(store, "/" + "/".join(segments))
        except InvalidInput:
            return None

    def _hydration(self) -> str:
        return "" if self._memories.durable is None else self._memories.durable.hydrate().render()

    def _items(self) -> str | None:
        if self._memories.longterm is None:
            return None
        return recalled_block(newest_items(self._memories, ITEMS_MOST), RESULT_BYTES)

    def _whole_graph(self) -> str:
        entities = graph_of(self._memories).entities()
        links = [link.public() for each in entities for link in each.links()]
        return encoded(shown_graph([each.public() for each in entities], links))


def newest_items(memories: HostMemories, most: int) -> list[Recalled]:
    """Return the newest items of the user, as a block shows them."""
    if memories.longterm is None:
        return []
    items: Iterable[Item] = memories.longterm.list("items", limit=most).data
    return [
        Recalled(
            item=item,
            turn=None,
            score=item.importance,
            similarity=0.0,
            relevance=0.0,
            recency=0.0,
            importance=item.importance,
            neighbours=None,
            why={"text": "listed"},
        )
        for item in items
    ]


def _listing(files: list[JSON]) -> str:
    """Return *files* as JSON of at most the size of a result."""
    low, high = 0, len(files)
    while low < high:
        middle = (low + high + 1) // 2
        text = encoded({"files": files[:middle], "omitted": len(files)})
        low, high = (middle, high) if len(text.encode()) <= RESULT_BYTES else (low, middle - 1)
    answer: dict[str, JSON] = {"files": files[:low]}
    return encoded(answer | ({"omitted": len(files) - low} if low < len(files) else {}))


def _mime(path: str) -> str:
    return _TYPES.get(path.rpartition(".")[2], _PLAIN)


def _parts(uri: str) -> tuple[str, list[str]]:
    """Return kind and names of a URI of ours; an empty kind for any other."""
    if not uri.startswith(_SCHEME):
        return "", []
    kind, *names = uri.removeprefix(_SCHEME).split("/")
    return kind, [unquote(each) for each in names]
