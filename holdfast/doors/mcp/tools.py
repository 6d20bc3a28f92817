"""The tools that a host lists, by its rights, and their calls.

Names, descriptions and input schemas are those of `holdfast.tools`; hints, titles and output
schemas are added here. They are the same bytes at each listing for the same rights.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files as package_files
from typing import Any, Final, cast

import mcp_types as types
import msgspec
from msgspec import Struct

from holdfast import tools
from holdfast.doors.mcp.graph_tools import graph_tools
from holdfast.doors.mcp.host_tool import (
    Hints,
    HostTool,
    block,
    encoded,
    failed,
    fitting,
    shortened_view,
)
from holdfast.doors.mcp.owners import HostMemories
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import EngineFault, HoldfastError, InvalidInput, NotFound, ToolRefused
from holdfast.memories.stores.records import Memory, Version
from holdfast.tools.base import JSON, Schema, Tool, is_error
from holdfast.tools.durable import read

ARGUMENT_BYTES: Final = 1_048_576
QUERY_CHARACTERS: Final = 2_048
ROOT: Final = "/memories"
_FAULT: Final = "engine_fault"


@cache
def words() -> dict[str, str]:
    """Return the fixed texts of `words.md` by name."""
    text = package_files("holdfast.doors.mcp").joinpath("words.md").read_text("utf-8")
    parts = [section.partition("\n") for section in text.split("\n## ")[1:]]
    return {name.strip(): body.strip() for name, _, body in parts}


_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer"}
_FLAG: Final = {"type": "boolean"}
_MAYBE: Final = {"type": ["string", "null"]}
_TEXTS: Final = {"type": "array", "items": _TEXT}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_GONE: Final = _list(_object(key=_TEXT, category=_TEXT))
_ENTRY: Final[dict[str, Schema]] = {
    "key": _TEXT,
    "category": _TEXT,
    "content": _TEXT,
    "tags": _TEXTS,
    "seq": _COUNT,
    "updated_at": _TEXT,
    "expires_at": _MAYBE,
    "scope": _TEXT,
    "by": _TEXT,
    "tier": _TEXT,
}

HINTS: Final[dict[str, Hints]] = {
    "ltm_recall": Hints(
        title="Recall about the user",
        read_only=True,
        output=_object(
            "results",
            "count",
            "mode",
            results=_list(
                _object(
                    id=_TEXT,
                    type=_TEXT,
                    text=_TEXT,
                    kind=_MAYBE,
                    speaker=_MAYBE,
                    at=_MAYBE,
                    importance={"type": ["number", "null"]},
                    score={"type": "number"},
                    why=_TEXT,
                )
            ),
            count=_COUNT,
            mode=_TEXT,
            omitted=_COUNT,
        ),
    ),
    "ltm_remember": Hints(
        title="Remember about the user",
        output=_object("stored", "outcome", stored=_FLAG, id=_MAYBE, outcome=_TEXT, message=_TEXT),
    ),
    "ltm_forget": Hints(
        title="Forget about the user",
        destructive=True,
        output=_object("forgotten", forgotten=_FLAG, items=_TEXTS, turns=_TEXTS),
    ),
    "memory_recall": Hints(
        title="Recall an entry",
        read_only=True,
        output=_object(
            "entry",
            entry={"type": ["object", "null"], "properties": _ENTRY},
            similar_keys=_TEXTS,
            omitted=_COUNT,
        ),
    ),
    "memory_list": Hints(
        title="List entries",
        read_only=True,
        output=_object(
            "entries", entries=_list(_object(**_ENTRY)), next_page=_MAYBE, omitted=_COUNT
        ),
    ),
    "memory_store": Hints(
        title="Store an entry",
        destructive=True,
        output=_object(
            "stored",
            "outcome",
            stored=_object(
                key=_TEXT,
                category=_TEXT,
                tags=_TEXTS,
                size_bytes=_COUNT,
                seq=_COUNT,
                expires_at=_MAYBE,
            ),
            outcome=_TEXT,
            evicted=_GONE,
            expired=_GONE,
            notices=_TEXTS,
        ),
    ),
    "memory_forget": Hints(
        title="Forget an entry",
        destructive=True,
        output=_object(
            "forgotten", forgotten=_FLAG, key=_TEXT, still_visible=_MAYBE, similar_keys=_TEXTS
        ),
    ),
    "memory": Hints(title="Read and write notes", destructive=True, idempotent=False),
    "memory_search": Hints(
        title="Search the notes",
        read_only=True,
        output=_object(
            "results",
            "count",
            results=_list(_object(path=_TEXT, snippet=_TEXT, score={"type": "number"}, tier=_TEXT)),
            count=_COUNT,
            omitted=_COUNT,
        ),
    ),
    "memory_history": Hints(
        title="Versions of a note",
        read_only=True,
        output=_object(
            "versions",
            "count",
            versions=_list(
                _object(
                    version_id=_TEXT,
                    operation=_TEXT,
                    at=_TEXT,
                    by=_TEXT,
                    size_bytes={"type": ["integer", "null"]},
                    redacted=_FLAG,
                )
            ),
            count=_COUNT,
            omitted=_COUNT,
        ),
    ),
    "memory_restore": Hints(
        title="Restore a version",
        output=_object("path", "version_id", path=_TEXT, version_id=_TEXT),
    ),
}
_READ_ONLY_FILES: Final = Hints(title="Read notes", read_only=True)


class SearchNotes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_search`."""

    query: str
    limit: int = 5


class NoteHistory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_history`."""

    path: str
    limit: int = 10


class RestoreVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_restore`."""

    version_id: str


class HostTools:
    """The tools of one host, by name, as its rights allow."""

    def __init__(self, memories: HostMemories, *, may_write: bool = True) -> None:
        self._memories = memories
        read_only = memories.owners.read_only or not may_write
        found = _offered(memories, read_only=read_only, touch=may_write)
        self.by_name = {
            each.tool.name: each for each in found if each.hints.read_only or not read_only
        }

    def listed(self) -> list[types.Tool]:
        """Return the definitions, in a fixed order."""
        return [each.definition for each in self.by_name.values()]

    def call(self, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Run a listed tool; a mistake of the model is a result with the error flag."""
        host_tool = self.by_name[name]
        try:
            _check_size(arguments)
            answer = self._answer(host_tool.tool, dict(arguments))
        except ToolRefused as refused:
            return failed(str(refused))
        except EngineFault:
            raise
        except HoldfastError as error:
            return host_tool.refused(error)
        if host_tool.hints.output is None:
            return types.CallToolResult(content=[block(shortened_view(str(answer)))])
        if is_error(answer):
            _raise_fault(answer)
            return failed(encoded(answer))
        shown = fitting(cast("dict[str, JSON]", answer))
        text = shown if host_tool.hints.content is None else shown[host_tool.hints.content]
        return types.CallToolResult(
            content=[block(text if isinstance(text, str) else encoded(text))],
            structured_content=shown,
        )

    def _answer(self, tool: Tool, arguments: dict[str, Any]) -> JSON:
        store = self._memories.store
        try:
            return tool.call(arguments)
        except NotFound as error:
            if store is None or not store.forget_missing(error):
                raise
        return tool.call(arguments)


def _raise_fault(answer: JSON) -> None:
    """Raise EngineFault for an error that is no mistake of the model."""
    if cast("Any", answer)["error"]["type"] == _FAULT:
        raise EngineFault("a tool has failed")


def _check_size(arguments: Mapping[str, Any]) -> None:
    try:
        size = len(msgspec.json.encode(arguments))
    except (UnicodeError, RecursionError):
        raise InvalidInput(
            "arguments",
            "must be text of whole characters, not nested too deep",
            next="Correct the arguments, and call again.",
        ) from None
    if size > ARGUMENT_BYTES:
        raise InvalidInput(
            "arguments",
            "must be at most 1 MiB as JSON",
            limit=ARGUMENT_BYTES,
            next="Send less in one call.",
        )


def _offered(memories: HostMemories, *, read_only: bool, touch: bool) -> list[HostTool]:
    owners = memories.owners
    if owners.profile == "graph":
        return graph_tools(memories)
    found: list[Tool] = []
    if owners.profile != "files":
        found += tools.longterm(memories.longterm, touch=touch)
        found += tools.durable(memories.durable) if memories.durable is not None else []
    if memories.store is not None:
        found += tools.files(memories.hf, memories.store.id, read_only=read_only)
        found += _note_tools(memories) if owners.profile == "full" else []
    return [HostTool(tool=each, hints=_hints(each, read_only=read_only)) for each in found]


def _hints(tool: Tool, *, read_only: bool) -> Hints:
    return _READ_ONLY_FILES if tool.name == "memory" and read_only else HINTS[tool.name]


def _note_tools(memories: HostMemories) -> list[Tool]:
    text = words()
    acts: dict[str, tuple[Callable[[HostMemories, object], JSON], Schema, tuple[str, ...]]] = {
        "search": (
            _search,
            {
                "query": _bounded_text("search.query", QUERY_CHARACTERS),
                "limit": _bounded("search.limit", 20),
            },
            ("query",),
        ),
        "history": (
            _history,
            {"path": _bounded_text("history.path"), "limit": _bounded("history.limit", 50)},
            ("path",),
        ),
        "restore": (_restore, {"version_id": _bounded_text("restore.version_id")}, ("version_id",)),
    }

    def made(name: str) -> Tool:
        act, properties, required = acts[name]
        return Tool(
            id=f"notes.{name}",
            name=f"memory_{name}",
            description=text[name],
            parameters={
                "type": "object",
                "required": list(required),
                "additionalProperties": False,
                "properties": properties,
            },
            work=lambda arguments: act(memories, arguments),
            refused=is_error,
            checks=True,
        )

    return [made(name) for name in acts]


def _bounded_text(name: str, most: int | None = None) -> Schema:
    limits = {"minLength": 1} | ({"maxLength": most} if most else {})
    return {"type": "string", **limits, "description": words()[name]}


def _bounded(name: str, most: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most, "description": words()[name]}


def _search(memories: HostMemories, arguments: object) -> JSON:
    params = read(SearchNotes, arguments)
    if not 1 <= params.limit <= 20:  # noqa: PLR2004 - as the schema says
        raise InvalidInput("limit", "must be 1 to 20", given=params.limit, next="Give 1 to 20.")
    if not 1 <= len(params.query) <= QUERY_CHARACTERS:
        reason = f"must be 1 to {QUERY_CHARACTERS:,} characters"
        raise InvalidInput("query", reason, next="Search for fewer words.")
    store = _store_id(memories)
    found = (
        memories.hf.memory_stores.memories.search(store, params.query, limit=params.limit)
        if store is not None
        else []
    )
    results: list[JSON] = [
        {
            "path": f"{ROOT}{each.memory.path}",
            "snippet": each.snippet if each.memory.held is None else "(held)",
            "score": each.score,
            "tier": each.memory.tier,
        }
        for each in found
    ]
    return {"results": results, "count": len(results)}


def _history(memories: HostMemories, arguments: object) -> JSON:
    params = read(NoteHistory, arguments)
    if not 1 <= params.limit <= 50:  # noqa: PLR2004 - as the schema says
        raise InvalidInput("limit", "must be 1 to 50", given=params.limit, next="Give 1 to 50.")
    path = _path_of(params.path)
    store = _store_id(memories)
    memory_id = None if store is None else _memory_id(memories, store, path)
    if store is None or memory_id is None:
        raise NotFound("file", params.path, next="View /memories, or search, for what there is.")
    page = memories.hf.memory_stores.memory_versions.list(
        store, memory_id=memory_id, limit=params.limit
    )
    versions: list[JSON] = [_version(each) for each in page.data]
    return {"versions": versions, "count": len(versions)}


def _version(version: Version) -> JSON:
    shown: dict[str, JSON] = {
        "version_id": version.id,
        "operation": version.operation,
        "at": to_rfc3339(version.created_at),
        "by": version.created_by.id,
        "size_bytes": version.content_size_bytes,
    }
    return shown | {"redacted": True} if version.redacted_at is not None else shown


def _restore(memories: HostMemories, arguments: object) -> JSON:
    params = read(RestoreVersion, arguments)
    store = _store_id(memories)
    if store is None:
        raise NotFound("version", params.version_id, next="Take an id from the file's history.")
    memory = memories.hf.memory_stores.memory_versions.restore(
        params.version_id, memory_store_id=store
    )
    return {"path": f"{ROOT}{memory.path}", "version_id": memory.memory_version_id}


def _store_id(memories: HostMemories) -> str | None:
    return None if memories.store is None else memories.store.id()


def _path_of(given: str) -> str:
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        raise InvalidInput(
            "path", f"must start with {ROOT}/", given=given, next=f"Write {ROOT}/… for the file."
        )
    return given.removeprefix(ROOT)


def _memory_id(memories: HostMemories, store: str, path: str) -> str | None:
    """Return the id of the memory at *path*, or of the one deleted there last."""
    stores = memories.hf.memory_stores
    memory: Memory | None = stores.memories.at(store, path)
    if memory is not None:
        return memory.id
    deleted = stores.memory_versions.list(store, operation="deleted", limit=100).all()
    return next((each.memory_id for each in deleted if each.path == path), None)
