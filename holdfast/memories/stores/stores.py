"""Create, list, change, archive and delete stores, and configure them."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.pages import Page, digest, write_cursor
from holdfast.ground.text import first_of_category
from holdfast.ground.validation import check_limit, check_text, check_whole
from holdfast.memories.stores.history import restore
from holdfast.memories.stores.memories import Memories
from holdfast.memories.stores.records import (
    Deleted,
    Metadata,
    Store,
    StoreRestore,
    StoreSettings,
)
from holdfast.memories.stores.rows import (
    StoresContext,
    existence_first,
    missing,
    reach,
    refuse_narrowed,
    sought,
    store_of,
)
from holdfast.memories.stores.transaction import (
    MEMORIES_CAP,
    StoreTransaction,
    first_link,
    forget_proposals,
)
from holdfast.memories.stores.validation import (
    after_age,
    age_key,
    bounds,
    checked_metadata,
    given_or_none,
    patched_metadata,
)
from holdfast.memories.stores.versions import Versions
from holdfast.memories.stores.write import heads_under

NAME_MAX, DESCRIPTION_MAX = 255, 1024
CAP_MAX = 1_000_000
SIZES_MOST = 100
EMPTY: Metadata = {}


class MemoryStores:
    """The memory stores of a workspace.

    `memories` and `memory_versions` act within one store.
    """

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql
        self.memories = Memories(context)
        self.memory_versions = Versions(context)

    def create(
        self,
        *,
        name: str,
        description: str | UnsetType | None = UNSET,
        metadata: Metadata | UnsetType | None = UNSET,
    ) -> Store:
        """Create a store. *name* has 1 to 255 characters, *description* at most 1,024."""
        refuse_narrowed(self._context, "write")
        checked_name(name)
        described = checked_description(_given_or("", description))
        pairs = checked_metadata(_given_or(EMPTY, metadata))
        context = self._context

        def work(tx: Transaction) -> Store:
            return insert_store(context, tx, name=name, description=described, metadata=pairs)

        return context.engine.write(work)

    def retrieve(self, memory_store_id: str) -> Store:
        """Return the store, an archived one too; else raise NotFound."""
        reach(self._context, self._context.engine, memory_store_id, write=False)
        store = self._context.engine.first(
            store_of, self._sql.get_store, store=sought("memstore", memory_store_id)
        )
        if store is None:
            raise missing("memstore", memory_store_id)
        return store

    def update(
        self,
        memory_store_id: str,
        *,
        name: str | UnsetType | None = UNSET,
        description: str | UnsetType | None = UNSET,
        metadata: dict[str, str | None] | UnsetType | None = UNSET,
    ) -> Store:
        """Change the given fields; None leaves a field unchanged.

        *metadata* is a patch: a string sets, None removes, a missing key stays. Raises
        InvalidInput, NotFound, StoreArchived.
        """
        refuse_narrowed(self._context, "write")
        new_name, new_description = given_or_none(name), given_or_none(description)
        patch = _given_or(EMPTY, metadata)
        with existence_first(self._context, memory_store_id, write=True):
            if new_name is not None:
                checked_name(new_name)
            if new_description is not None:
                checked_description(new_description)
            patched_metadata(EMPTY, patch)

        def work(tx: Transaction) -> Store:
            unit = StoreTransaction(self._context, tx, memory_store_id)
            unit.refuse_archived()
            before = unit.store.record()
            after = msgspec.structs.replace(
                before,
                name=before.name if new_name is None else new_name,
                description=before.description if new_description is None else new_description,
                metadata=patched_metadata(before.metadata, patch),
            )
            return before if after == before else self._changed(tx, unit, after, "updated")

        return self._context.engine.write(work)

    def archive(self, memory_store_id: str) -> Store:
        """Make the store read-only for good; a repeat changes nothing. Raises NotFound."""
        refuse_narrowed(self._context, "write")

        def work(tx: Transaction) -> Store:
            unit = StoreTransaction(self._context, tx, memory_store_id)
            before = unit.store.record()
            if before.archived_at is not None:
                return before
            at = from_microseconds(unit.now)
            after = msgspec.structs.replace(before, archived_at=at)
            return self._changed(tx, unit, after, "archived")

        return self._context.engine.write(work)

    def _changed(self, tx: Transaction, unit: StoreTransaction, after: Store, what: str) -> Store:
        at = from_microseconds(unit.now)
        tx.send(
            self._sql.update_store,
            store=after.id,
            name=after.name,
            description=after.description,
            metadata=_json(after.metadata),
            now=unit.now,
            archived_at=None if after.archived_at is None else unit.now,
        )
        _note(self._context, tx, f"store.{what}", at, after.id)
        return msgspec.structs.replace(after, updated_at=at)

    def delete(self, memory_store_id: str) -> Deleted:
        """Delete the store with its memories and versions, and erase their bytes.

        Sessions keep the name and description of their attachment. Raises NotFound.
        """
        refuse_narrowed(self._context, "admin")

        def work(tx: Transaction) -> None:
            unit = StoreTransaction(self._context, tx, memory_store_id)
            for head in heads_under(tx, self._sql.heads_under, memory_store_id, "/"):
                unit.unindex([head])
            memories = tx.run(self._sql.delete_memories_of_store, store=memory_store_id)
            versions = tx.run(self._sql.delete_versions_of_store, store=memory_store_id)
            tx.send(self._sql.delete_edits_of_store, store=memory_store_id)
            forget_proposals(tx, self._sql, memory_store_id)
            tx.send(self._sql.delete_store, store=memory_store_id)
            at = from_microseconds(unit.now)
            data = {"memories": memories, "versions": versions}
            _note(self._context, tx, "store.deleted", at, memory_store_id, **data)

        self._context.engine.write(work)
        self._context.engine.scrub()
        return Deleted(id=memory_store_id, type="memory_store_deleted")

    def list(
        self,
        *,
        limit: int | None = None,
        page: str | None = None,
        include_archived: bool = False,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[Store]:
        """Return the stores of the workspace, newest first.

        *limit* is 1 to 100, 20 unless given. Archived stores are included only with
        *include_archived*; the bounds are inclusive.
        """
        refuse_narrowed(self._context, "read")
        rows = check_limit(limit)
        oldest, newest = bounds(gte=created_at_gte, lte=created_at_lte)
        filters = digest(self._context.workspace, include_archived, oldest, newest)
        at, last_id = after_age(page, "memory_stores", filters, newest)
        found = self._context.engine.all(
            store_of,
            self._sql.list_stores,
            archived=int(include_archived),
            oldest=oldest,
            at=at,
            id=last_id,
            rows=rows + 1,
        )
        data = found[:rows]
        last = data[-1] if len(found) > rows else None
        return Page(
            data,
            last and write_cursor("memory_stores", filters, age_key(last.created_at, last.id)),
            more=lambda page: self.list(
                limit=limit,
                page=page,
                include_archived=include_archived,
                created_at_gte=created_at_gte,
                created_at_lte=created_at_lte,
            ),
        )

    def sizes(self, memory_store_ids: Iterable[str] = ()) -> dict[str, int]:
        """Return how many memories each of the stores has, by id.

        At most 100 ids; a store that is not there is left out.
        """
        refuse_narrowed(self._context, "read")
        ids = list(dict.fromkeys(memory_store_ids))
        if len(ids) > SIZES_MOST:
            reason = f"must be at most {SIZES_MOST} ids"
            raise InvalidInput("memory_store_ids", reason, limit=SIZES_MOST, given=str(len(ids)))
        sought_ids = msgspec.json.encode([sought("memstore", id) for id in ids]).decode()
        return dict(self._context.engine.all(_size, self._sql.store_sizes, ids=sought_ids))

    def restore(
        self,
        memory_store_id: str,
        *,
        at: datetime | str,
        dry_run: bool = False,
        expected_seq: int | None = None,
    ) -> StoreRestore:
        """Bring the memories of the store back to the moment *at*, in one transaction.

        *at* is an aware datetime or RFC 3339. Memories that came since are deleted, others get path
        and content of then, and deleted ones return with their ids; every change is a new version.
        A memory with a redacted version of then stays as it is, and is counted in `erased`. A
        *dry_run* only returns the edits; with its `seq` as *expected_seq* they are made only if
        nothing was written since. Raises InvalidInput, NotFound, StoreArchived, PreconditionFailed,
        StoreFull, and PathTaken if a memory that stays is in the way.
        """
        return restore(
            self._context, memory_store_id, at, dry_run=dry_run, expected_seq=expected_seq
        )

    def settings(self) -> StoreSettings:
        """Return the settings of all stores of the workspace."""
        refuse_narrowed(self._context, "read")
        found = self._context.engine.first(StoreSettings, self._sql.get_settings)
        return found or StoreSettings(
            memories_cap=MEMORIES_CAP, versions_keep_days=None, versions_keep_last=None
        )

    def configure(self, *, memories_cap: int | UnsetType = UNSET) -> StoreSettings:
        """Set the greatest number of live memories in a store, 1 to 1,000,000.

        It applies from the next write on, in every process. Returns the new settings.
        """
        refuse_narrowed(self._context, "admin")
        if memories_cap is UNSET:
            return self.settings()
        reason = f"must be 1 to {CAP_MAX:,}"
        check_whole("memories_cap", memories_cap, reason, least=1, most=CAP_MAX, limit=CAP_MAX)

        def work(tx: Transaction) -> StoreSettings:
            tx.run(self._sql.set_memories_cap, memories_cap=memories_cap)
            return tx.one(StoreSettings, self._sql.get_settings)

        return self._context.engine.write(work)


def insert_store(
    context: StoresContext, tx: Transaction, *, name: str, description: str, metadata: Metadata
) -> Store:
    """Create a store in *tx*, with checked values, and return it."""
    now = context.now()
    store_id = context.ids.new("memstore", now)
    at = from_microseconds(now)
    tx.send(
        context.sql.insert_store,
        id=store_id,
        name=name,
        description=description,
        metadata=_json(metadata),
        now=now,
        seq=tx.seq,
        link=first_link(store_id),
    )
    _note(context, tx, "store.created", at, store_id)
    return Store(
        id=store_id,
        name=name,
        description=description,
        metadata=metadata,
        created_at=at,
        updated_at=at,
        archived_at=None,
    )


def _note(
    context: StoresContext, tx: Transaction, type: str, at: datetime, store_id: str, **data: Fact
) -> None:
    tx.note(
        Event(
            type=type,
            at=at,
            workspace=context.workspace,
            actor=context.actor,
            ids={"memory_store_id": store_id},
            data=data,
        )
    )


def checked_name(given: object) -> str:
    """Return *given* if it is the name of a store.

    It has 1 to 255 characters and no control characters.
    """
    name = check_text("name", given, least=1, most=NAME_MAX)
    if (bad := first_of_category(name, "Cc")) is not None:
        raise InvalidInput("name", f"must not hold control characters, holds U+{ord(bad):04X}")
    return name


def checked_description(given: object) -> str:
    """Return *given* if it is a description of a store: at most 1,024 characters."""
    return check_text("description", given, most=DESCRIPTION_MAX)


def _given_or(default: object, given: object) -> object:
    return default if given is UNSET or given is None else given


def _json(metadata: Metadata) -> str:
    return msgspec.json.encode(metadata).decode()


def _size(*, id: str, memories: int) -> tuple[str, int]:
    return id, memories
