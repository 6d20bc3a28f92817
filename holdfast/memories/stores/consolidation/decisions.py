"""A store as a memory to consolidate: apply changes of files, and undo them.

Undoing restores the files that are still as the application left them, and lists the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Conflict, NotFound, PathTaken, StoreFull
from holdfast.ground.events import Event, Fact
from holdfast.memories.longterm.consolidation.jobs import (
    JobRow,
    ProposedRow,
    statements,
)
from holdfast.memories.longterm.consolidation.records import (
    ChangeState,
    ProposedChange,
    TextChange,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeOp
from holdfast.memories.stores.consolidation.links import LinkTargets
from holdfast.memories.stores.consolidation.proposals import (
    MOST_WRITTEN,
    SeenFile,
    SessionText,
    StoreChange,
    StoredFile,
    StoreInputs,
    texts_of,
)
from holdfast.memories.stores.history import memories_at, store_state
from holdfast.memories.stores.rows import Head, StoresContext, missing, sought, version_of
from holdfast.memories.stores.stores import NAME_MAX, insert_store
from holdfast.memories.stores.transaction import StoreTransaction, Text
from holdfast.memories.stores.write import heads_under

_CONSOLIDATED: Final = " (consolidated)"
"""What the name of a store that is made has at its end."""


class _Touched(Struct, frozen=True, kw_only=True):
    """A file before an application, by version, and its path and hash since.

    `version` is None for a new file, `path` and `sha256` for one that was deleted.
    """

    id: str
    version: str | None
    path: str | None
    sha256: str | None


class _Application(Struct, frozen=True, kw_only=True):
    files: tuple[_Touched, ...]
    store: str | None = None


_seen = msgspec.json.Decoder(tuple[SeenFile, ...])
_change = msgspec.json.Decoder(StoreChange)
_application = msgspec.json.Decoder(_Application)


class StoreMemory(Struct, frozen=True):
    """A store; see `JobMemory`. What *sessions* wrote into it is shown to a model too."""

    context: StoresContext
    store_id: str
    sessions: tuple[str, ...] = ()

    @property
    def engine(self) -> Engine:
        """The engine, scoped to the workspace."""
        return self.context.engine

    def now(self) -> int:
        """Return the current time in microseconds since 1970."""
        return self.context.now()

    def moment(self) -> int:
        """Return a moment that is not before the last write of the store."""
        place = {"store": sought("memstore", self.store_id)}
        last = self.engine.first(scalar, self.context.sql.store_times, **place)
        if last is None:
            raise missing("memstore", self.store_id)
        return max(self.context.now(), last)

    def writes_since(self, base: int) -> int:
        """Return how many versions came after the number *base*."""
        return self.engine.one(
            scalar, self.context.sql.versions_since, store=self.store_id, base=base
        )

    def event(self, what: str, data: Mapping[str, Fact]) -> Event:
        """Return the event *what* of the workspace."""
        return Event(
            type=what,
            at=from_microseconds(self.now()),
            workspace=self.context.workspace,
            actor=self.context.actor,
            data=dict(data),
        )

    def snapshot(self, reader: Reader, at: int) -> tuple[int, StoreInputs]:
        """Return the number of the store's last write, and its files at that moment."""
        seq = store_state(self.context, reader, self.store_id).seq
        written: list[SessionText] = []
        if self.sessions:
            written = reader.all(
                SessionText,
                statements(self.engine).written_by_sessions,
                store=self.store_id,
                sessions=encoded(self.sessions),
                at=at,
                rows=MOST_WRITTEN,
            )
        memories = memories_at(self.context, reader, self.store_id, at)
        return seq, StoreInputs(memories, written)

    def shown(
        self, reader: Reader, row: JobRow, rows: Sequence[ProposedRow]
    ) -> tuple[ProposedChange, ...]:
        """Return changes with the texts that the job saw; redacted ones are left out."""
        ids = {seen.id for each in rows for seen in _seen.decode(each.before)}
        found = memories_at(self.context, reader, self.store_id, row.task.at, ids) if ids else []
        files = StoreInputs(found).files
        changes: list[ProposedChange] = []
        for each in rows:
            fresh = each.state != "open" or _is_fresh(self.context, reader, self.store_id, each)
            state: ChangeState = msgspec.convert(each.state, ChangeState) if fresh else "stale"
            changes.append(
                ProposedChange(
                    id=f"{row.id}.{each.n}",
                    op=msgspec.convert(each.op, ChangeOp),
                    state=state,
                    reason=each.reason,
                    texts=texts_of(_change.decode(each.after), files),
                )
            )
        return tuple(changes)

    def opener(
        self, row: JobRow, rows: Sequence[ProposedRow], *, accepts: bool
    ) -> Callable[[Transaction], "StoreDecisions"]:
        """Return what locks the store; to accept into a new store it is copied."""
        copies = accepts and row.task.into == "new_store"
        del rows

        def opened(tx: Transaction) -> StoreDecisions:
            return StoreDecisions(self.context, tx, self.store_id, copies=copies)

        return opened


def _is_fresh(context: StoresContext, reader: Reader, store_id: str, row: ProposedRow) -> bool:
    """Check that the files of a change are as its job saw them."""
    for seen in _seen.decode(row.before):
        params = {"memory": sought("mem", seen.id), "store": store_id}
        head = reader.first(Head, context.sql.get_head, **params)
        if head is None or (head.content_sha256, head.path) != (seen.sha256, seen.path):
            return False
    return True


class StoreDecisions:
    """The unit of work of decisions on a store; see `DecisionUnit`.

    With *copies* the store is copied, and the copy is changed.
    """

    def __init__(
        self, context: StoresContext, tx: Transaction, store_id: str, *, copies: bool
    ) -> None:
        self.tx, self._context = tx, context
        self._source = self._unit = StoreTransaction(context, tx, store_id, write=not copies)
        self._ids: dict[str, str] | None = None
        self._moves: dict[str, str] = {}
        if copies:
            self._copy()

    def is_fresh(self, row: ProposedRow) -> bool:
        """Check that the files of a change are as its job saw them."""
        return _is_fresh(self._context, self.tx, self._source.store.id, row)

    def apply(self, row: ProposedRow) -> dict[str, Any] | None:
        """Apply a fresh change; return None if a path is taken, or the store is full."""
        self._unit.refuse_archived()
        change = _change.decode(row.after)
        heads = {seen.id: self._head(seen.id) for seen in _seen.decode(row.before)}
        files = {
            id: StoredFile(
                id=id, path=head.path, sha256=head.content_sha256, text=head.content.decode()
            )
            for id, head in heads.items()
            if head is not None
        }
        texts = [
            each
            for each in texts_of(self._followed(change, files), files)
            if each.before != each.after or each.to
        ]
        if len(files) < len(heads) or not all(self._has_room(each) for each in texts):
            return None
        self._moves = {
            path: change.moves.get(goal, goal) for path, goal in self._moves.items()
        } | change.moves
        touched = [self._write(each) for each in texts]
        store = None if self._ids is None else self._unit.store.id
        return {"files": touched, "store": store}

    def undo(self, row: ProposedRow) -> list[str]:
        """Restore the files of an applied change; return the ids of those changed since."""
        self._unit.refuse_archived()
        found = _application.decode(row.applied or '{"files": []}')
        if found.store is not None:
            raise Conflict(
                "The changes were made in a store of their own.",
                next=f"Delete the store {found.store}.",
            )
        return [each.id for each in reversed(found.files) if not self._restored(each)]

    def close(self) -> str | None:
        """Write the store's totals; return its id."""
        self._unit.close()
        return self._unit.store.id

    def _copy(self) -> None:
        """Copy the store, with its current files."""
        context, source = self._context, self._source.store.record()
        copy = insert_store(
            context,
            self.tx,
            name=source.name[: NAME_MAX - len(_CONSOLIDATED)] + _CONSOLIDATED,
            description=source.description,
            metadata=source.metadata,
        )
        self._unit = StoreTransaction(context, self.tx, copy.id)
        self._ids = {}
        for head in heads_under(self.tx, context.sql.heads_under, source.id, "/"):
            text = Text.of(head.content)
            made = self._unit.created(head.path, text, source=head.provenance)
            self._ids[head.id] = made.id

    def _target(self, id: str) -> str:
        """Return the id that the file *id* of the source has in the store that is changed."""
        return id if self._ids is None else self._ids.get(id, "")

    def _head(self, id: str) -> Head | None:
        """Return the file of the store that is changed, of the id *id* in the source."""
        try:
            return self._unit.head(self._target(id))
        except NotFound:
            return None

    def _followed(self, change: StoreChange, files: Mapping[str, StoredFile]) -> StoreChange:
        """Return *change* with a new text whose links follow earlier moves of this unit."""
        if change.text is None or not self._moves:
            return change
        file = files.get(change.id or "")
        path = change.path or "/" if file is None else file.path
        text = LinkTargets(self._moves).rewritten(change.text, path, self._moves)
        return replace(change, text=text)

    def _has_room(self, change: TextChange) -> bool:
        """Check that a new or moved file may be at its path."""
        path = change.to or (change.place if change.before is None else None)
        if path is None:
            return True
        try:
            self._unit.refuse_taken(path, mine=self._target(change.id or ""))
            if change.before is None:
                self._unit.refuse_full()
        except (PathTaken, StoreFull):
            return False
        return True

    def _write(self, change: TextChange) -> _Touched:
        """Write one file, and return how it was and is."""
        unit = self._unit
        if change.id is None:
            made = unit.created(change.place, Text.of((change.after or "").encode()))
            return _Touched(id=made.id, version=None, path=made.path, sha256=made.content_sha256)
        head = unit.head(self._target(change.id))
        if change.after is None:
            unit.deleted(head)
            return _Touched(id=head.id, version=head.version_id, path=None, sha256=None)
        made = unit.modified(head, change.to or head.path, Text.of(change.after.encode()))
        return _Touched(
            id=head.id, version=head.version_id, path=made.path, sha256=made.content_sha256
        )

    def _restored(self, touched: _Touched) -> bool:
        """Restore one file; return False if it was changed since, or its version is gone."""
        unit, context = self._unit, self._context
        head = self._head(touched.id)
        now = (None, None) if head is None else (head.path, head.content_sha256)
        if now != (touched.path, touched.sha256):
            return False
        if touched.version is None:
            if head is not None:
                unit.deleted(head)
            return True
        params = {"version": touched.version, "store": unit.store.id, "full": 1}
        version = self.tx.first(version_of, context.sql.get_version, **params)
        if version is None or version.path is None or version.content is None:
            return False
        text = Text.of(version.content.encode())
        back = TextChange(id=touched.id, place=version.path, before="" if head else None)
        if not self._has_room(replace(back, to=version.path if head else None)):
            return False
        if head is not None:
            unit.modified(head, version.path, text, source=version.provenance)
            return True
        params = {"memory": touched.id, "store": unit.store.id}
        born = self.tx.one(scalar, context.sql.first_version_at, **params)
        unit.created(version.path, text, memory_id=touched.id, born=born, source=version.provenance)
        return True
