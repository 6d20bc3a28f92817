"""Operations of memory stores, their memories and versions."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.ground.ids import KINDS
from holdfast.library.operations.base import (
    MIB,
    Operation,
    OperationTable,
    Param,
    RawText,
    WireForm,
    field_form,
)
from holdfast.memories.stores.changes import WAIT_MAX
from holdfast.memories.stores.edits import Edit
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
    """Edits to apply together, and the id under which they are applied once."""

    edit_id: str
    edits: list[Edit]


def bounds(*names: str) -> dict[str, Param]:
    """Return the bounds of creation times *names* as `created_at[…]` of a query."""
    return {f"created_at_{each}": Param(wire=f"created_at[{each}]") for each in names}


def _edits(given: object) -> object:
    """Encode edits for a body; invalid ones are left for the server to refuse."""
    if not isinstance(given, list | tuple):
        return given
    edits = cast("Sequence[object]", given)
    return [msgspec.to_builtins(each) if isinstance(each, Struct) else each for each in edits]


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
_delete = partial(Operation, method="DELETE", special=_SEGMENTS, result=DELETED)

MEMORY_STORES: Final = OperationTable(
    facade=MemoryStores,
    paging_last=False,
    operations=(
        _post(
            name="memory_stores.create",
            path=_STORES,
            summary="Create a memory store.",
            params=CreateStore,
            result=_STORE_FORM,
        ),
        _get(
            name="memory_stores.list",
            path=_STORES,
            summary="List memory stores, newest first.",
            result=_STORE_FORM,
            paged=True,
            lane="slow",
        ),
        _get(
            name="memory_stores.retrieve",
            path=_STORE,
            summary="Retrieve a memory store.",
            result=_STORE_FORM,
            session="store",
        ),
        _post(
            name="memory_stores.update",
            path=_STORE,
            summary="Update a memory store's name, description or metadata.",
            params=UpdateStore,
            result=_STORE_FORM,
            existence="store",
        ),
        _post(
            name="memory_stores.archive",
            path=f"{_STORE}/archive",
            summary="Make a memory store read-only for good.",
            result=_STORE_FORM,
            retry="safe",
        ),
        _delete(
            name="memory_stores.delete",
            path=_STORE,
            summary="Delete a memory store with all that is in it.",
            scope="admin",
            lane="slow",
        ),
        _get(
            name="memory_stores.settings",
            path=_SETTINGS,
            summary="Retrieve the settings of the workspace's stores.",
            result=_SETTINGS_FORM,
        ),
        _post(
            name="memory_stores.configure",
            path=_SETTINGS,
            summary="Change the settings of the workspace's stores.",
            scope="admin",
            params=ChangeSettings,
            result=_SETTINGS_FORM,
            retry="safe",
            lane="slow",
        ),
    ),
)

UPDATE: Final = _post(
    name="memory_stores.memories.update",
    path=_MEMORY,
    summary="Update a memory's content, path or both.",
    params=UpdateMemory,
    special=_ID,
    result=MEMORY,
    session="store",
    existence="memory",
    retry="guarded",
    unchanged=_found_in_place,
)
CHANGES: Final = _read(
    name="memory_stores.memories.changes",
    path=f"{_OUR_STORE}/changes",
    summary="Retrieve what changed after a number, with an optional wait.",
    result=record_form(ChangesPage),
    waits=("wait", WAIT_MAX),
)
MEMORIES: Final = OperationTable(
    facade=Memories,
    paging_last=False,
    operations=(
        _write(
            name="memory_stores.memories.create",
            path=_MEMORIES,
            summary="Create a memory at a path that is free.",
            params=CreateMemory,
            result=MEMORY,
        ),
        _read(
            name="memory_stores.memories.list",
            path=_MEMORIES,
            summary="List memories by path.",
            result=WireForm(encodable, _listed),
            paged=True,
            lane="page",
        ),
        _read(
            name="memory_stores.memories.retrieve",
            path=_MEMORY,
            summary="Retrieve a memory.",
            special=_ID,
            result=MEMORY,
            existence="memory",
            lane="quick",
        ),
        # A client takes the last one.
        replace(UPDATE, method="PATCH"),
        UPDATE,
        _delete(
            name="memory_stores.memories.delete",
            path=_MEMORY,
            summary="Delete a memory; its versions stay.",
            scope="write",
            special=_ID,
            session="store",
            existence="memory",
            lane="write",
        ),
        _read(
            name="memory_stores.memories.at",
            path=f"{_OUR_STORE}/at",
            summary="Retrieve the memory at a path.",
            special={**_SEGMENTS, "path": Param(type=RawText)},
            result=MEMORY,
            missing=(KINDS["mem"], "Check the path, or list the memories."),
            lane="quick",
        ),
        _read(
            name="memory_stores.memories.search",
            path=f"{_OUR_STORE}/search",
            summary="Find memories by the words of their paths and contents.",
            special={**_SEGMENTS, "query": Param(wire="q", type=RawText)},
            result=list_form(Match),
        ),
        _write(
            name="memory_stores.memories.rename",
            path=f"{_OUR_STORE}/rename",
            summary="Move a memory, or everything below a directory, at once.",
            params=RenameBody,
            result=list_form(Memory),
        ),
        _write(
            name="memory_stores.memories.delete_under",
            path=f"{_OUR_STORE}/delete_under",
            summary="Delete a memory, or everything below a directory, at once.",
            params=DeleteUnder,
            result=field_form("deleted", int),
        ),
        _read(
            name="memory_stores.memories.snapshot",
            path=f"{_OUR_STORE}/snapshot",
            summary="Retrieve all memories of a store at one moment.",
            result=WireForm(_snapshot, partial(from_wire, Snapshot)),
        ),
        CHANGES,
        _write(
            name="memory_stores.memories.apply",
            path=f"{_OUR_STORE}/apply",
            summary="Do several edits at once, and only once.",
            params=Apply,
            special={**_SEGMENTS, "edits": Param(encode=_edits)},
            result=list_form(Applied),
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
            name="memory_stores.memory_versions.list",
            path=_VERSIONS,
            summary="List versions of memories, newest first.",
            result=_VERSION_FORM,
            paged=True,
        ),
        _read(
            name="memory_stores.memory_versions.retrieve",
            path=_VERSION,
            summary="Retrieve a version.",
            result=_VERSION_FORM,
            existence="version",
            lane="quick",
        ),
        _post(
            name="memory_stores.memory_versions.redact",
            path=f"{_VERSION}/redact",
            summary="Clear a version's content, hash and path for good.",
            scope="admin",
            result=_VERSION_FORM,
            retry="safe",
            lane="slow",
        ),
        _write(
            name="memory_stores.memory_versions.restore",
            path=f"{_OUR_STORE}/memory_versions/{{v}}/restore",
            summary="Make a version's content the memory's again.",
            result=MEMORY,
            unchanged=_found_in_place,
        ),
        _read(
            name="memory_stores.memory_versions.diff",
            path=f"{_OUR_STORE}/diff",
            summary="Compare two versions as a unified diff.",
            special={
                **_SEGMENTS,
                "from_id": Param(wire="from"),
                "to_id": Param(wire="to"),
            },
            result=WireForm(
                lambda text: {"type": "memory_diff", "diff": text}, field_form("diff", str).decode
            ),
            echo=("from_id", "to_id"),
        ),
    ),
)
