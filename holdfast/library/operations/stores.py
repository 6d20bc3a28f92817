"""Operations of memory stores, their memories and versions."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.ground.ids import KINDS
from holdfast.library.operations.base import (
    AT,
    MIB,
    Operation,
    OperationTable,
    Param,
    RawText,
    WireForm,
    field_form,
    time_text,
)
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.history import WAIT_MAX
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import (
    Applied,
    ChangesPage,
    Deleted,
    JSONObject,
    Match,
    Memory,
    MemoryPrefix,
    Record,
    Snapshot,
    Store,
    StoreRestore,
    StoreSettings,
    Version,
    encodable,
    from_wire,
    record_to_wire,
)
from holdfast.memories.stores.stores import MemoryStores
from holdfast.memories.stores.versions import Versions

R = TypeVar("R", bound=Record)

_STORES: Final = "/v1/memory_stores"
_STORE: Final = f"{_STORES}/{{s}}"
_MEMORIES: Final = f"{_STORE}/memories"
_MEMORY: Final = f"{_MEMORIES}/{{m}}"
_VERSIONS: Final = f"{_STORE}/memory_versions"
_VERSION: Final = f"{_VERSIONS}/{{v}}"
_OUR_STORE: Final = "/api/memory_stores/{s}"
_SETTINGS: Final = "/api/settings/memory_stores"


def record_form(make: type[R]) -> WireForm[R]:
    """Return the form of one record."""
    return WireForm(encodable, partial(from_wire, make))


def list_form(make: type[R], **fields: object) -> WireForm[Sequence[R]]:
    """Return the form of all records of a list; *fields* stand beside them."""
    return WireForm(
        lambda records: {"data": [encodable(each) for each in records], **fields},
        lambda wire: [from_wire(make, each) for each in wire["data"]],
    )


def _listed(wire: JSONObject) -> Memory | MemoryPrefix:
    return from_wire(MemoryPrefix if wire.get("type") == "memory_prefix" else Memory, wire)


def _snapshot(found: Snapshot) -> JSONObject:
    fields = record_to_wire(replace(found, memories=()))
    return {**fields, "memories": [encodable(each) for each in found.memories]}


DELETED: Final = record_form(Deleted)
MEMORY: Final = record_form(Memory)
_STORE_FORM: Final = record_form(Store)
_VERSION_FORM: Final = record_form(Version)
_SETTINGS_FORM: Final = record_form(StoreSettings)


class CreateStore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new store."""

    name: str
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET


class UpdateStore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a store: null leaves a field, and removes a pair of metadata."""

    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


class ChangeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings to change; what is left out stays."""

    memories_cap: int | UnsetType = UNSET


class RestoreStore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moment to bring a store back to, and whether only to say how."""

    at: str
    dry_run: bool = False
    expected_seq: int | None = None


class CreateMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new memory."""

    path: str
    content: str | None


class UpdateMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a memory; the precondition is about its current content."""

    content: str | UnsetType | None = UNSET
    path: str | UnsetType | None = UNSET
    precondition: dict[str, str] | UnsetType | None = UNSET


class RenameBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Old and new path of a memory or a directory."""

    old_path: str
    new_path: str


class DeleteUnder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Path of a memory or a directory to delete."""

    path: str


class Apply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Edits to apply together, once for each id, and where they came from."""

    edit_id: str
    edits: list[Edit]
    origin_ref: str | None = None


def bounds(*names: str) -> dict[str, Param]:
    """Return the bounds of creation times *names* as `created_at[…]` of a query."""
    return {f"created_at_{each}": Param(wire=f"created_at[{each}]") for each in names}


def _edits(given: object) -> object:
    """Encode edits for a body; invalid ones are left for the server to refuse."""
    if not isinstance(given, list | tuple):
        return given
    edits = cast("Sequence[object]", given)
    return [msgspec.to_builtins(each) if isinstance(each, Struct) else each for each in edits]


def _ids(given: Iterable[str]) -> list[str]:
    return list(given)


def _found_in_place(memory: Memory, requested_at: datetime) -> bool:
    return memory.updated_at < requested_at


def _changed_nothing(applied: Sequence[Applied], _: datetime) -> bool:
    return not any(each.changed for each in applied)


_SEGMENTS: Final = {
    "memory_store_id": Param(wire="s"),
    "memory_version_id": Param(wire="v"),
    **bounds("gte", "lte"),
}
_ID: Final = {**_SEGMENTS, "memory_id": Param(wire="m")}

_get = partial(Operation, method="GET", scope="read", special=_SEGMENTS)
_post = partial(Operation, method="POST", scope="write", special=_SEGMENTS, lane="write")
_read = partial(_get, session="store", existence="store", lane="slow")
_write = partial(_post, session="store", existence="store")
_delete = partial(Operation, method="DELETE", special=_SEGMENTS)

MEMORY_STORES: Final = OperationTable(
    facade=MemoryStores,
    paging_last=False,
    operations=(
        _post(
            "memory_stores.create",
            _STORES,
            "Create a memory store.",
            _STORE_FORM,
            params=CreateStore,
        ),
        _get(
            "memory_stores.list",
            _STORES,
            "List memory stores, newest first.",
            _STORE_FORM,
            paged=True,
            lane="slow",
        ),
        _get(
            "memory_stores.retrieve",
            _STORE,
            "Retrieve a memory store.",
            _STORE_FORM,
            session="store",
        ),
        _post(
            "memory_stores.update",
            _STORE,
            "Update a memory store's name, description or metadata.",
            _STORE_FORM,
            params=UpdateStore,
            existence="store",
        ),
        _post(
            "memory_stores.archive",
            f"{_STORE}/archive",
            "Make a memory store read-only for good.",
            _STORE_FORM,
            retry="safe",
        ),
        _delete(
            "memory_stores.delete",
            _STORE,
            "Delete a memory store with all that is in it.",
            DELETED,
            scope="admin",
            lane="slow",
        ),
        _get(
            "memory_stores.sizes",
            "/api/memory_stores/sizes",
            "Count the memories of stores.",
            field_form("sizes", dict[str, int]),
            special={"memory_store_ids": Param(wire="id", encode=_ids)},
            lane="slow",
        ),
        _post(
            "memory_stores.restore",
            f"{_OUR_STORE}/restore",
            "Bring the memories of a store back to an earlier moment, at once.",
            record_form(StoreRestore),
            params=RestoreStore,
            special={**_SEGMENTS, "at": Param(encode=time_text)},
            existence="store",
            lane="slow",
        ),
        _get(
            "memory_stores.settings",
            _SETTINGS,
            "Retrieve the settings of the workspace's stores.",
            _SETTINGS_FORM,
        ),
        _post(
            "memory_stores.configure",
            _SETTINGS,
            "Change the settings of the workspace's stores.",
            _SETTINGS_FORM,
            scope="admin",
            params=ChangeSettings,
            retry="safe",
            lane="slow",
        ),
    ),
)

UPDATE: Final = _post(
    "memory_stores.memories.update",
    _MEMORY,
    "Update a memory's content, path or both.",
    MEMORY,
    params=UpdateMemory,
    special=_ID,
    session="store",
    existence="memory",
    retry="guarded",
    unchanged=_found_in_place,
)
CHANGES: Final = _read(
    "memory_stores.memories.changes",
    f"{_OUR_STORE}/changes",
    "Retrieve what changed after a number, with an optional wait.",
    record_form(ChangesPage),
    waits=("wait", WAIT_MAX),
)
_LISTED: Final = WireForm(encodable, _listed)
PAST_MEMORIES: Final = OperationTable(
    facade=Memories,
    paging_last=False,
    operations=(
        _read(
            "memory_stores.memories.list",
            f"{_OUR_STORE}/memories",
            "List memories by path, as they were at an earlier moment.",
            _LISTED,
            special={**_SEGMENTS, "at": AT},
            paged=True,
        ),
    ),
)
"""The list of memories on a route of our own, which knows earlier moments."""
MEMORIES: Final = OperationTable(
    facade=Memories,
    paging_last=False,
    operations=(
        _write(
            "memory_stores.memories.create",
            _MEMORIES,
            "Create a memory at a path that is free.",
            MEMORY,
            params=CreateMemory,
        ),
        _read(
            "memory_stores.memories.list",
            _MEMORIES,
            "List memories by path.",
            _LISTED,
            # The contract does not know it.
            special={**_SEGMENTS, "at": Param(sent=False)},
            paged=True,
            lane="page",
        ),
        _read(
            "memory_stores.memories.retrieve",
            _MEMORY,
            "Retrieve a memory.",
            MEMORY,
            special=_ID,
            existence="memory",
            lane="quick",
        ),
        # A client takes the last one.
        replace(UPDATE, method="PATCH"),
        UPDATE,
        _delete(
            "memory_stores.memories.delete",
            _MEMORY,
            "Delete a memory; its versions stay.",
            DELETED,
            scope="write",
            special=_ID,
            session="store",
            existence="memory",
            lane="write",
        ),
        _read(
            "memory_stores.memories.at",
            f"{_OUR_STORE}/at",
            "Retrieve the memory at a path.",
            MEMORY,
            special={**_SEGMENTS, "path": Param(type=RawText), "at": AT},
            missing=(KINDS["mem"], "path", "Check the path, or list the memories."),
            lane="quick",
        ),
        _read(
            "memory_stores.memories.search",
            f"{_OUR_STORE}/search",
            "Find memories by the words of their paths and contents.",
            list_form(Match),
            special={**_SEGMENTS, "query": Param(wire="q", type=RawText)},
        ),
        _write(
            "memory_stores.memories.rename",
            f"{_OUR_STORE}/rename",
            "Move a memory, or everything below a directory, at once.",
            list_form(Memory),
            params=RenameBody,
        ),
        _write(
            "memory_stores.memories.delete_under",
            f"{_OUR_STORE}/delete_under",
            "Delete a memory, or everything below a directory, at once.",
            field_form("deleted", int),
            params=DeleteUnder,
        ),
        _read(
            "memory_stores.memories.snapshot",
            f"{_OUR_STORE}/snapshot",
            "Retrieve all memories of a store at one moment.",
            WireForm(_snapshot, partial(from_wire, Snapshot)),
        ),
        CHANGES,
        _post(
            "memory_stores.memories.accept",
            f"{_OUR_STORE}/memories/{{m}}/accept",
            "Release a held memory, which a person confirms by it.",
            MEMORY,
            special=_ID,
            existence="memory",
        ),
        _write(
            "memory_stores.memories.apply",
            f"{_OUR_STORE}/apply",
            "Do several edits at once, and only once.",
            list_form(Applied),
            params=Apply,
            special={**_SEGMENTS, "edits": Param(encode=_edits)},
            limit=32 * MIB,
            retry="safe",
            unchanged=_changed_nothing,
        ),
    ),
)

VERSIONS: Final = OperationTable(
    facade=Versions,
    paging_last=False,
    operations=(
        _read(
            "memory_stores.memory_versions.list",
            _VERSIONS,
            "List versions of memories, newest first.",
            _VERSION_FORM,
            paged=True,
        ),
        _read(
            "memory_stores.memory_versions.retrieve",
            _VERSION,
            "Retrieve a version.",
            _VERSION_FORM,
            existence="version",
            lane="quick",
        ),
        _post(
            "memory_stores.memory_versions.redact",
            f"{_VERSION}/redact",
            "Clear a version's content, hash and path for good.",
            _VERSION_FORM,
            scope="admin",
            retry="safe",
            lane="slow",
        ),
        _write(
            "memory_stores.memory_versions.restore",
            f"{_OUR_STORE}/memory_versions/{{v}}/restore",
            "Make a version's content the memory's again.",
            MEMORY,
            unchanged=_found_in_place,
        ),
        _read(
            "memory_stores.memory_versions.diff",
            f"{_OUR_STORE}/diff",
            "Compare two versions as a unified diff.",
            WireForm(
                lambda text: {"type": "memory_diff", "diff": text}, field_form("diff", str).decode
            ),
            special={**_SEGMENTS, "from_id": Param(wire="from"), "to_id": Param(wire="to")},
            echo=("from_id", "to_id"),
        ),
    ),
)
