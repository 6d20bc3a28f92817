"""Sessions, and the stores attached to them."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import (
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    StoreArchived,
)
from holdfast.ground.events import Event
from holdfast.ground.pages import Key, Page, digest, read_cursor, write_cursor
from holdfast.ground.trust import Tier
from holdfast.ground.validation import check_limit, check_text
from holdfast.memories.stores.agents import agent_for_session, require_environment
from holdfast.memories.stores.credentials import SessionTokens
from holdfast.memories.stores.records import (
    Deleted,
    JSONObject,
    Metadata,
    Resource,
    SessionRecord,
    SessionToken,
)
from holdfast.memories.stores.rows import (
    SessionRow,
    StoresContext,
    as_records,
    missing,
    new_row,
    refuse_narrowed,
    shaped,
)
from holdfast.memories.stores.session_input import (
    MOST_ID,
    Attachment,
    NewSession,
    Refusable,
    Status,
    changed,
    checked_session,
    checked_statuses,
    checked_version,
    note,
)
from holdfast.memories.stores.validation import (
    BEGINNING,
    END,
    LAST_ID,
    ROOT,
    bounds,
    checked_age,
    slug,
)

Order = Literal["asc", "desc"]

_LIST = "sessions"


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Filters and order of a list of sessions; None does not filter."""

    agent_id: str | None = None
    agent_version: int | None = None
    created_at_gt: datetime | None = None
    created_at_gte: datetime | None = None
    created_at_lt: datetime | None = None
    created_at_lte: datetime | None = None
    include_archived: bool = False
    memory_store_id: str | None = None
    order: Order | None = None
    statuses: Iterable[Status] | None = None


class SessionListFilter(Struct, frozen=True, kw_only=True):
    """A checked filter: parameters of the statements, direction and digest."""

    params: dict[str, object]
    ascending: bool
    mark: str
    """The digest of the filter, which a cursor must match."""

    def rows(
        self, reader: Reader, sql: SimpleNamespace, key: Key | None, *, ahead: bool, rows: int
    ) -> list[SessionRow]:
        """Return the nearest sessions after *key*, or before it unless *ahead*, in order."""
        upward = self.ascending == ahead
        at, after = key or ([BEGINNING - 1, ""] if upward else [END, LAST_ID])
        statement = sql.sessions_after if upward else sql.sessions_before
        found = reader.all(SessionRow, statement, at=at, id=after, rows=rows, **self.params)
        return found if ahead else found[::-1]


def window(filters: SessionFilter, workspace: str) -> SessionListFilter:
    """Check *filters* and return the parameters of the statements.

    InvalidInput names the invalid field.
    """
    if filters.order not in (None, "asc", "desc"):
        raise InvalidInput("order", "must be asc or desc", given=filters.order)
    if filters.agent_version is not None:
        checked_version("agent_version", filters.agent_version)
    for field in ("agent_id", "memory_store_id"):
        check_text(field, getattr(filters, field) or "", most=MOST_ID)
    since, until = bounds(
        gt=filters.created_at_gt,
        gte=filters.created_at_gte,
        lt=filters.created_at_lt,
        lte=filters.created_at_lte,
    )
    statuses = checked_statuses(filters.statuses or ())
    ascending = filters.order == "asc"
    params: dict[str, object] = {
        "since": since,
        "until": until,
        "idle": int(not statuses or "idle" in statuses),
        "terminated": int(filters.include_archived and (not statuses or "terminated" in statuses)),
        "agent_id": filters.agent_id,
        "agent_version": filters.agent_version,
        "store_id": filters.memory_store_id,
    }
    marked = (workspace, *params.values(), sorted(statuses), filters.include_archived, ascending)
    return SessionListFilter(params=params, ascending=ascending, mark=digest(*marked))


class SessionsPage(Struct, frozen=True):
    """A page of sessions, with the cursors of the next and previous pages."""

    data: list[SessionRecord]
    next_page: str | None
    prev_page: str | None


def session_page(
    reader: Reader,
    sql: SimpleNamespace,
    filters: SessionListFilter,
    *,
    limit: int | None,
    page: str | None,
) -> SessionsPage:
    """Return the page of *filters* at the cursor *page*, or the first."""
    most = check_limit(limit)
    key, backward = (None, False) if page is None else read_cursor(_LIST, filters.mark, page)
    if key is not None:
        checked_age(key)
    rows = filters.rows(reader, sql, key, ahead=not backward, rows=most + 1)
    more = len(rows) > most
    rows = rows[-most:] if backward else rows[:most]
    if not rows:
        return SessionsPage([], None, None)
    first, last = ([row.created_at, row.id] for row in (rows[0], rows[-1]))
    # The session of the cursor may have been deleted since.
    beyond = key is not None and bool(
        filters.rows(reader, sql, last if backward else first, ahead=backward, rows=1)
    )
    has_next, has_prev = (beyond, more) if backward else (more, beyond)
    return SessionsPage(
        as_records(reader, sql, rows),
        write_cursor(_LIST, filters.mark, last) if has_next else None,
        write_cursor(_LIST, filters.mark, first, backward=True) if has_prev else None,
    )


class _StoreRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    archived_at: int | None


class _StoreTier(Struct, frozen=True, kw_only=True):
    store_id: str
    tier: Tier
    held: int


class Sessions:
    """The sessions of a workspace.

    A context limited to a session can read only that one.
    """

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql
        self._tokens = SessionTokens(context)

    def create(
        self,
        *,
        agent: str | JSONObject,
        environment_id: str,
        resources: Iterable[JSONObject] = (),
        title: str | UnsetType | None = UNSET,
        metadata: Metadata | UnsetType | None = UNSET,
        initial_events: object = UNSET,
        budget: object = UNSET,
        vault_ids: object = UNSET,
        strict: bool = False,
    ) -> SessionRecord:
        """Create and return a session; its stores, *resources*, never change.

        With *strict* the agent and the environment must exist here; else an unknown agent is taken
        as external. InvalidInput names the key that is invalid or not supported; NotFound and
        StoreArchived are about a store to attach.
        """
        refuse_narrowed(self._context, "write")
        Refusable(initial_events=initial_events, budget=budget, vault_ids=vault_ids).check()
        request = checked_session(
            agent=agent,
            environment_id=environment_id,
            resources=resources,
            title=title,
            metadata=metadata,
        )
        return self._context.engine.write(
            lambda tx: put_session(self._context, tx, request, strict=strict)
        )

    def retrieve(self, session_id: str) -> SessionRecord:
        """Return the session, an archived one too."""
        context = self._context
        if context.session_id not in (None, session_id):
            raise NotPermitted(
                "A session reaches no other session.", needed="read", next="Use an API key."
            )
        shaped("sesn", session_id)
        found = context.engine.read(
            lambda reader: [
                session
                for row in reader.all(SessionRow, self._sql.get_session, session_id=session_id)
                for session in as_records(reader, self._sql, [row])
            ]
        )
        if context.session_id is not None and (not found or found[0].archived_at is not None):
            raise NotAuthenticated
        if not found:
            raise missing("sesn", session_id)
        return found[0]

    def list(
        self,
        *,
        agent_id: str | None = None,
        agent_version: int | None = None,
        created_at_gt: datetime | None = None,
        created_at_gte: datetime | None = None,
        created_at_lt: datetime | None = None,
        created_at_lte: datetime | None = None,
        include_archived: bool = False,
        limit: int | None = None,
        memory_store_id: str | None = None,
        order: Order | None = None,
        page: str | None = None,
        statuses: Iterable[Status] | None = None,
    ) -> Page[SessionRecord]:
        """Return a page of the sessions, newest first unless *order* is `asc`."""
        return self._list(
            SessionFilter(
                agent_id=agent_id,
                agent_version=agent_version,
                created_at_gt=created_at_gt,
                created_at_gte=created_at_gte,
                created_at_lt=created_at_lt,
                created_at_lte=created_at_lte,
                include_archived=include_archived,
                memory_store_id=memory_store_id,
                order=order,
                statuses=None if statuses is None else tuple(statuses),
            ),
            limit,
            page,
        )

    def _list(
        self, filters: SessionFilter, limit: int | None, page: str | None
    ) -> Page[SessionRecord]:
        refuse_narrowed(self._context, "read")
        found = self._context.engine.read(
            partial(
                session_page,
                sql=self._sql,
                filters=window(filters, self._context.workspace),
                limit=limit,
                page=page,
            )
        )
        return Page(
            found.data,
            found.next_page,
            prev_page=found.prev_page,
            more=lambda cursor: self._list(filters, limit, cursor),
        )

    def update(
        self,
        session_id: str,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: dict[str, str | None] | UnsetType | None = UNSET,
        agent: object = UNSET,
        budget: object = UNSET,
        vault_ids: object = UNSET,
    ) -> SessionRecord:
        """Change the *title*, or patch the *metadata*, and return the session.

        None leaves a value unchanged.
        """
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> SessionRecord:
            row = self._locked(tx, session_id)
            Refusable(agent=agent, budget=budget, vault_ids=vault_ids).check()
            new_title, new_metadata = changed(
                row.title, row.with_metadata(), new_title=title, patch=metadata
            )
            if (new_title, new_metadata) != (row.title, row.with_metadata()):
                row = msgspec.structs.replace(
                    row,
                    title=new_title,
                    metadata=_json(new_metadata),
                    updated_at=max(now, row.updated_at),
                )
                tx.run(
                    self._sql.change_session,
                    session_id=session_id,
                    title=row.title,
                    metadata=row.metadata,
                    now=row.updated_at,
                )
            return as_records(tx, self._sql, [row])[0]

        return self._context.engine.write(work)

    def archive(self, session_id: str) -> SessionRecord:
        """End the session and its tokens, and return it; a repeat changes nothing."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> SessionRecord:
            row = self._locked(tx, session_id)
            if row.archived_at is None:
                at = max(now, row.updated_at)
                tx.run(self._sql.archive_session, session_id=session_id, now=at)
                tx.run(self._sql.revoke_tokens_of_session, session_id=session_id, now=at)
                tx.note(_event(self._context, "session.archived", session_id, at))
                row = msgspec.structs.replace(row, archived_at=at, updated_at=at)
            return as_records(tx, self._sql, [row])[0]

        return self._context.engine.write(work)

    def delete(self, session_id: str) -> Deleted:
        """Delete the session with its attachments and tokens, and erase their bytes."""
        refuse_narrowed(self._context, "write")
        now, engine = self._context.now(), self._context.engine

        def work(tx: Transaction) -> Deleted:
            self._locked(tx, session_id)
            tx.run(self._sql.delete_tokens_of_session, session_id=session_id)
            tx.run(self._sql.delete_stores_of_session, session_id=session_id)
            tx.run(self._sql.delete_session, session_id=session_id)
            tx.note(_event(self._context, "session.deleted", session_id, now))
            return Deleted(id=session_id, type="session_deleted")

        deleted = engine.write(work)
        engine.scrub()
        return deleted

    def resources(self, session_id: str) -> tuple[Resource, ...]:
        """Return the resources of the session, in the order given at its creation."""
        return self.retrieve(session_id).resources

    def resource(self, session_id: str, memory_store_id: str) -> Resource:
        """Return the attached store *memory_store_id* with its access and instructions."""
        for resource in self.resources(session_id):
            if resource.memory_store_id == memory_store_id:
                return resource
        raise NotFound(
            "resource", memory_store_id, next="List the resources; a resource's id is its store's."
        )

    def note(self, session_id: str, *, root: str = ROOT) -> str:
        """Return a note for a system prompt about the attached stores.

        Their directories are below *root*. Of each store it tells whether others than people wrote
        in it, and how many of its files are held.
        """
        resources = self.resources(session_id)
        trust: dict[str, dict[Tier, int]] = {}
        ids = _json([each.memory_store_id for each in resources])
        for row in self._context.engine.all(_StoreTier, self._sql.tiers_of_stores, stores=ids):
            trust.setdefault(row.store_id, {})[row.tier] = row.held
        return note(resources, root=root, trust=trust)

    def create_token(self, session_id: str, *, expires_in: float | None = None) -> SessionToken:
        """Create and return a token to act as the session.

        It is valid for *expires_in* seconds, or while the session is open.
        """
        refuse_narrowed(self._context, "write")
        return self._tokens.create(session_id, expires_in=expires_in)

    def list_tokens(self, session_id: str) -> "list[SessionToken]":
        """Return the session's valid tokens, newest first, without secrets."""
        refuse_narrowed(self._context, "read")
        return self._tokens.list(session_id)

    def revoke_token(self, id: str, *, session_id: str) -> SessionToken:
        """Revoke the token *id* at once, and return it."""
        refuse_narrowed(self._context, "write")
        return self._tokens.revoke(id, session_id=session_id)

    def _locked(self, tx: Transaction, session_id: str) -> SessionRow:
        row = tx.first(SessionRow, self._sql.lock_session, session_id=shaped("sesn", session_id))
        if row is None:
            raise missing("sesn", session_id)
        return row


def put_session(
    context: StoresContext, tx: Transaction, request: NewSession, *, strict: bool = False
) -> SessionRecord:
    """Create a session within *tx*, and return it; see `Sessions.create`."""
    sql, now = context.sql, context.now()
    snapshot = agent_for_session(tx, sql, request.agent, strict=strict)
    if strict:
        require_environment(tx, sql, request.environment_id)
    attached = _attached(tx, sql, request.attachments)
    row = new_row(context.ids.new("sesn", now), request, snapshot, now)
    _insert(tx, sql, row, snapshot, attached)
    tx.note(_event(context, "session.created", row.id, now, stores=len(attached)))
    return row.record(attached)


def _attached(
    tx: Transaction, sql: SimpleNamespace, wanted: tuple[Attachment, ...]
) -> tuple[Resource, ...]:
    ids = _json([shaped("memstore", each.memory_store_id) for each in wanted])
    found = (
        {row.id: row for row in tx.all(_StoreRow, sql.stores_to_attach, store_ids=ids)}
        if wanted
        else {}
    )
    slugs: list[str] = []
    resources: list[Resource] = []
    for each in wanted:
        store = found.get(each.memory_store_id)
        if store is None:
            raise missing("memstore", each.memory_store_id)
        if store.archived_at is not None:
            raise StoreArchived(store.id)
        slugs.append(slug(store.name, store.id, slugs))
        resources.append(
            Resource(
                memory_store_id=store.id,
                access=each.access,
                name=store.name,
                description=store.description,
                instructions=each.instructions,
                mount_path=f"{ROOT}/{slugs[-1]}",
            )
        )
    return tuple(resources)


def _insert(
    tx: Transaction,
    sql: SimpleNamespace,
    row: SessionRow,
    snapshot: JSONObject,
    attached: tuple[Resource, ...],
) -> None:
    tx.run(
        sql.insert_session,
        id=row.id,
        title=row.title,
        environment_id=row.environment_id,
        agent_id=snapshot["id"],
        agent_version=snapshot["version"],
        agent_snapshot=row.agent,
        metadata=row.metadata,
        now=row.created_at,
    )
    tx.run_many(
        sql.insert_session_store,
        [
            {
                "session_id": row.id,
                "position": position,
                "memory_store_id": each.memory_store_id,
                "access": each.access,
                "name": each.name,
                "description": each.description,
                "instructions": each.instructions,
                "mount_path": each.mount_path,
            }
            for position, each in enumerate(attached)
        ],
    )


def _event(context: StoresContext, type: str, session_id: str, at: int, **data: int) -> Event:
    return Event(
        type=type,
        at=from_microseconds(at),
        workspace=context.workspace,
        actor=context.actor,
        ids={"session_id": session_id},
        data=dict(data),
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
